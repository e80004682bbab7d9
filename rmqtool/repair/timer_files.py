"""The timer's files, taken out together so that the broker reads its timer queue again (`TimerMessageStore#recover`).

A real 5.3.3 delivers all that waits once when wheel, log and check are gone together; without the log alone nothing,
without the check alone everything twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rmqtool.base.files import list_directory
from rmqtool.base.mapped_files import list_mapped_files
from rmqtool.base.tolerant import skip_wrong_type
from rmqtool.broker.timer_start import timer_state_of
from rmqtool.findings.finding import Finding
from rmqtool.formats.timer_wheel import is_wheel_name
from rmqtool.repair.change import Change
from rmqtool.repair.mended_timer import IN_PLACE, mended_timer_files, reads_on
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
    """The files that are taken out, or fixed; of a wheel of another size only the wheel, which the log fills again."""
    codes = codes_of(findings)
    taken = codes & {_LOST, _AGAIN, _LOG, _WHEEL}
    if taken == {_AGAIN} and reads_on(snapshot, timer_state_of(snapshot)) is not None:
        return [*mended_timer_files(snapshot, codes)]
    if taken & {_LOST, _AGAIN, _LOG} and not _only_strays(snapshot, taken, findings):
        return _taken_out_together(snapshot, codes & {*taken, *IN_PLACE})
    return [*_taken_out_alone(snapshot, taken), *mended_timer_files(snapshot, codes)]


def _only_strays(snapshot: Snapshot, codes: frozenset[str], findings: Sequence[Finding]) -> bool:
    """Whether the findings are only about entries of timerlog/ that are not timer log files."""
    files = {finding.file for finding in findings if finding.code == _LOG}
    return codes == {_LOG} and files <= {snapshot.store.relative(path) for path in _strays(snapshot)}


def _strays(snapshot: Snapshot) -> list[Path]:
    return [stray.path for stray in list_mapped_files(snapshot.store.root / TIMER_LOG, scope=skip_wrong_type).strays]


def _wheels(root: Path) -> list[Path]:
    return [root / entry.name for entry in list_directory(root) if is_wheel_name(entry.name)]


def _taken_out_together(snapshot: Snapshot, codes: frozenset[str]) -> list[Change]:
    root = snapshot.store.root
    others = (path for path in (root / TIMER_LOG, root / CONFIG / TIMER_CHECK) if path.exists())
    names = names_in_store(snapshot.store, [*_wheels(root), *others])
    what = f"the timer's files are taken out together: {_READ_AGAIN}; {KEPT}"
    return [TakenOut(names, codes, what, _TWICE)] if names else []


def _taken_out_alone(snapshot: Snapshot, codes: frozenset[str]) -> list[Change]:
    """The wheel, or what is no file of the timer log: nothing is delivered again."""
    if _WHEEL in codes:
        names = names_in_store(snapshot.store, _wheels(snapshot.store.root))
        what = f"the timer wheel is taken out: a start makes a new one and fills it from the timer log; {KEPT}"
    else:
        names = names_in_store(snapshot.store, _strays(snapshot) if _LOG in codes else [])
        what = f"{len(names)} entries of {TIMER_LOG}/ that are not timer log files: taken out; {KEPT}"
    return [TakenOut(names, codes, what)] if names else []
