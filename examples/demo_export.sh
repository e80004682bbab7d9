#!/bin/sh
# The end of `make demo`: an export of STORE and a question to it. With Java 17 or later it is Spark that does both;
# pyspark is installed once then. Without, processes of this machine export, and there is no Spark SQL.
#   examples/demo_export.sh BIN STORE         BIN: the folder of rmqtool and its python
set -eu
bin=$1
store=$2
output=$(mktemp -d)/messages
trap 'rm -rf "$(dirname "$output")"' EXIT

show() {
    printf '\n$ %s\n' "$*"
    program=$1
    shift
    "$bin/$program" "$@"
}

if ! "$bin/python" -c 'from rmqtool.spark.gateway import check_java; check_java("4.2")' 2>/dev/null; then
    show rmqtool export "$store" --output "$output" --engine local
    show rmqtool export "$store" --check "$output"
    printf '\nNo Java 17 or later is here: with it this demo would export with Spark and ask Spark SQL.\n'
    exit 0
fi
if ! "$bin/python" -c 'import pyspark' 2>/dev/null; then
    printf '\nInstalling Spark, some 500 MB (once) ...\n'
    "$bin/python" -m pip install --quiet --disable-pip-version-check --editable '.[spark]'
fi
show rmqtool export "$store" --output "$output"
show rmqtool export "$store" --check "$output"
printf '\n$ python examples/spark_sql.py %s\n' "$output"
"$bin/python" examples/spark_sql.py "$output" 2>"$output.log" || { cat "$output.log" >&2; exit 1; }
