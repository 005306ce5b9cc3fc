#!/bin/sh
# Runs a command with its temporary files in memory, where that can be had. Browsers sync
# much of what they write, and a disk makes a test with one take a quarter longer.
#
#   scripts/in-memory.sh go test ./...
#
# It needs root, and enough memory; otherwise the command runs without. It does not use /dev/shm,
# since confined browsers may use that. Files that have to outlive the command go elsewhere.
set -u

need=6291456 # KiB that have to be available

available=$(awk '$1 == "MemAvailable:" { print $2 }' /proc/meminfo)
if [ "$(id -u)" -ne 0 ] || [ "${available:-0}" -lt "$need" ] || ! unshare --mount true 2>/dev/null; then
	exec "$@"
fi
dir=$(mktemp -d /tmp/tXXX) # short, since the paths of sockets below it may not be long
trap 'rmdir "$dir"' EXIT
trap 'exit 130' INT TERM
# In a namespace of its own: the mount ends with the last process of the command.
# shellcheck disable=SC2016
unshare --mount sh -c 'mount -t tmpfs -o mode=1777 leasehold-test "$0" && export TMPDIR="$0"; exec "$@"' "$dir" "$@"
