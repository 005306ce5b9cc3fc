#!/usr/bin/env bash
# Builds the commit that is checked out twice, in two directories and with an empty build
# cache each, and compares the programs. What is not committed does not count.
set -euo pipefail
cd "$(dirname "$0")/.."
go=${GO:-go}

dir=$(mktemp -d)
trap 'chmod -R u+w "$dir"; rm -rf "$dir"' EXIT
for name in one another/and-longer; do
	git clone -q . "$dir/$name/leasehold"
	echo "building in $dir/$name/leasehold"
	GOCACHE="$dir/$name/cache" make -s -C "$dir/$name/leasehold" build GO="$go"
done

one=$(sha256sum <"$dir/one/leasehold/bin/leasehold")
another=$(sha256sum <"$dir/another/and-longer/leasehold/bin/leasehold")
if [ "$one" != "$another" ]; then
	echo "the two builds of $(git rev-parse HEAD) differ: ${one%% *} and ${another%% *}"
	diff <("$go" version -m "$dir/one/leasehold/bin/leasehold" | tail -n +2) \
		<("$go" version -m "$dir/another/and-longer/leasehold/bin/leasehold" | tail -n +2) || true
	exit 1
fi
echo "both builds of $(git rev-parse HEAD) are ${one%% *}"
