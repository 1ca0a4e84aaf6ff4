#!/bin/sh
# Builds a release into the directory OUT (default bin/release): for each architecture an archive with the static
# program, a .deb, an .rpm and a list of parts (SBOM), and the checksums of all. As root it first installs the Debian
# packages that it needs (hack/setup.sh).
#
#	release.sh [OUT [ARCH...]]
#
# ARCH is amd64 or arm64 (default both). All bytes follow from the commit: dates are the date of the commit, and no path
# of this machine is in any file. hack/release-check.sh shows it. The version is the commit's tag without "v". Without a
# tag it is 0.0.0~git and the date and hash of the commit. VERSION chooses another one.
set -eu

cd "$(dirname "$0")/.."
mkdir -p "${1:-bin/release}"
out=$(cd "${1:-bin/release}" && pwd)
[ $# = 0 ] || shift
[ $# != 0 ] || set -- amd64 arm64
native=$(go env GOARCH)
if [ "$*" = "$native" ]; then
	sh hack/setup.sh
else
	sh hack/setup.sh release
fi

export TZ=UTC LC_ALL=C GOFLAGS=-trimpath
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
tag=$(git describe --tags --exact-match --match 'v*' 2>/dev/null) || tag=
version=${VERSION:-${tag#v}}
version=${version:-0.0.0~git$(date -d "@$SOURCE_DATE_EPOCH" +%Y%m%d).$(git rev-parse --short=12 HEAD)}
if [ -n "$(git status --porcelain)" ]; then
	echo "release: the work tree has changes that are in no commit, so this build cannot be repeated" >&2
fi

sh hack/webui.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
rm -f "$out"/berth[_-]* "$out/SHA256SUMS"

# The same result whatever user and file system: owners, dates and the order of names.
archive() {
	tar -C "$1" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=u+rwX,go=rX \
		-cf - "$2" | gzip -9n
}

build() { # ARCH
	echo "release: building berth $version for $1"
	name=berth-$version-linux-$1
	stage=$work/$1/$name
	mkdir -p "$stage" "$work/$1/programs"

	assets=$(sh hack/program.sh "$1" "$stage/berth")
	for file in "$assets"/*.zst; do
		zstd -dqf "$file" -o "$work/$1/programs/$(basename "$file" .zst)"
	done
	root=/
	[ "$1" = "$native" ] || root=$(sh hack/unpack.sh "seccomp-$1")
	seccomp=$(sed -n 's/^Version: //p' "$root"/usr/lib/*-linux-gnu/pkgconfig/libseccomp.pc)
	go run -C tools/release ./sbom -version "$version" -seccomp "$seccomp" "$stage/berth" "$work/$1"/programs/* \
		>"$stage/berth.cdx.json"

	sh hack/package.sh "$1" "$version" "$stage" "$out"
	cp LICENSE "$stage/"
	cp "$stage/berth.cdx.json" "$out/$name.cdx.json"
	archive "$work/$1" "$name" >"$out/$name.tar.gz"
}
for arch; do
	build "$arch"
done
(
	cd "$out"
	sha256sum -- berth[_-]* >SHA256SUMS
)
ls -l "$out"
