#!/bin/sh
# Runs the fuzz targets of all packages, one after the other, and writes bin/fuzz/report.txt: a line for each target.
#
#   FUZZTIME=10m     how long each target runs. Without it, all targets share FUZZTOTAL seconds (240) evenly.
#   FUZZ=Decode      a regular expression: runs only the targets "package FuzzName" that match.
#   FUZZWORKERS=2    processes at a time.
#
# Inputs that reached new code are kept in $BERTH_CACHE/fuzz (default ~/.cache/berth/fuzz), so that each run goes on
# from the one before. An input that fails is written to testdata/fuzz of the package. "go test" runs it again from then
# on, so commit it with the fix.
set -eu

cd "$(dirname "$0")/.."
top=$PWD
out=$top/bin/fuzz
workers=${FUZZWORKERS:-2}
corpus=${BERTH_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/berth}/fuzz
mkdir -p "$out" "$corpus"

# A worker that needs more address space than this (KiB) fails its target: input must not choose how much memory is
# used.
limit=8388608

# Only packages with a function that matches are built, and each of them lists its targets.
packages=$(grep -roE '^func Fuzz\w+' --include='*_test.go' cmd internal test | sed 's|/[^/]*:func | |' |
	grep -E "${FUZZ:-.}" | cut -d ' ' -f 1 | sort -u)
targets=
for package in $packages; do
	binary=$out/$(echo "$package" | tr / -).test
	# Coverage guides the inputs through Berth's own code. Libraries are left as they are: so they need no second build.
	go test -c -gcflags 'github.com/berth-run/berth/...=-d=libfuzzer' -o "$binary" "./$package"
	for name in $(cd "$package" && "$binary" -test.list '^Fuzz'); do
		echo "$package $name" | grep -qE "${FUZZ:-.}" && targets="$targets $package:$name"
	done
done
set -- $targets
[ $# -gt 0 ] || {
	echo "fuzz: no target matches ${FUZZ:-.}" >&2
	exit 1
}

# failed judges the log of a target that failed. Up to Go 1.26 a target may fail with the end of its time and no input
# (go.dev/issue/75804).
failed() {
	if grep -q '^ *context deadline exceeded$' "$log" && ! grep -qE 'Failing input|panic|fatal error' "$log"; then
		return
	fi
	result=FAILED
	status=1
	cat "$log"
}

share=$((${FUZZTOTAL:-240} * 1000 / $#))
[ "$share" -ge 1000 ] || share=1000
each=${FUZZTIME:-${share}ms}
echo "fuzz: $# targets, $each each, $workers workers"

status=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT
trap 'exit 1' HUP INT TERM
: >"$out/report.txt"
for target in "$@"; do
	package=${target%:*}
	name=${target#*:}
	binary=$out/$(echo "$package" | tr / -).test
	start=$(date +%s)
	result=ok
	(
		cd "$package"
		ulimit -v $limit
		exec "$binary" -test.run '^$' -test.fuzz "^$name\$" -test.fuzztime "$each" -test.parallel "$workers" \
			-test.fuzzcachedir "$corpus/$package" -test.fuzzminimizetime 1s
	) >"$log" 2>&1 || failed
	runs=$(sed -n 's/.*execs: \([0-9]*\).*/\1/p' "$log" | tail -1)
	new=$(sed -n 's/.*total: \([0-9]*\).*/\1/p' "$log" | tail -1)
	printf '%-44s %-24s %5d s %11s inputs %6s kept  %s\n' \
		"$package" "$name" $(($(date +%s) - start)) "${runs:-0}" "${new:-0}" $result | tee -a "$out/report.txt"
done
exit $status
