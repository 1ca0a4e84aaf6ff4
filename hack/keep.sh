# Sourced by scripts that build or download something large once.

# Where it is kept.
caches=${BERTH_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/berth}

# keep OUT NAME makes the file OUT from the build NAME, which it keeps in $caches. Where there is no such build, keep
# calls the function build with the path to write. NAME has a hash of all that goes into the build.
keep() {
	kept=$caches/$2
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

# tool OUT NAME DIRECTORY PACKAGE makes and keeps a program of the Go module in DIRECTORY in the same way.
tool() {
	directory=$3 package=$4
	build() { go build -C "$directory" -trimpath -ldflags '-s -w' -o "$1" "$package"; }
	# A linter reads code of its own Go version and older ones, so that version is part of the hash.
	keep "$1" "$2-$({
		cat "$directory/go.mod" "$directory/go.sum"
		go version
	} | sha256sum | cut -c1-16)"
}
