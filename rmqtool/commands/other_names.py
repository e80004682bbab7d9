"""What other tools, and people, call our commands and options."""

from __future__ import annotations

from collections.abc import Mapping

_COMMANDS: Mapping[str, str] = {
    "verify STORE": "check chk fsck scrub test validate lint audit diagnose",
    "status STORE": "info stat stats state health doctor summary df disk ps ping brokerstatus clusterlist",
    "status STORE --watch": "top watch monitor",
    "inspect STORE": "ls list show tree topics queues overview topiclist topicstatus",
    "inspect STORE --scan": "du count histogram",
    "inspect STORE/commitlog": "cat dump print view messages printmsg read head",
    "inspect STORE/commitlog --follow": "tail follow",
    "query STORE --group GROUP": "lag groups group consumers consumer offsets consumerprogress",
    "query STORE --key KEY --topic TOPIC": "find search lookup key message get querymsgbykey",
    "query STORE --body-contains TEXT": "grep",
    "query STORE --id ID": "id msgid querymsgbyid querymsgbyuniquekey",
    "query STORE --id ID --trace": "trace track querymsgtracebyid",
    "query STORE --topic TOPIC --queue QUEUE --queue-offset OFFSET": "querymsgbyoffset",
    "pending STORE": "delayed scheduled timers backlog waiting todo",
    "repair STORE": "fix heal recover recovery mend",
    "rebuild-cq STORE": "rebuildcq redispatch",
    "rebuild-index STORE": "reindex rebuildindex",
    "undo STORE": "revert rollback back",
    "clean STORE --dry-run": "purge expire gc cleanup retention delete rm forecast cleanexpiredcq",
    "salvage STORE --output NEW": "rescue extract split shrink subset",
    "convert STORE --output NEW": "migrate dledger",
    "diff A B": "compare cmp",
    "copy STORE --output DIR": "backup cp clone snapshot sync rsync",
    "copy BACKUP --output STORE": "restore",
    'sql STORE "from messages limit 10"': "select sqlite duckdb ask aggregate sum",
    "export STORE --output DIR": "parquet csv ndjson unload",
    "report STORE -o FILE": "html page web",
    "bundle STORE -o FILE": "support collect zip tar pack",
    "replay STORE --nameserver HOST:PORT": "send resend produce publish push import",
    "explain CODE": "why what describe error code codes doc docs",
    "help": "man usage commands ?",
}

OTHER_COMMANDS: Mapping[str, str] = {name: ours for ours, names in _COMMANDS.items() for name in names.split()}
"""Commands, in small letters, and ours, with its arguments."""

OTHER_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "--limit": ("--max", "--max-examples"),
    "--max": ("--limit", "--max-examples"),
    "--out": ("--output",),
    "--output-dir": ("--output",),
    "--queue-id": ("--queue",),
    "--msgid": ("--msg-id",),
    "--message": ("--msg-id",),
    "--message-id": ("--msg-id",),
    "--grep": ("--body-contains",),
    "--consumer-group": ("--group",),
    "--consumer": ("--group",),
    "--since": ("--from", "--time"),
    "--until": ("--to",),
    "--begin": ("--from",),
    "--end": ("--to",),
    "--threads": ("--jobs",),
    "--release": ("--broker-version",),
    "--config": ("--broker-conf",),
}
"""Options, and ours."""
