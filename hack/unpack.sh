#!/bin/sh
# Downloads Debian packages and unpacks them into one directory, without installing them. "kernel" is the current cloud
# kernel, and "kernel-arm64" the one for arm64; "systemd" the service manager with its bus, "node-exporter" Prometheus'
# node exporter with its libraries, "tools" the client of iSCSI, "seccomp-arm64" libseccomp for arm64. Prints the
# directory. It is kept in $BERTH_CACHE (default ~/.cache/berth), so that the network is used only once.
set -eu

architecture=
# The meta-package depends on the current kernel.
kernel() { apt-cache depends "linux-image-cloud-$1" 2>/dev/null | sed -n 's/.*Depends: \(linux-image-[^ ]*\).*/\1/p'; }
case ${1-} in
kernel) packages() { kernel amd64; } ;;
kernel-arm64)
	packages() { kernel arm64; }
	architecture=arm64
	;;
systemd) packages() { echo systemd libsystemd-shared dbus dbus-bin dbus-daemon dbus-system-bus-common libapparmor1 libdbus-1-3 libexpat1 libip4tc2 libkmod2 libseccomp2; } ;;
node-exporter) packages() { echo prometheus-node-exporter libc6; } ;;
tools) packages() { echo open-iscsi libopeniscsiusr libisns0; } ;;
seccomp-arm64)
	packages() { echo libseccomp-dev; }
	architecture=arm64
	;;
*)
	echo "usage: $0 kernel|kernel-arm64|systemd|node-exporter|tools|seccomp-arm64" >&2
	exit 2
	;;
esac

. "$(dirname "$0")/keep.sh"
cache=$caches/debian
if [ ! -e "$cache/$1" ]; then
	mkdir -p "$cache"
	work=$(mktemp -d "$cache/work.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	trap 'exit 1' HUP INT TERM
	cd "$work"
	if [ -n "$architecture" ]; then
		# Lists of another architecture are kept apart, so that apt's own ones stay as they are.
		mkdir -p apt/lists/partial apt/cache/archives/partial
		printf '%s "%s";\n' APT::Architecture "$architecture" APT::Architectures "$architecture" \
			Dir::State::Lists "$work/apt/lists" Dir::Cache "$work/apt/cache" Dir::State::status /dev/null >apt/conf
		export APT_CONFIG="$work/apt/conf"
	fi
	names=$(packages)
	if [ -z "$names" ] || ! apt-get download $names >log 2>&1; then
		apt-get update >log 2>&1 || { cat log >&2; exit 1; }
		apt-get download $(packages) >log 2>&1 || { cat log >&2; exit 1; }
	fi
	for package in ./*.deb; do
		dpkg -x "$package" unpacked
	done
	# If another process has downloaded the same meanwhile, its result is used.
	mv -T unpacked "$cache/$1" 2>/dev/null || [ -e "$cache/$1" ]
fi
echo "$cache/$1"
