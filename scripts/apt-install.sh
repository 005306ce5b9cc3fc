#!/usr/bin/env bash
# Installs the given packages, as root or with sudo. Prints the output of apt only when
# it fails.
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
# The package lists of an image are often old, and name packages that the mirror no
# longer has.
apt update
apt install --yes --no-install-recommends "$@"
