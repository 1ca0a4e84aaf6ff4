#!/bin/sh
# Shows that anybody can build the same release: builds the last commit twice, in two directories, and compares all
# bytes. Then checks that the files are what they should be. Leaves the files of the first build in bin/release.
#
#	release-check.sh [ARCH...]
#
# ARCH is amd64 or arm64 (default both). With COLD=1 the second build starts with empty caches. This takes many minutes.
set -eu

cd "$(dirname "$0")/.."
. hack/keep.sh
[ $# != 0 ] || set -- amd64 arm64
fail() {
	echo "release-check: $*" >&2
	exit 1
}

out=$PWD/bin/release
work=$(mktemp -d)
trap 'chmod -R u+w "$work" && rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

build() { # DIR OUT ARCH...
	git clone -q --no-hardlinks . "$1"
	git -C "$1" -c advice.detachedHead=false checkout -q "$(git rev-parse HEAD)"
	dir=$1
	shift
	sh "$dir/hack/release.sh" "$@" >"$work/log" 2>&1 || {
		cat "$work/log" >&2
		fail "the build in $dir failed"
	}
}
build "$work/one" "$out" "$@"
if [ -n "${COLD-}" ]; then
	mkdir -p "$work/cache"
	# The downloaded Debian packages would be the same.
	ln -s "$caches/debian" "$work/cache/debian"
	export GOCACHE="$work/gocache" BERTH_CACHE="$work/cache"
fi
build "$work/in another place/two" "$work/second" "$@"
diff "$out/SHA256SUMS" "$work/second/SHA256SUMS" >&2 || fail "the second build has other bytes"
(cd "$out" && sha256sum -c --quiet SHA256SUMS) || fail "SHA256SUMS differs from the files"
echo "ok    two builds gave the same bytes"

for archive in "$out"/*.tar.gz; do
	tar -xzf "$archive" -C "$work"
	name=$(basename "$archive" .tar.gz)
	program=$work/$name/berth
	readelf -hlW "$program" >"$work/elf"
	! grep -q INTERP "$work/elf" || fail "$program is not static"
	case $name in
	*-amd64) grep -q 'Machine:.*X86-64' "$work/elf" || fail "$program is for another architecture" ;;
	*-arm64) grep -q 'Machine:.*AArch64' "$work/elf" || fail "$program is for another architecture" ;;
	esac
	! grep -qaF "$work/" "$program" || fail "$program contains the path of its build"
	echo "ok    $name is static"
done
go test -C tools/release -count=1 ./... -release "$out"
