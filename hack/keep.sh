# Sourced by scripts that build a large program once.
#
# keep OUT NAME makes the file OUT from the build NAME, which it keeps in $BERTH_CACHE (default ~/.cache/berth). Where
# there is no such build, keep calls the function build with the path to write. NAME has a hash of all that goes into
# the build.
keep() {
	kept=${BERTH_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/berth}/$2
	if [ ! -e "$kept" ]; then
		echo "$1: building $2 (once, some minutes; kept in $kept)"
		mkdir -p "$(dirname "$kept")"
		new=$(mktemp "$kept.XXXXXX")
		trap 'rm -f "$new"' EXIT
		trap 'exit 1' HUP INT TERM
		build "$new"
		chmod 755 "$new"
		mv "$new" "$kept"
	fi
	mkdir -p "$(dirname "$1")"
	[ "$1" -ef "$kept" ] || ln -f "$kept" "$1" 2>/dev/null || { cp "$kept" "$1.new" && mv "$1.new" "$1"; }
}
