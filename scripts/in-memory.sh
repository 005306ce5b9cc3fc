#!/bin/sh
# Runs a command with its temporary files in memory, where that is possible. Browsers sync
# much of what they write, and a disk makes each test of one a fifth slower.
#
#   scripts/in-memory.sh go test ./...
set -u

need=6291456 # KiB that have to be free

# place prints a new directory in memory, or nothing.
place() {
	free=$(df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 { print $4 }')
	available=$(awk '$1 == "MemAvailable:" { print $2 }' /proc/meminfo)
	[ "${free:-0}" -ge "$need" ] && [ "${available:-0}" -ge "$need" ] || return
	dir=$(mktemp -d /dev/shm/leasehold-test.XXXXXX) || return
	# The tests build programs there, and some systems let none run.
	if cp /bin/true "$dir/true" && "$dir/true" 2>/dev/null; then
		rm "$dir/true"
		echo "$dir"
	else
		rm -rf "$dir"
	fi
}

dir=$(place)
if [ -z "$dir" ]; then
	exec "$@"
fi
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
TMPDIR=$dir "$@"
