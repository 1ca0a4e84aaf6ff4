#!/bin/sh
# Builds bin/cluster, the control plane that tests run against (test/cluster).
#
# It takes minutes. A build is kept in $BERTH_CACHE (default ~/.cache/berth) under a hash of its sources, so that a machine
# builds each version once.
set -eu

cd "$(dirname "$0")/.."
out=bin/cluster
version=1.36.3 # the version of k8s.io/kubernetes in test/cluster/go.mod, which the servers report

grep -q "k8s.io/kubernetes v$version\$" test/cluster/go.mod || {
	echo "cluster: hack/cluster.sh says $version, test/cluster/go.mod another version" >&2
	exit 1
}
key=$(cat test/cluster/main.go test/cluster/go.mod test/cluster/go.sum | sha256sum | cut -c1-16)
kept=${BERTH_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/berth}/cluster-$key

if [ ! -e "$kept" ]; then
	echo "cluster: building Kubernetes $version (once, some minutes; kept in $kept)"
	mkdir -p "$(dirname "$kept")"
	build=$(mktemp "$kept.XXXXXX")
	trap 'rm -f "$build"' EXIT
	trap 'exit 1' HUP INT TERM
	minor=${version#*.}
	say=k8s.io/component-base/version
	go build -C test/cluster -trimpath -o "$build" -ldflags "-s -w \
		-X $say.gitVersion=v$version -X $say.gitMajor=${version%%.*} -X $say.gitMinor=${minor%%.*}" .
	chmod 755 "$build"
	mv "$build" "$kept"
fi

mkdir -p bin
[ "$out" -ef "$kept" ] || ln -f "$kept" "$out" 2>/dev/null || { cp "$kept" "$out.new" && mv "$out.new" "$out"; }
