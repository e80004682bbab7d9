#!/bin/sh
# Every night: what is new since the last night, and on Sundays a comparison of everything with the log.
#   examples/nightly_export.sh STORE DIR      (crontab: 15 2 * * * nightly_export.sh /data/rocketmq/store /lake/messages)
set -eu
store=$1
output=$2

status=0
rmqtool export "$store" --output "$output" --mode incremental --engine local --limit-rate 50MiB --json >"$output.last.json" || status=$?
case $status in
0) ;;
3) echo "warning: something could not be read, see skipped in $output/_manifest.json" >&2 ;;
*) exit "$status" ;; # nothing was changed; the next night goes on where this one would have
esac
python3 - "$output.last.json" <<'PYTHON'
import json, sys
result = json.load(open(sys.argv[1]))["result"]
print(f"new: {result['last_run']['rows']} messages; in all: {result['rows']} in {result['files_count']} files")
PYTHON

if [ "${CHECK:-$(date +%u)}" = 7 ]; then
    rmqtool export "$store" --check "$output" --quiet
fi
