#!/bin/sh
# Builds the current Docker Engine for tests: bin/engine/dockerd, in the version of tools/dockerd/go.mod. Puts beside it
# the runc that the embedded runtime carries (hack/assets.sh), which tests use for the containers of this Engine.
set -eu

cd "$(dirname "$0")/.."
. hack/keep.sh
module=github.com/moby/moby/v2
out=bin/engine

# Without cgo, dockerd lacks the log driver journald, which no test uses.
build() {
	version=$(go list -C tools/dockerd -m -f '{{.Version}}' $module)
	CGO_ENABLED=0 go build -C tools/dockerd -trimpath -o "$1" \
		-ldflags "-s -w -X $module/dockerversion.Version=${version#v}" $module/cmd/dockerd
}

keep $out/dockerd "dockerd-$(cat tools/dockerd/go.mod tools/dockerd/go.sum | sha256sum | cut -c1-16)"
zstd -q -d -f internal/runtime/assets/runc.zst -o $out/runc.new
chmod 755 $out/runc.new
mv $out/runc.new $out/runc
