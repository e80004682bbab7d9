#!/bin/sh
# Figures of a store for the textfile collector of Prometheus' node exporter: one file for each command, replaced as a whole.
#   textfile_collector.sh inspect STORE DIRECTORY           (each minute: sizes, offsets, lag)
#   textfile_collector.sh verify STORE DIRECTORY -j 2       (each night: verdict, findings, what a start would lose)
set -eu
command=$1
store=$2
directory=$3
shift 3

new=$(mktemp "$directory/.rmqtool-$command.XXXXXX") # of a name that the collector does not read
trap 'rm -f "$new"' EXIT
status=0
rmqtool "$command" "$store" --format openmetrics --quiet "$@" >"$new" || status=$?
case $status in
0 | 1 | 3) ;;        # done; findings are among the figures
*) exit "$status" ;; # the old file stays: rmqtool_run_timestamp_seconds says how old it is
esac
chmod 644 "$new"
mv "$new" "$directory/rmqtool-$command.prom"
trap - EXIT
