#!/bin/sh
# Builds the fuzz targets of all packages, runs several at a time, and writes bin/fuzz/report.txt: a line for each
# target.
#
#   FUZZTIME=10m     how long each target runs (30s).
#   FUZZ=Decode      a regular expression: runs only the targets "package FuzzName" that match.
#   FUZZJOBS=2       how many targets run at a time (20), each in one process.
#
# Inputs that reached new code are kept in $BERTH_CACHE/fuzz (default ~/.cache/berth/fuzz), so that each run goes on
# from the one before. An input that fails is written to testdata/fuzz of the package. "go test" runs it again from then
# on, so commit it with the fix.
set -eu

cd "$(dirname "$0")/.."
. hack/keep.sh
top=$PWD
out=$top/bin/fuzz
jobs=${FUZZJOBS:-20}
each=${FUZZTIME:-30s}
corpus=$caches/fuzz

# A process that needs more address space than this (KiB) fails its target: input must not choose how much memory is
# used.
limit=8388608

binary() { echo "$out/$(echo "$1" | tr / -).test"; }

# build builds the targets of a package.
build() {
	# Coverage guides the inputs through Berth's own code. Libraries are left as they are: so they need no second build.
	nice go test -c -gcflags 'github.com/berth-run/berth/...=-d=libfuzzer' -o "$(binary "$1")" "./$1"
}

# failed judges the log of a target that failed. Up to Go 1.26 a target may fail with the end of its time and no input
# (go.dev/issue/75804).
failed() {
	if grep -q '^ *context deadline exceeded$' "$log" && ! grep -qE 'Failing input|panic|fatal error' "$log"; then
		return
	fi
	result=FAILED
	cat "$log"
}

# run runs a target, named PACKAGE:TARGET.
run() {
	package=${1%:*}
	name=${1#*:}
	log=$out/$name.$$.log
	start=$(date +%s)
	result=ok
	# An input that takes 10 s fails its target, so targets run with the priority of all other work.
	(
		cd "$package"
		ulimit -v $limit
		exec "$(binary "$package")" -test.run '^$' -test.fuzz "^$name\$" -test.fuzztime "$each" -test.parallel 1 \
			-test.fuzzcachedir "$corpus/$package" -test.fuzzminimizetime 1s
	) >"$log" 2>&1 || failed
	runs=$(sed -n 's/.*execs: \([0-9]*\).*/\1/p' "$log" | tail -1)
	new=$(sed -n 's/.*total: \([0-9]*\).*/\1/p' "$log" | tail -1)
	rm "$log"
	printf '%-44s %-24s %5d s %11s inputs %6s kept  %s\n' \
		"$package" "$name" $(($(date +%s) - start)) "${runs:-0}" "${new:-0}" $result | tee -a "$out/report.txt"
	[ $result = ok ]
}

# The script starts itself for each package and for each target.
if [ $# = 2 ]; then
	"$1" "$2"
	exit
fi

mkdir -p "$out" "$corpus"
# At the end of its time a target is killed, with the directories that its test has made.
TMPDIR=$(mktemp -d)
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT
start=$(date +%s)
# Only packages with a function that matches are built, and each of them lists its targets.
packages=$(grep -roE '^func Fuzz\w+' --include='*_test.go' cmd internal test | sed 's|/[^/]*:func | |' |
	grep -E "${FUZZ:-.}" | cut -d ' ' -f 1 | sort -u)
[ -z "$packages" ] || echo "$packages" | xargs -P 2 -n 1 sh hack/fuzz.sh build
targets=
for package in $packages; do
	for name in $(cd "$package" && "$(binary "$package")" -test.list '^Fuzz'); do
		echo "$package $name" | grep -qE "${FUZZ:-.}" && targets="$targets $package:$name"
	done
done
set -- $targets
[ $# -gt 0 ] || {
	echo "fuzz: no target matches ${FUZZ:-.}" >&2
	exit 1
}
echo "fuzz: built in $(($(date +%s) - start)) s; $# targets, $each each, $jobs at a time"

: >"$out/report.txt"
start=$(date +%s)
status=0
printf '%s\n' "$@" | xargs -P "$jobs" -n 1 sh hack/fuzz.sh run || status=1
sort -o "$out/report.txt" "$out/report.txt"
echo "fuzz: ran for $(($(date +%s) - start)) s, $(awk '{n += $5} END {print n}' "$out/report.txt") inputs"
exit $status
