#!/bin/sh
# Runs make targets one after the other, those joined by a comma at the same time, and prints how many seconds each took
# and which part of that time the processors were busy, also when one of them fails. After a failure only "leftovers"
# still runs: a test that fails must not leave anything on the machine either.
set -u

cd "$(dirname "$0")/.."
table=$(mktemp)
trap 'rm -f "$table"' EXIT
trap 'exit 1' HUP INT TERM

# ticks prints how long the processors have been busy and how long idle (or waiting for a disk), from the first line of
# /proc/stat, proc(5).
ticks() { awk '{ print $2 + $3 + $4 + $7 + $8, $5 + $6; exit }' /proc/stat; }

status=0
began=$(date +%s)
for stage in "$@"; do
	[ $status = 0 ] || [ "$stage" = leftovers ] || continue
	start=$(date +%s)
	before=$(ticks)
	if "${MAKE:-make}" --no-print-directory -j $(echo "$stage" | tr , ' '); then
		result=ok
	else
		result=FAILED
		status=1
	fi
	busy=$(echo "$before $(ticks)" | awk '{ busy = $3 - $1; all = busy + $4 - $2; print all ? int(100 * busy / all) : 0 }')
	printf '%-14s %6d s  %3d %%  %s\n' "$stage" $(($(date +%s) - start)) "$busy" "$result" >>"$table"
done

printf '\nstage          seconds   busy\n'
cat "$table"
printf '%-14s %6d s\n' all $(($(date +%s) - began))
exit $status
