#!/bin/sh
# Checks the workflows in .github with actionlint, in the version of tools/actionlint/go.mod.
set -eu

cd "$(dirname "$0")/.."
. hack/keep.sh
build() { go build -C tools/actionlint -trimpath -ldflags '-s -w' -o "$1" github.com/rhysd/actionlint/cmd/actionlint; }
keep bin/actionlint "actionlint-$({
	cat tools/actionlint/go.mod tools/actionlint/go.sum
	go version
} | sha256sum | cut -c1-16)"
# shellcheck and pyflakes may be installed, and would make the result depend on the machine.
bin/actionlint -shellcheck= -pyflakes= .github/workflows/*.yml
