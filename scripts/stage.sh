#!/bin/sh
# Runs one stage of `make check` and says how long it took: scripts/stage.sh NAME COMMAND [ARGUMENT ...]
#
# With STAGE_LOG set, also appends "seconds name outcome" to that file. Ends as the command ended, and never before it:
# told to end (SIGTERM) it tells the command, and waits until that has tidied up.
set -u

name=$1
shift
echo "== $name"
start_s=$(date +%s)
# In the background, because a shell does not hear of signals while it waits for a command in the foreground; but what it
# starts there ignores interrupts.
env --default-signal=INT "$@" <&0 &
command=$!
trap 'kill -TERM "$command" 2>/dev/null' TERM
trap : INT
while
    code=0
    wait "$command" || code=$?
    kill -0 "$command" 2>/dev/null
do :; done
took_s=$(($(date +%s) - start_s))
if [ $code -eq 0 ]; then outcome=ok; else outcome="FAILED ($code)"; fi
echo "== $name: $outcome, $took_s s"
if [ -n "${STAGE_LOG:-}" ]; then
    printf '%6d s  %-11s %s\n' "$took_s" "$name" "$outcome" >>"$STAGE_LOG"
fi
exit $code
