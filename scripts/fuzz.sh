#!/usr/bin/env bash
# Runs every fuzz target of the project, one after the other, and stops at the first that
# finds something: scripts/fuzz.sh TIME [PATTERN], as scripts/fuzz.sh 20s 'FuzzParse.*'.
set -euo pipefail
cd "$(dirname "$0")/.."
go=${GO:-go} time=${1:-20s} pattern=${2:-.*}

count=0
while IFS=$'\t' read -r package dir files; do
	for target in $(cd "$dir" && grep -hoE '^func Fuzz\w+' $files </dev/null | cut -d' ' -f2 | grep -xE "$pattern"); do
		count=$((count + 1))
		echo "== $package $target"
		if ! "$go" test "$package" -run '^$' -fuzz "^$target\$" -fuzztime "$time" </dev/null; then
			echo
			echo "$target of $package failed. The input is the newest file of $dir/testdata/fuzz/$target,"
			echo "or one of its seeds, if none is new. Try it again with: $go test $package -run '^$target\$'"
			exit 1
		fi
	done
done < <("$go" list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{"\t"}}{{.Dir}}{{"\t"}}{{range .TestGoFiles}}{{.}} {{end}}{{range .XTestGoFiles}}{{.}} {{end}}{{end}}' ./... | grep .)

if [ "$count" = 0 ]; then
	echo "no fuzz target is called $pattern" >&2
	exit 1
fi
echo "$count fuzz targets found nothing in $time each"
