#!/bin/sh
# Runs make targets one after the other, those joined by a comma at the same time, and prints how many seconds each took
# and which part of that time the processors were busy, also when one of them fails. A target that begins with "beside:"
# runs beside those after it, and prints what it has to say at its end. After a failure only "leftovers" still runs: a
# test that fails must not leave anything on the machine either. "leftovers" waits for all others.
set -u

cd "$(dirname "$0")/.."
work=$(mktemp -d)
table=$work/table
beside=
trap 'rm -rf "$work"' EXIT
trap '[ -z "$beside" ] || kill $(family "$beside") 2>/dev/null; exit 1' HUP INT TERM

# family prints the ID of a process and those of all that it has started. A shell's background jobs ignore the interrupt
# of the terminal, so they are ended one by one.
family() {
	echo "$1"
	for child in $(cat "/proc/$1/task/$1/children" 2>/dev/null); do family "$child"; done
}

# ticks prints how long the processors have been busy and how long idle (or waiting for a disk), from the first line of
# /proc/stat, proc(5).
ticks() { awk '{ print $2 + $3 + $4 + $7 + $8, $5 + $6; exit }' /proc/stat; }

# run runs the targets of a stage and adds a line to the table.
run() {
	start=$(date +%s)
	before=$(ticks)
	result=ok
	"${MAKE:-make}" --no-print-directory -j $(echo "$1" | tr , ' ') || result=FAILED
	busy=$(echo "$before $(ticks)" | awk '{ busy = $3 - $1; all = busy + $4 - $2; print all ? int(100 * busy / all) : 0 }')
	printf '%-14s %6d s  %3d %%  %s\n' "$1" $(($(date +%s) - start)) "$busy" "$result" >>"$table"
	[ $result = ok ]
}

# join waits for the target that runs beside the others.
join() {
	[ -n "$beside" ] || return
	wait "$beside" || status=1
	beside=
	cat "$work/beside"
}

status=0
began=$(date +%s)
for stage in "$@"; do
	case $stage in leftovers | beside:*) join ;; esac
	[ $status = 0 ] || [ "$stage" = leftovers ] || continue
	case $stage in
	beside:*)
		run "${stage#beside:}" >"$work/beside" 2>&1 &
		beside=$!
		;;
	*) run "$stage" || status=1 ;;
	esac
done
join

printf '\nstage          seconds   busy\n'
cat "$table"
printf '%-14s %6d s\n' all $(($(date +%s) - began))
exit $status
