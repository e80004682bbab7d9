"""Damages of compacted queues, done to the recorded stores whose broker has compacted a topic."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rmqtool.rules.broker_conf import BrokerConf

LOG, UNITS = Path("compaction/compactionLog/state/0"), Path("compaction/compactionCq/state/0")
FIRST, LAST = "00000000000000000000", "00000000000000016560"
RECORD, UNIT = 182, 46
CONF = BrokerConf({"compactionMappedFileSize": "4600", "compactionCqMappedFileSize": "920"})


def overwrite(path: Path, position: int, data: bytes) -> None:
    """Write `data` into a file."""
    content = bytearray(path.read_bytes())
    content[position : position + len(data)] = data
    path.write_bytes(content)


class Damage(NamedTuple):
    """A damage, the code that it is found under, its problem, and whether a start refuses the store."""

    apply: Callable[[Path], object]
    code: str
    problem: str
    refuses: bool = False


def _old_names(store: Path) -> None:
    """The log's files are replaced, those of the units are about to be."""
    (store / UNITS / FIRST).rename(store / UNITS / "00000000000000005520")


def _half_replaced(store: Path) -> None:
    """Old files have their new name, and the new ones are not there yet."""
    for part in (LOG, UNITS):
        (store / part / "compacting").mkdir()
    for part in (LOG, UNITS):
        shutil.copy(store / part / FIRST, store / part / "compacting" / FIRST)
    (store / LOG / FIRST).rename(store / LOG / f"{FIRST}.delete")


def _deletes_left(store: Path) -> None:
    for part in (LOG, UNITS):
        shutil.copy(store / part / FIRST, store / part / f"{FIRST}.delete")


DAMAGES = {
    "two bytes of an offset": Damage(
        lambda s: overwrite(s / UNITS / FIRST, UNIT + 6, b"\1\1"), "compaction.unit", "wrong"
    ),
    "an offset past the log": Damage(
        lambda s: overwrite(s / UNITS / FIRST, UNIT, b"\x62\x73"), "compaction.unit", "wrong"
    ),
    "two bytes of a queue offset": Damage(
        lambda s: overwrite(s / UNITS / FIRST, UNIT + 34, b"\1\1"), "compaction.unit", "wrong"
    ),
    "a tag": Damage(lambda s: overwrite(s / UNITS / LAST, 18, b"\1"), "compaction.unit", "wrong"),
    "a size": Damage(lambda s: overwrite(s / UNITS / LAST, 8, b"\x7f"), "compaction.unit", "wrong"),
    "a unit of zeros": Damage(lambda s: overwrite(s / UNITS / FIRST, UNIT, bytes(UNIT)), "compaction.unit", "wrong"),
    "units at the end": Damage(
        lambda s: overwrite(s / UNITS / LAST, UNIT, bytes(2 * UNIT)), "compaction.unit", "cut"
    ),
    "stale units": Damage(
        lambda s: overwrite(s / UNITS / FIRST, 7 * UNIT, (s / UNITS / FIRST).read_bytes()[:UNIT]),
        "compaction.unit", "stale",
    ),
    "a magic code": Damage(lambda s: overwrite(s / LOG / FIRST, RECORD + 4, b"\0"), "compaction.record", ""),
    "a place of a record": Damage(
        lambda s: overwrite(s / LOG / FIRST, RECORD + 30, b"\1"), "compaction.record", ""
    ),
    "a size of a record": Damage(lambda s: overwrite(s / LOG / FIRST, RECORD + 3, b"\0"), "compaction.record", ""),
    "a body": Damage(lambda s: overwrite(s / LOG / FIRST, RECORD + 93, b"\0"), "compaction.record", "body"),
    "a queue offset of a record": Damage(
        lambda s: overwrite(s / LOG / FIRST, RECORD + 27, b"\x75"), "compaction.record", "fields"
    ),
    "a queue id of a record": Damage(
        lambda s: overwrite(s / LOG / FIRST, RECORD + 15, b"\1"), "compaction.record", "fields"
    ),
    "a property": Damage(
        lambda s: overwrite(s / LOG / FIRST, 2 * RECORD - 20, b"\x7f"), "compaction.record", "fields"
    ),
    "a time of birth": Damage(
        lambda s: overwrite(s / LOG / FIRST, RECORD + 45, b"\x7f"), "compaction.record", "differs"
    ),
    "a short log file": Damage(lambda s: os.truncate(s / LOG / FIRST, 5500), "compaction.files", "size"),
    "a log file cut in a record": Damage(lambda s: os.truncate(s / LOG / FIRST, 1032), "compaction.files", "size"),
    "a long log file": Damage(
        lambda s: (s / LOG / FIRST).write_bytes((s / LOG / FIRST).read_bytes() + bytes(46)), "compaction.files", "size"
    ),
    "a short file of units": Damage(lambda s: os.truncate(s / UNITS / FIRST, 874), "compaction.files", "size"),
    "no units": Damage(lambda s: shutil.rmtree(s / UNITS), "compaction.files", "no-queue"),
    "no tree of units": Damage(lambda s: shutil.rmtree(s / "compaction/compactionCq"), "compaction.files", "no-queue"),
    "no file of units": Damage(lambda s: (s / UNITS / FIRST).unlink(), "compaction.files", "interrupted", True),
    "no log file": Damage(lambda s: (s / LOG / FIRST).unlink(), "compaction.files", "interrupted", True),
    "no last log file": Damage(lambda s: (s / LOG / LAST).unlink(), "compaction.files", "names", True),
    "no last file of units": Damage(lambda s: (s / UNITS / LAST).unlink(), "compaction.unit", "cut"),
    "units not yet replaced": Damage(_old_names, "compaction.files", "interrupted", True),
    "half replaced": Damage(_half_replaced, "compaction.files", "interrupted", True),
    "deleted files left": Damage(_deletes_left, "compaction.files", "interrupted", True),
    "a name": Damage(lambda s: (s / LOG / "x").write_bytes(bytes(5520)), "compaction.files", "name", True),
    "a queue id": Damage(lambda s: (s / LOG.parent / "old").mkdir(), "compaction.files", "queue-id", True),
    "position": Damage(
        lambda s: (s / "compaction/position-checkpoint").write_text('{"queueOffsetMap":{"state_0":100000}}'),
        "compaction.position", "",
    ),
}  # fmt: skip
