#!/bin/sh
# Builds two versions of the .deb, 1.0.0 and 1.1.0, from bin/berth into the directory OUT, for the script packaged.
#
#	build.sh OUT
set -eu

cd "$(dirname "$0")/../.."
mkdir -p "$1"
out=$(realpath "$1")
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
trap 'exit 1' HUP INT TERM
rm -f "$out"/berth[_-]*
cp bin/berth "$stage/"
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
for version in 1.0.0 1.1.0; do
	go run -C tools/release ./sbom -version $version -seccomp "$(dpkg-query -W -f '${Version}' libseccomp-dev)" \
		"$stage/berth" >"$stage/berth.cdx.json"
	sh hack/package.sh "$(go env GOARCH)" $version "$stage" "$out"
done
rm -f "$out"/*.rpm
