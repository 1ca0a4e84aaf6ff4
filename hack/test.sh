#!/bin/sh
# Runs make targets one after the other, and prints how many seconds each took, also when one of them fails.
set -u

cd "$(dirname "$0")/.."
table=$(mktemp)
trap 'rm -f "$table"' EXIT
trap 'exit 1' HUP INT TERM

status=0
began=$(date +%s)
for stage in "$@"; do
	start=$(date +%s)
	if "${MAKE:-make}" --no-print-directory "$stage"; then
		result=ok
	else
		result=FAILED
		status=1
	fi
	printf '%-10s %6d s  %s\n' "$stage" $(($(date +%s) - start)) "$result" >>"$table"
	[ $status = 0 ] || break
done

printf '\nstage      seconds\n'
cat "$table"
printf '%-10s %6d s\n' all $(($(date +%s) - began))
exit $status
