#!/bin/sh
# Makes a .deb and an .rpm from a program that has been built, with nfpm in the version of tools/release/go.mod.
#
#	package.sh ARCH VERSION DIR OUT
#
# ARCH is amd64 or arm64. DIR has the program berth and its list of parts berth.cdx.json; the script adds the unit, the
# manual pages and the completions there. The packages are written to the directory OUT. Dates in them are
# SOURCE_DATE_EPOCH (default: the date of the last commit).
set -eu

cd "$(dirname "$0")/.."
. hack/keep.sh
export ARCH="$1" VERSION="$2" STAGE="$3"
out=$4
export MAINTAINER="${MAINTAINER:-The Berth authors <berth@localhost>}"
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}"

build() { go build -C tools/release -trimpath -ldflags '-s -w' -o "$1" github.com/goreleaser/nfpm/v2/cmd/nfpm; }
keep bin/nfpm "nfpm-$({
	cat tools/release/go.mod tools/release/go.sum
	go version
} | sha256sum | cut -c1-16)"

go run ./test/mkpages "$STAGE"
# The unit of "berth init", for the program's place in packages.
sed 's|/usr/local/bin/berth|/usr/bin/berth|' internal/cli/setup/berth.service >"$STAGE/berth.service"
mkdir -p "$out"
for packager in deb rpm; do
	bin/nfpm package --config packaging/nfpm.yaml --packager $packager --target "$out/" >/dev/null
done
