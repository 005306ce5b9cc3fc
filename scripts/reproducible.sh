#!/usr/bin/env bash
# Makes the release of the commit that is checked out twice, in two directories and with an empty
# build cache each, and compares the sums. What is not committed does not count.
set -euo pipefail
cd "$(dirname "$0")/.."

dir=$(mktemp -d)
trap 'chmod -R u+w "$dir"; rm -rf "$dir"' EXIT
for name in one another/and-longer; do
	git clone -q . "$dir/$name/leasehold"
	echo "building in $dir/$name/leasehold"
	GOCACHE="$dir/$name/cache" make -s -C "$dir/$name/leasehold" release GO="${GO:-go}" >/dev/null
done
if ! diff "$dir/one/leasehold/dist/SHA256SUMS" "$dir/another/and-longer/leasehold/dist/SHA256SUMS"; then
	echo "the two releases of $(git rev-parse HEAD) differ" >&2
	exit 1
fi
echo "both releases of $(git rev-parse HEAD) are"
cat "$dir/one/leasehold/dist/SHA256SUMS"
