"""Signs that files of several brokers lie in one store: the host that the records name as their broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from rmqtool.findings.finding import Finding
from rmqtool.findings.report import Report
from rmqtool.formats.consume_queue import UNIT_SIZE
from rmqtool.store.store import Store
from rmqtool.verify.disk_and_time_checks import FirstRecord

_OF_OTHERS = ("consumequeue.wrong-record", "consumequeue.missing-unit", "commitlog.duplicate-file")
"""Codes of findings where queues are not of the same broker as the log.

Units of the index are none: a kill loses pages of it, and leaves units of messages that the log has lost, in whose
place the next broker writes. Where all queues lead to their messages, the files of the log belong together.
"""

_WRONG, _PAGE = "consumequeue.wrong-record", 4096
_NO_BROKER = "0.0.0.0:0"  # of dummy records in place of damage


def check_hosts(store: Store, firsts: Sequence[FirstRecord], report_so_far: Report, report: Report) -> None:
    """Report that the broker's address changes from file to file.

    An error when `report_so_far` has queues that contradict the log; else information, since a broker may move, a pod
    has another address after each start, and after a switch of roles the log goes on with that of the new master.
    """
    report.check("store.mixed", len(firsts))
    of_brokers = [first for first in firsts if first.store_host != _NO_BROKER]
    runs = [list(run) for _, run in groupby(of_brokers, key=lambda first: first.store_host)]
    if len(runs) < 2:
        return
    counts = Counter(report_so_far.serious_totals())
    counts[_WRONG] -= sum(each.count for each in report_so_far.findings() if each.code == _WRONG and _is_half(each))
    contradicted = [code for code in _OF_OTHERS if counts[code] > 0]
    hosts = dict.fromkeys(run[0].store_host for run in runs)
    facts: dict[str, Any] = {"problem": "alone", "brokers": len(hosts), "hosts": [*hosts]}
    facts["first_hosts"] = ", ".join([*hosts][:4]) + (", ..." if len(hosts) > 4 else "")
    file = store.relative(runs[1][0].file.path)
    if contradicted:
        facts |= {"problem": "contradicted", "contradicted": contradicted}
        report.add("store.mixed", file=file, details=facts)
    else:
        effect = "none, when the broker's address has changed or another one has become the master"
        report.add("store.mixed", severity="info", effect=effect, file=file, details=facts)


def _is_half(finding: Finding) -> bool:
    """Whether a queue entry stands across the end of a page: a kill may have kept one half of it and lost the other."""
    return finding.offset is not None and finding.offset % _PAGE > _PAGE - UNIT_SIZE
