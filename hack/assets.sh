#!/bin/sh
# Builds the programs that the embedded runtime carries (runc, CNI plugins, the holder, the shim). Puts them, compressed,
# into internal/runtime/assets, where go:embed finds them. tools/go.mod has their versions. The shim has the version of
# containerd in go.mod.
#
# A build is kept in $BERTH_CACHE (default ~/.cache/berth) under a hash of everything that goes into it. Only a change of
# that builds again.
#
# "assets.sh amd64|arm64" builds the programs of that architecture, leaves internal/runtime/assets as it is, and prints
# the directory of the build. hack/release.sh uses it. Any other than this machine's needs "hack/setup.sh release".
set -eu

cd "$(dirname "$0")/.."
. hack/keep.sh
out=internal/runtime/assets
cni=github.com/containernetworking/plugins/plugins

native=$(go env GOARCH)
export GOARCH="${1:-$native}"
gcc=gcc
seccomp=
if [ "$GOARCH" != "$native" ]; then
	case $GOARCH in
	arm64) gcc=aarch64-linux-gnu-gcc ;;
	*)
		echo "assets: cannot build for $GOARCH on $native" >&2
		exit 2
		;;
	esac
	seccomp=$(sh hack/unpack.sh "seccomp-$GOARCH")/usr
fi

key=$({
	cat tools/go.mod tools/go.sum internal/runtime/holder/holder.c hack/assets.sh
	file='{{$.Dir}}/{{.}}{{"\n"}}'
	files="{{range \$.GoFiles}}$file{{end}}{{range \$.CgoFiles}}$file{{end}}"
	go list -deps -f "{{with .Module}}{{if .Main}}$files{{end}}{{end}}" ./internal/runtime/shim |
		sed '/^$/d' | sort | xargs -d '\n' cat
	go list -deps -f '{{with .Module}}{{.Path}} {{.Version}}{{end}}' ./internal/runtime/shim | sort -u
	go version
	$gcc -dumpfullversion -dumpmachine
	if [ -n "$seccomp" ]; then
		find "$seccomp" -name libseccomp.a -exec sha256sum {} + | cut -d' ' -f1
	else
		dpkg-query -W libseccomp-dev 2>/dev/null || true
	fi
} | sha256sum | cut -c1-16)

[ -n "${1-}" ] || [ "$(cat $out/stamp 2>/dev/null)" != "$key" ] || exit 0

cache=$caches/assets
if [ ! -e "$cache/$key/stamp" ]; then
	echo "assets: building runc, CNI plugins, the holder and the shim for $GOARCH (once; kept in $cache)" >&2
	mkdir -p "$cache"
	build=$(mktemp -d "$cache/build.XXXXXX")
	trap 'rm -rf "$build"' EXIT
	trap 'exit 1' HUP INT TERM

	if [ -n "$seccomp" ]; then
		export CC=$gcc CGO_CFLAGS="-O2 -isystem $seccomp/include" \
			CGO_LDFLAGS="-O2 -L$(dirname "$(find "$seccomp" -name libseccomp.a)")"
	fi
	# runc's own Makefile leaves the documentation of its commands out too: a program with it compiles the regular
	# expressions of a Markdown parser at each start.
	CGO_ENABLED=1 go build -C tools -trimpath -tags 'netgo osusergo seccomp urfave_cli_no_docs' \
		-ldflags '-s -w -buildid= -linkmode external -extldflags "-static"' -o "$build/runc" github.com/opencontainers/runc
	# For CNI configurations of the machine, and for pods of earlier versions.
	for plugin in main/bridge ipam/host-local meta/portmap; do
		CGO_ENABLED=0 go build -C tools -trimpath -ldflags '-s -w -buildid=' -o "$build/${plugin#*/}" "$cni/$plugin"
	done
	# containerd builds its own shim with the same tag.
	CGO_ENABLED=1 go build -trimpath -buildvcs=false -tags 'netgo osusergo seccomp no_grpc' \
		-ldflags '-s -w -buildid= -linkmode external -extldflags "-static"' \
		-o "$build/containerd-shim-runc-v2" ./internal/runtime/shim
	$gcc -Os -Wall -Wextra -Werror -ffreestanding -fno-stack-protector -fno-asynchronous-unwind-tables \
		-static -nostdlib -s -Wl,--build-id=none -Wl,-z,noseparate-code \
		-o "$build/holder" internal/runtime/holder/holder.c

	(
		cd "$build"
		sums=$(sha256sum -- *)
		# A window of 1 MiB: the first agent of a root directory decodes in half the time that 8 MiB take, for 1 % more.
		zstd -q --rm -19 --zstd=wlog=20 -T0 -- *
		echo "$sums" >SHA256SUMS
		echo "$key" >stamp
	)
	# If another process has built the same meanwhile, its result is used.
	mv -T "$build" "$cache/$key" 2>/dev/null || [ -e "$cache/$key/stamp" ]
fi

if [ -n "${1-}" ]; then
	echo "$cache/$key"
	exit 0
fi
rm -f $out/*.zst $out/SHA256SUMS $out/stamp
cp "$cache/$key"/*.zst "$cache/$key/SHA256SUMS" $out/
cp "$cache/$key/stamp" $out/stamp
