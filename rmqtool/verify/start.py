"""The next start of a broker, predicted from what the scan has seen anyway (`rmqtool.recovery`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rmqtool.dispatch.units import QueueName
from rmqtool.files import Reading
from rmqtool.recovery import FileWalk, LogWalks, Recovery, RecoveryRules, Start, start_findings
from rmqtool.store import Store
from rmqtool.verify.queue_state import QueueState
from rmqtool.verify.report import Report

_CODES = ("start.data-loss", "start.other-mode-data-loss", "start.refuses", "start.hangs", "start.queue-loss")


def predict(
    store: Store, rules: RecoveryRules, walks: Sequence[FileWalk], reading: Reading, report: Report,
    states: Mapping[QueueName, QueueState],
) -> Start:  # fmt: skip
    """What a start would do, with a finding for each thing that is lost by it; raises RmqtoolError."""
    recovery = Recovery(store, rules, LogWalks(rules, walks, reading), reading)
    start = recovery.predict()
    for code in _CODES:
        report.check(code)
    ends = {(name.topic, name.queue_id): state.next_offset for name, state in states.items() if not state.restarts}
    for found in start_findings(recovery, start, ends):
        report.take(found)
    return start
