#!/bin/sh
# Runs make targets one after the other, and prints how many seconds each took, also when one of them fails. After a
# failure only "leftovers" still runs: a test that fails must not leave anything on the machine either.
set -u

cd "$(dirname "$0")/.."
table=$(mktemp)
trap 'rm -f "$table"' EXIT
trap 'exit 1' HUP INT TERM

status=0
began=$(date +%s)
for stage in "$@"; do
	[ $status = 0 ] || [ "$stage" = leftovers ] || continue
	start=$(date +%s)
	if "${MAKE:-make}" --no-print-directory "$stage"; then
		result=ok
	else
		result=FAILED
		status=1
	fi
	printf '%-10s %6d s  %s\n' "$stage" $(($(date +%s) - start)) "$result" >>"$table"
done

printf '\nstage      seconds\n'
cat "$table"
printf '%-10s %6d s\n' all $(($(date +%s) - began))
exit $status
