#!/bin/sh
# Installs the Debian packages that building and testing Berth needs besides Go. "setup.sh release" also installs those
# of hack/release.sh, and "setup.sh arm64" those that build and emulate for arm64. Does nothing when all of them are
# installed. Starts no service.
set -eu

packages="
apparmor
ca-certificates
chromium-headless-shell
curl
dbus-daemon
dmsetup
e2fsprogs
gcc
git
iptables
libc6-dev
libseccomp-dev
make
mmdebstrap
nftables
procps
qemu-system-x86
xfsprogs
zstd
"
# The external runtime that the test scripts use. Its package depends on its own runc.
packages="$packages containerd"
# The Docker Engine that tests run.
packages="$packages docker.io"

case ${1-} in
"") ;;
# The compiler for arm64 brings its own libc.
release) packages="$packages gcc-aarch64-linux-gnu libc6-dev-arm64-cross" ;;
arm64) packages="$packages gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-system-arm" ;;
*)
	echo "usage: $0 [release|arm64]" >&2
	exit 2
	;;
esac

missing=
for package in $packages; do
	status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) || status=
	[ "$status" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" != 0 ]; then
	echo "setup: run as root, or install these packages:$missing" >&2
	exit 1
fi

# Debian asks policy-rc.d whether the service of a package may start; this one says no. An existing one stays.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod 755 "$policy"
	trap 'rm -f "$policy"' EXIT
	trap 'exit 1' HUP INT TERM
fi

echo "setup: installing$missing"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
if ! { apt-get update && apt-get install -y --no-install-recommends $missing; } >"$log" 2>&1; then
	cat "$log" >&2
	rm -f "$log"
	echo "setup: apt-get failed, see above" >&2
	exit 1
fi
rm -f "$log"
