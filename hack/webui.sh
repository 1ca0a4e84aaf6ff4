#!/bin/sh
# Builds the web page of "berth ui" from web, and puts it, compressed, into internal/ui/assets, where go:embed finds it.
# tools/webui bundles it with the Go API of esbuild. It needs no Node.js.
#
# A build is kept in $BERTH_CACHE (default ~/.cache/berth) under a hash of everything that goes into it. Only a change of
# that builds again.
set -eu

cd "$(dirname "$0")/.."
. hack/keep.sh
out=internal/ui/assets

key=$({
	cat hack/webui.sh
	find web tools/webui -type f | LC_ALL=C sort | xargs sha256sum
	go version
} | sha256sum | cut -c1-16)
[ "$(cat $out/stamp 2>/dev/null)" != "$key" ] || exit 0

cache=$caches/webui
if [ ! -e "$cache/$key/stamp" ]; then
	echo "webui: building the web page (once; kept in $cache)" >&2
	mkdir -p "$cache"
	build=$(mktemp -d "$cache/build.XXXXXX")
	trap 'rm -rf "$build"' EXIT
	trap 'exit 1' HUP INT TERM
	web=$PWD/web
	go run -C tools/webui . "$web" "$build"
	echo "$key" >"$build/stamp"
	# If another process has built the same meanwhile, its result is used.
	mv -T "$build" "$cache/$key" 2>/dev/null || [ -e "$cache/$key/stamp" ]
fi

rm -f $out/*.gz $out/stamp
cp "$cache/$key"/*.gz $out/
cp "$cache/$key/stamp" $out/stamp
