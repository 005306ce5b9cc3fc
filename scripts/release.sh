#!/usr/bin/env bash
# Makes what people install, of the commit that is checked out, in dist/: programs with their
# manual pages, completions and units for two architectures, packages for Debian and Red Hat, the
# commands that talk to a sidecar for Macs, a Helm chart, a bill of materials, and the sums of all.
# The same commit gives the same bytes. MAINTAINER='Name <address>' is who answers for the packages;
# without it they say that nobody is named. DIST is another directory than dist/; ARCHES and
# MAC_ARCHES are fewer architectures.
set -euo pipefail
cd "$(dirname "$0")/.."
go=${GO:-go}
version=$(cat VERSION)
export MAINTAINER=${MAINTAINER:-Nobody is named <root@localhost>}
if ! [[ $MAINTAINER =~ ^[^\<\>]+\ \<[^\<\>@\ ]+@[^\<\>@\ ]+\>$ ]]; then
	echo "MAINTAINER is \"$MAINTAINER\": want a name and an address, as in 'Ana Example <ana@example.com>'" >&2
	exit 1
fi
dist=${DIST:-dist}

if [ -n "$(git status --porcelain)" ]; then
	echo "there are changes that are not committed: a release is made of a commit" >&2
	exit 1
fi
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH

umask 022
rm -rf "$dist"
mkdir -p "$dist" build
stage=$(mktemp -d build/release-XXXXXX)
trap 'rm -rf "$stage"' EXIT
nfpm=$PWD/$stage/nfpm
(cd deploy/package && "$go" build -o "$nfpm" github.com/goreleaser/nfpm/v2/cmd/nfpm)
sbom=$stage/sbom
"$go" build -o "$sbom" ./internal/test/supply/sbom

build() { # system, architecture, file
	CGO_ENABLED=0 GOOS=$1 GOARCH=$2 "$go" build -trimpath -buildvcs=true -ldflags='-s -w' -o "$3" ./cmd/leasehold
}

archive() { # a directory of $stage; its bill of materials is of the program in it
	tar -C "$stage" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -cf - "$1" | gzip -n9 >"$dist/$1.tar.gz"
	"$sbom" "$stage/$1/leasehold" >"$dist/$1.cdx.json"
}

# What does not depend on the architecture: written by the program itself, as it runs here.
common=$stage/common
mkdir -p "$common/man" "$common/completions"
build linux "$("$go" env GOHOSTARCH)" "$stage/here"
"$stage/here" man "$common/man"
"$stage/here" completion bash >"$common/completions/leasehold.bash"
"$stage/here" completion zsh >"$common/completions/_leasehold"
"$stage/here" completion fish >"$common/completions/leasehold.fish"
{
	echo "Leasehold $version"
	echo
	cat LICENSE
	echo
	echo "Linked into the program:"
	echo
	"$go" run ./internal/test/supply/notices
} >"$common/copyright"

for arch in ${ARCHES:-amd64 arm64}; do
	dir=$stage/leasehold-$version-linux-$arch
	cp -r "$common" "$dir"
	build linux "$arch" "$dir/leasehold"
	cp README.md CHANGELOG.md deploy/package/leasehold.env deploy/leasehold.service deploy/leasehold-browser-user.service "$dir"
	chmod -R u=rwX,go=rX "$dir"
	archive "${dir##*/}"

	# A package has the program in /usr/bin, and its pages are compressed.
	sed -i 's,/usr/local/bin,/usr/bin,' "$dir"/*.service
	gzip -n9 "$dir"/man/*
	gzip -n9 <CHANGELOG.md >"$dir/changelog.gz"
	# Debian's own changelog is about the packaging, which has no other versions than the program.
	printf 'leasehold (%s-1) unstable; urgency=medium\n\n  * Version %s: see changelog.gz.\n\n -- %s  %s\n' "$version" "$version" \
		"$MAINTAINER" "$(date -uR -d "@$SOURCE_DATE_EPOCH")" | gzip -n9 >"$dir/changelog.Debian.gz"
	for packager in deb rpm; do
		ARCH=$arch VERSION=$version STAGE=$dir "$nfpm" package -f deploy/package/nfpm.yaml -p "$packager" -t "$dist/" >&2
	done
done
for arch in ${MAC_ARCHES-amd64 arm64}; do
	dir=$stage/leasehold-$version-darwin-$arch
	cp -r "$common" "$dir"
	build darwin "$arch" "$dir/leasehold"
	cp README.md CHANGELOG.md "$dir"
	chmod -R u=rwX,go=rX "$dir"
	archive "${dir##*/}"
done
# The chart, as helm package names and packs it.
tar -C deploy --transform='s,^helm,leasehold,' --sort=name --mtime="@$SOURCE_DATE_EPOCH" --mode=u=rwX,go=rX --owner=0 --group=0 --numeric-owner \
	-cf - helm | gzip -n9 >"$dist/leasehold-$version.tgz"
(cd "$dist" && sha256sum -- * >SHA256SUMS)
cat "$dist/SHA256SUMS"
