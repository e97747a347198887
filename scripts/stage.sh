#!/bin/sh
# Runs one stage of `make check` and says how long it took: scripts/stage.sh NAME COMMAND [ARGUMENT ...]
#
# With STAGE_LOG set, also appends "seconds name outcome" to that file. Ends as the command ended.
set -u

name=$1
shift
echo "== $name"
start_s=$(date +%s)
code=0
"$@" || code=$?
took_s=$(($(date +%s) - start_s))
if [ $code -eq 0 ]; then outcome=ok; else outcome="FAILED ($code)"; fi
echo "== $name: $outcome, $took_s s"
if [ -n "${STAGE_LOG:-}" ]; then
    printf '%6d s  %-10s %s\n' "$took_s" "$name" "$outcome" >>"$STAGE_LOG"
fi
exit $code
