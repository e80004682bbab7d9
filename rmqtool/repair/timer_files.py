"""The timer's files, taken out together so that the broker reads its timer queue again (`TimerMessageStore#recover`).

A real 5.3.3 delivers all that waits once when wheel, log and check are gone together; without the log alone nothing,
without the check alone everything twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from rmqtool.base.files import list_directory
from rmqtool.base.mapped_files import list_mapped_files
from rmqtool.base.tolerant import skip_wrong_type
from rmqtool.findings.finding import Finding
from rmqtool.formats.timer_wheel import is_wheel_name
from rmqtool.repair.change import Change
from rmqtool.repair.places import KEPT, TakenOut, codes_of, names_in_store
from rmqtool.rules.system_topics import TIMER_TOPIC
from rmqtool.store.paths import TIMER_CHECK, TIMER_LOG
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import CONFIG

_LOST, _AGAIN, _LOG, _WHEEL = "timer.lost", "timer.again", "timer.log", "timer.wheel-size"
_READ_AGAIN = "the next start reads its queue from the beginning and delivers what waits"
_DELIVERED = "which timer messages were delivered: those still in the log are delivered a second time"
_TWICE = (
    "nothing; but timer messages that were delivered, and are still in the log, are delivered a second time, and those "
    "that the timer put off (timerRollWindowSlot, two days) once for each time"
)


def lost_by_rebuilt_queue(snapshot: Snapshot, findings: Sequence[Finding]) -> list[str]:
    """What a rebuild of the missing timer queue does not bring back where the timer's other files are gone, too."""
    root = snapshot.store.root
    is_rebuilt = any(each.topic == TIMER_TOPIC and each.code == "consumequeue.missing-queue" for each in findings)
    is_known = (root / CONFIG / TIMER_CHECK).exists() or list_mapped_files(
        root / TIMER_LOG, scope=skip_wrong_type
    ).files
    return [_DELIVERED] if is_rebuilt and not is_known else []


def timer_changes(snapshot: Snapshot, findings: Sequence[Finding]) -> list[Change]:
    """The files that are taken out; for a wheel of another size alone only the wheel, which the log fills again."""
    codes = codes_of(findings) & {_LOST, _AGAIN, _LOG, _WHEEL}
    if not codes:
        return []
    root = snapshot.store.root
    wheels = [root / entry.name for entry in list_directory(root) if is_wheel_name(entry.name)]
    strays = [stray.path for stray in list_mapped_files(root / TIMER_LOG, scope=skip_wrong_type).strays]
    told = {finding.file for finding in findings if finding.code == _LOG}
    if codes == {_LOG} and told <= {snapshot.store.relative(path) for path in strays}:
        names = names_in_store(snapshot.store, strays)
        what = f"{len(names)} entries of {TIMER_LOG}/ that are not timer log files: taken out; {KEPT}"
        return [TakenOut(names, codes, what)] if names else []
    if codes == {_WHEEL}:
        names, lost = names_in_store(snapshot.store, wheels), None
        what = f"the timer wheel is taken out: a start makes a new one and fills it from the timer log; {KEPT}"
    else:
        others = (root / TIMER_LOG, root / CONFIG / TIMER_CHECK)
        names, lost = names_in_store(snapshot.store, [*wheels, *(path for path in others if path.exists())]), _TWICE
        what = f"the timer's files are taken out together: {_READ_AGAIN}; {KEPT}"
    return [TakenOut(names, codes, what, lost)] if names else []
