#!/usr/bin/env bash
# Installs the CDP clients of internal/test/clients, which the tests drive, if they are
# missing or older than the lock file; with the argument more those of its folder more.
# Prints the output of npm only when it fails.
set -euo pipefail

folder=internal/test/clients${1:+/$1}
cd "$(dirname "$0")/../$folder"

# npm writes this file last, so it exists only after a successful install.
mark=node_modules/.package-lock.json
if [ -e "$mark" ] && ! [ package-lock.json -nt "$mark" ] && ! [ package.json -nt "$mark" ]; then
  exit 0
fi

for tool in node npm; do
  if ! command -v "$tool" >/dev/null; then
    echo "$tool not found: the tests drive Playwright and Puppeteer. Install Node.js 20 or later with npm (Debian: apt-get install nodejs npm)" >&2
    exit 1
  fi
done

log=$(mktemp)
trap 'rm -f "$log"' EXIT

echo "installing the CDP clients of $folder (npm ci)"
# Some packages ask for a newer Node.js than they need. npm only warns about that.
if ! npm ci --loglevel=error --no-progress >"$log" 2>&1; then
  echo "npm ci in $folder failed:" >&2
  cat "$log" >&2
  exit 1
fi
touch "$mark"
