#!/usr/bin/env bash
# Installs Chromium from the distribution's packages if no Chrome is found. With
# --driver it also installs chromedriver, which the Selenium tests need.
# Needs root or sudo. Prints the output of apt only when it fails.
set -euo pipefail

missing=(chromium fonts-liberation)
# The sidecar looks in the same places.
for name in /usr/lib/chromium/chromium /opt/google/chrome/chrome chromium chromium-browser google-chrome-stable google-chrome chrome; do
  if command -v "$name" >/dev/null; then
    missing=()
    break
  fi
done
if [ "${1:-}" = --driver ] && ! command -v chromedriver >/dev/null; then
  missing+=(chromium-driver)
fi
if [ ${#missing[@]} -eq 0 ]; then
  exit 0
fi

if ! command -v apt-get >/dev/null; then
  echo "${missing[*]}: not found, and no apt-get to install it with: install Chromium or Google Chrome (for the tests with its chromedriver), so that it is in PATH" >&2
  exit 1
fi

if [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null; then
  echo "${missing[*]}: not found: run as root: apt-get install ${missing[*]}" >&2
  exit 1
fi
exec "$(dirname "$0")/apt-install.sh" "${missing[@]}"
