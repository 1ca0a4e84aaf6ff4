#!/bin/sh
# Builds bin/golangci-lint in the version that tools/go.mod names.
set -eu

cd "$(dirname "$0")/.."
. hack/keep.sh
tool bin/golangci-lint lint tools github.com/golangci/golangci-lint/v2/cmd/golangci-lint
