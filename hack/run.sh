#!/bin/sh
# Runs the example pod in the foreground, on a temporary root directory, until it is Ready. Shows its timeline and its
# logs, and ends it as Ctrl-C would.
set -eu
cd "$(dirname "$0")/.."

root=$(mktemp -d /tmp/berth-run.XXXXXX)
clean() {
	bin/berth reset --yes --root-dir "$root" || true
	rm -rf "$root"
}
trap clean EXIT
bin/berth run --root-dir "$root" --config hack/run.yaml --image-archive bin/workload.tar --exit-when-ready \
	examples/hello.yaml
