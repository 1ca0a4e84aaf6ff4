#!/bin/sh
# Builds bin/golangci-lint in the version that tools/go.mod names.
set -eu

cd "$(dirname "$0")/.."
. hack/keep.sh
lint=github.com/golangci/golangci-lint/v2

build() { go build -C tools -trimpath -ldflags '-s -w' -o "$1" $lint/cmd/golangci-lint; }

# A linter reads code of its own Go version and older ones, so that version is part of the hash.
keep bin/golangci-lint "lint-$({
	cat tools/go.mod tools/go.sum
	go version
} | sha256sum | cut -c1-16)"
