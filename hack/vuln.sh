#!/bin/sh
# Looks for known vulnerabilities in the code that Berth and the programs inside its binary can reach. It uses
# govulncheck in the version of tools/govulncheck/go.mod. It fails if there is one. Arguments are packages to check
# instead.
#
#   VULNDB=URL   the database: an address, or file:///DIRECTORY for a copy. Default https://vuln.go.dev.
#
# Without the database nothing can be checked. The script says so and does not fail, so that a build works offline.
set -eu

cd "$(dirname "$0")/.."
. hack/keep.sh
tool bin/govulncheck govulncheck tools/govulncheck golang.org/x/vuln/cmd/govulncheck

log=$(mktemp)
trap 'rm -f "$log"' EXIT
trap 'exit 1' HUP INT TERM

db=${VULNDB:-https://vuln.go.dev}

# unreachable reports whether a server did not answer. A directory without a database is a mistake.
unreachable() {
	case $db in file:*) return 1 ;; esac
	grep -qE 'fetching vulnerabilities: |creating client: ' "$log"
}

# check DIRECTORY PACKAGE... prints what is found.
check() {
	in=$1
	shift
	bin/govulncheck -C "$in" -db "$db" "$@" >"$log" 2>&1 && return
	code=$?
	if unreachable; then
		echo "vuln: NOT CHECKED: the vulnerability database cannot be reached; next: set VULNDB to a copy"
		cat "$log"
		exit 0
	fi
	cat "$log" >&2
	echo "vuln: govulncheck of $* in $in failed with status $code" >&2
	exit 1
}

if [ $# -gt 0 ]; then
	check . "$@"
else
	check . ./...
	check tools github.com/opencontainers/runc github.com/containernetworking/plugins/plugins/...
fi
echo "vuln: no known vulnerability in the code that is reached"
