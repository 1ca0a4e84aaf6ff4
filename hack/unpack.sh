#!/bin/sh
# Downloads Debian packages and unpacks them into one directory, without installing them. "kernel" is the current cloud
# kernel, "systemd" the service manager with its bus. Prints the directory. It is kept in $BERTH_CACHE (default
# ~/.cache/berth), so that the network is used only once.
set -eu

case ${1-} in
# The meta-package depends on the current kernel.
kernel) packages() { apt-cache depends linux-image-cloud-amd64 2>/dev/null | sed -n 's/.*Depends: \(linux-image-[^ ]*\).*/\1/p'; } ;;
systemd) packages() { echo systemd libsystemd-shared dbus dbus-bin dbus-daemon dbus-system-bus-common libapparmor1 libdbus-1-3 libexpat1 libip4tc2 libkmod2 libseccomp2; } ;;
*)
	echo "usage: $0 kernel|systemd" >&2
	exit 2
	;;
esac

cache=${BERTH_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache/berth}}/debian
if [ ! -e "$cache/$1" ]; then
	mkdir -p "$cache"
	work=$(mktemp -d "$cache/work.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	trap 'exit 1' HUP INT TERM
	cd "$work"
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
