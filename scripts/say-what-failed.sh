#!/bin/sh
# Runs a command that runs tests, and repeats at the end which of them failed and what each
# had to say. The output of a whole run is long, several test binaries write it at the same
# time, and some systems keep only its end.
#
#   scripts/say-what-failed.sh make -k -j 2 linted unraced
set -u

lines=60 # at most, of one test

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
{
	"$@" 2>&1
	echo $? >"$dir/status"
} | tee "$dir/output"
read -r status <"$dir/status"
if [ "$status" -ne 0 ]; then
	printf '\nWhat failed:\n'
	# A failed test is a line of its own and, indented below it, what it logged. A test that
	# never ended, a panic and a data race have lines of their own too.
	awk -v lines="$lines" '
		/^(--- FAIL|panic: |fatal error: |WARNING: DATA RACE)/ { left = lines; print; next }
		/^(FAIL\t|make(\[[0-9]+\])?: \*\*\*)/ { left = 0; print; next }
		/^(ok  \t|\?   \t|--- |=== |PASS|FAIL)/ { left = 0; next }
		left-- > 0 { print }' "$dir/output"
fi
exit "$status"
