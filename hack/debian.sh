#!/bin/sh
# Makes a complete Debian of the release of this machine, as small as possible, with systemd and CRIU. Prints the path of
# the archive with its root directory. It is kept in $BERTH_CACHE (default ~/.cache/berth), so that the network is used only
# once for each version of this script.
set -eu

. "$(dirname "$0")/keep.sh"
cache=$caches/debian
archive=$cache/root-$(cksum <"$0" | cut -d " " -f 1).tar
if [ ! -e "$archive" ]; then
	mkdir -p "$cache"
	work=$(mktemp -d "$cache/work.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	trap 'exit 1' HUP INT TERM
	. /etc/os-release
	if ! mmdebstrap --variant=minbase --include=systemd-sysv,dbus,procps,criu,iptables "$VERSION_CODENAME" "$work/root.tar" \
		>"$work/log" 2>&1; then
		cat "$work/log" >&2
		exit 1
	fi
	mv "$work/root.tar" "$archive"
fi
echo "$archive"
