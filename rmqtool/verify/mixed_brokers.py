"""Signs that files of several brokers lie in one store: the host that the records name as their broker."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from rmqtool.findings.report import Report
from rmqtool.store.store import Store
from rmqtool.verify.disk_and_time_checks import FirstRecord

_OF_OTHERS = ("consumequeue.wrong-record", "consumequeue.missing-unit", "index.unit", "commitlog.duplicate-file")
"""Codes of findings where queues or index are not of the same broker as the log."""

_NO_BROKER = "0.0.0.0:0"  # of inert records in place of damage


def check_hosts(store: Store, firsts: Sequence[FirstRecord], report_so_far: Report, report: Report) -> None:
    """Report that the broker's address changes from file to file.

    An error when `report_so_far` has queues or index that contradict the log; else information, since a broker may
    move, and after a switch of roles the log goes on with the address of the new master.
    """
    report.check("store.mixed", len(firsts))
    of_brokers = [first for first in firsts if first.store_host != _NO_BROKER]
    runs = [list(run) for _, run in groupby(of_brokers, key=lambda first: first.store_host)]
    if len(runs) < 2:
        return
    counts = report_so_far.all_totals()
    contradicted = [code for code in _OF_OTHERS if counts.get(code)]
    hosts = dict.fromkeys(run[0].store_host for run in runs)
    message = f"the log's files name {len(hosts)} brokers: {', '.join([*hosts][:4])}{', ...' if len(hosts) > 4 else ''}"
    file = store.relative(runs[1][0].file.path)
    if contradicted:
        report.add("store.mixed", f"{message}; and queues or index do not fit ({', '.join(contradicted)})", file=file)
    else:
        effect = "none, when the broker's address has changed or another one has become the master"
        report.add("store.mixed", message, severity="info", effect=effect, file=file)
