#!/bin/sh
# Downloads Debian's current cloud kernel and unpacks it, without installing it. Prints the directory, which is
# kept in $BERTH_CACHE (default ~/.cache/berth): once there, nothing is asked of the network.
set -eu

cache=${BERTH_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache/berth}}/kernel
for dir in "$cache"/linux-image-*; do
	if [ -e "$dir" ]; then
		echo "$dir"
		exit 0
	fi
done

mkdir -p "$cache"
work=$(mktemp -d "$cache/work.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
cd "$work"

# The meta-package depends on the kernel of the day.
find_package() { apt-cache depends linux-image-cloud-amd64 2>/dev/null | sed -n 's/.*Depends: \(linux-image-[^ ]*\).*/\1/p'; }
package=$(find_package)
if [ -z "$package" ] || ! apt-get download "$package" >log 2>&1; then
	apt-get update >log 2>&1 || { cat log >&2; exit 1; }
	package=$(find_package)
	apt-get download "$package" >log 2>&1 || { cat log >&2; exit 1; }
fi
dpkg -x ./*.deb unpacked
# Another download of the same may have been faster.
mv -T unpacked "$cache/$package" 2>/dev/null || [ -e "$cache/$package/boot" ]
echo "$cache/$package"
