#!/bin/sh
# Checks the workflows in .github with actionlint, in the version of tools/actionlint/go.mod.
set -eu

cd "$(dirname "$0")/.."
. hack/keep.sh
tool bin/actionlint actionlint tools/actionlint github.com/rhysd/actionlint/cmd/actionlint
# shellcheck and pyflakes may be installed, and would make the result depend on the machine.
bin/actionlint -shellcheck= -pyflakes= .github/workflows/*.yml
