#!/usr/bin/env bash
# Installs iproute2, util-linux (ip, unshare, nsenter) and systemd if they are missing. The
# chaos test makes its namespaces with the first two, and the units of deploy/ are tested
# under the last. Without root or apt-get this script says so and succeeds: the chaos test
# then runs on loopback, without partitions, and the test of the units fails. Prints the
# output of apt only when it fails.
set -euo pipefail

missing=()
command -v ip >/dev/null || missing+=(iproute2)
if ! command -v unshare >/dev/null || ! command -v nsenter >/dev/null; then
  missing+=(util-linux)
fi
[ -x /lib/systemd/systemd ] || missing+=(systemd)
if [ ${#missing[@]} -eq 0 ]; then
  exit 0
fi

if ! command -v apt-get >/dev/null || { [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null; }; then
  echo "${missing[*]} missing: the chaos test runs without partitions, and the test of the systemd units fails" >&2
  exit 0
fi
exec "$(dirname "$0")/apt-install.sh" "${missing[@]}"
