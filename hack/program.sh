#!/bin/sh
# Builds the static program berth for an architecture, which may be another one than this machine's. It needs the web
# page (hack/webui.sh) and, for another architecture, the packages of "setup.sh release".
#
#	program.sh ARCH OUT
#
# ARCH is amd64 or arm64. Writes the program to the file OUT. Prints the directory of the programs that it carries,
# which are compressed (hack/assets.sh).
set -eu

cd "$(dirname "$0")/.."
out=$(realpath "$2")
assets=$(sh hack/assets.sh "$1")

# The build sees the programs of its architecture in place of those in internal/runtime/assets.
overlay=$(mktemp)
trap 'rm -f "$overlay"' EXIT
trap 'exit 1' HUP INT TERM
embedded=$PWD/internal/runtime/assets
comma=
for file in "$assets"/*; do
	printf '%s "%s/%s": "%s"' "$comma" "$embedded" "${file##*/}" "$file"
	comma=,
done | sed '1s/^/{"Replace": {/; $s/$/}}/' >"$overlay"
CGO_ENABLED=0 GOARCH=$1 go build -overlay "$overlay" -ldflags '-s -w -buildid=' -o "$out" ./cmd/berth
echo "$assets"
