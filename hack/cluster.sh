#!/bin/sh
# Builds bin/cluster, the control plane that tests run against (test/cluster).
set -eu

cd "$(dirname "$0")/.."
. hack/keep.sh
version=1.36.3 # the version of k8s.io/kubernetes in test/cluster/go.mod, which the servers report

grep -q "k8s.io/kubernetes v$version\$" test/cluster/go.mod || {
	echo "cluster: hack/cluster.sh says $version, test/cluster/go.mod another version" >&2
	exit 1
}

build() {
	minor=${version#*.}
	say=k8s.io/component-base/version
	go build -C test/cluster -trimpath -o "$1" -ldflags "-s -w \
		-X $say.gitVersion=v$version -X $say.gitMajor=${version%%.*} -X $say.gitMinor=${minor%%.*}" .
}

keep bin/cluster "cluster-$(cat test/cluster/main.go test/cluster/go.mod test/cluster/go.sum | sha256sum | cut -c1-16)"
