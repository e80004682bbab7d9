"""What a start of the broker does with a store: where the log is cut, what is deleted, which queues change.

It decides only; nothing is written. ``Recovery(store, rules).predict()`` is a start as the store stands,
``predict(unclean=True)`` the same with the file `abort`, ``predict(checkpoint=NO_CHECKPOINT)`` without a checkpoint.

Whoever scans the log anyway feeds the events of the scan to a `LogWalker` (one for each part, when the log is scanned
in parts, whose walks `join_walks` puts together) and hands the results over as ``LogWalks(rules, walks)``: then the log
is not read again, but for what is derived from it after a crash.
"""

from rmqtool.broker.file_walk import FileWalk, suspects_of
from rmqtool.broker.log_walk import LogWalker, LogWalks, join_walks
from rmqtool.broker.prediction import QueueChange, Start
from rmqtool.broker.recovery import NO_CHECKPOINT, Recovery
from rmqtool.broker.start_findings import start_findings
from rmqtool.rules.recovery import RecoveryRules

__all__ = [
    "NO_CHECKPOINT",
    "FileWalk",
    "LogWalker",
    "LogWalks",
    "QueueChange",
    "Recovery",
    "RecoveryRules",
    "Start",
    "join_walks",
    "start_findings",
    "suspects_of",
]
