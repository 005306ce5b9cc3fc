#!/usr/bin/env bash
# Installs iproute2, util-linux (ip, unshare, nsenter), systemd, zsh and fish if they are
# missing. The chaos test makes its namespaces with the first two, the units of deploy/ are
# tested under the third, and the shells run their completion. Without root or apt-get this
# script says so and succeeds: the chaos test then runs on loopback, without partitions, and
# the tests of the units and of the shells fail. Prints the output of apt only when it fails.
set -euo pipefail

missing=()
command -v ip >/dev/null || missing+=(iproute2)
if ! command -v unshare >/dev/null || ! command -v nsenter >/dev/null; then
  missing+=(util-linux)
fi
[ -x /lib/systemd/systemd ] || missing+=(systemd)
for shell in zsh fish; do
  command -v "$shell" >/dev/null || missing+=("$shell")
done
if [ ${#missing[@]} -eq 0 ]; then
  exit 0
fi

if ! command -v apt-get >/dev/null || { [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null; }; then
  echo "${missing[*]} missing: the chaos test runs without partitions, and the tests of the systemd units and of the shells fail" >&2
  exit 0
fi
exec "$(dirname "$0")/apt-install.sh" "${missing[@]}"
