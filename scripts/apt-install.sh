#!/usr/bin/env bash
# Installs the packages that it is given, as root or by sudo. Prints what apt
# prints only when it fails.
set -euo pipefail

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  as_root=(sudo)
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT

apt() {
  if ! "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq "$@" >"$log" 2>&1; then
    echo "apt-get $* failed:" >&2
    cat "$log" >&2
    exit 1
  fi
}

echo "installing $* (apt-get)"
# Package lists of an image are often older than what the mirror still has.
apt update
apt install --yes --no-install-recommends "$@"
