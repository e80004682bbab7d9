"""Records of what a store does not hold: losses, which it no longer proves, and the choice that it was made of.

A loss comes on record with its transaction and goes with its undo: it is the file `loss.json` beside the journal. When
the replaced files are discarded it moves to ``.rmqtool/losses``, and stays there until it is acknowledged. A wanted
choice is no loss: its record is ``.rmqtool/selection/selection.json``, beside the map of queue offsets that were
counted again.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.files import list_directory, read_all
from rmqtool.base.paths import has_entry
from rmqtool.base.times import rfc3339
from rmqtool.findings.catalogue import finding
from rmqtool.findings.finding import Finding, counted, first_of
from rmqtool.transaction.home import LOSS, LOSSES, transactions
from rmqtool.transaction.paths import HOME
from rmqtool.transaction.system import SYSTEM, System, remove_tree, reported, sync_path

FORMAT = "rmqtool.loss/1"
MAX_LISTED = 200  # extents, queues and files each; the counts are of all

T = TypeVar("T")
_MAX_SIZE = 1 << 20  # bytes
_MAX_SHOWN = 3  # of each in a sentence
_WRONG_BODY = "body-crc"  # of an extent that is whole but for it: its topics are known


class LostExtent(NamedTuple):
    """Bytes of the commit log that hold no record."""

    physical_offset: int
    size: int
    reason: str


class DroppedUnits(NamedTuple):
    """Units of one queue that led to messages which the log does not hold."""

    topic: str
    queue_id: int
    units: int


@dataclass(frozen=True)
class Loss:
    """One loss, found by `command` at `time` (epoch ms).

    `extents` and `dropped` list the first MAX_LISTED of them; `bytes` and `messages`, by topic as far as known, count
    all. `files` are the missing log files with their sizes, `proofs` sentences on files that knew more than the log.
    """

    command: str
    time: int
    bytes: int = 0
    extents: tuple[LostExtent, ...] = ()
    dropped: tuple[DroppedUnits, ...] = ()
    files: tuple[str, ...] = ()
    messages: Mapping[str, int] = field(default_factory=dict)
    proofs: tuple[str, ...] = ()

    @property
    def is_none(self) -> bool:
        """Whether nothing is lost."""
        return not (self.extents or self.dropped or self.files or self.proofs)

    def concerns(self, topic: str) -> bool:
        """Whether messages of a topic may be among what is lost."""
        named = self.messages.keys() | {each.topic for each in self.dropped}
        unknown = self.bytes - sum(each.size for each in self.extents if each.reason == _WRONG_BODY)
        return topic in named or bool(self.files or self.proofs) or bool(unknown and not self.messages)

    @property
    def text(self) -> str:
        """One sentence for people."""
        parts = []
        if self.bytes:
            parts.append(f"{counted(self.bytes, 'byte')} of the log held no record")
        if self.dropped:
            units = sum(each.units for each in self.dropped)
            parts.append(
                f"{counted(units, 'entry')} of {counted(len(self.dropped), 'queue')} pointed past the end of the log"
            )
        parts += [f"missing: {first_of(self.files, _MAX_SHOWN)}"] if self.files else []
        topics = [f"{topic} {count}" for topic, count in Counter(self.messages).most_common()]
        parts += [f"messages by topic, as far as known: {first_of(topics, _MAX_SHOWN)}"] if topics else []
        run = self.command.partition(",")[0]  # a repair may go on in a second transaction
        return f"{run} of {rfc3339(self.time) or self.time}: {'; '.join([*parts, *self.proofs])}"

    def as_json(self) -> dict[str, Any]:
        """The record."""
        return {
            "command": self.command,
            "time": self.time,
            "time_text": rfc3339(self.time),
            "bytes": self.bytes,
            "extents": [each._asdict() for each in self.extents[:MAX_LISTED]],
            "dropped": [each._asdict() for each in self.dropped[:MAX_LISTED]],
            "files": list(self.files[:MAX_LISTED]),
            "messages": dict(self.messages),
            "proofs": list(self.proofs),
        }


class RecordedLoss(NamedTuple):
    """A loss and the file that it is recorded in, a name in the store; None for a file that holds no record."""

    file: str
    loss: Loss | None


def record_file(losses: Sequence[Loss]) -> bytes:
    """The file `loss.json` of a transaction."""
    return _document(FORMAT, losses=[loss.as_json() for loss in losses])


def _document(form: str, **content: Any) -> bytes:
    return (json.dumps({"format": form, **content}, indent=1) + "\n").encode("ascii")


def _parsed(path: Path, form: str, parse: Callable[[dict[str, Any]], T]) -> T | None:
    """What `parse` makes of a record; None where this version cannot read it."""
    try:
        document = json.loads(read_all(path, _MAX_SIZE))
        return parse(document) if document["format"] == form else None
    except (RmqtoolError, ArithmeticError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def keep_losses(root: Path, losses: Sequence[Loss]) -> None:
    """Put losses on record in a store that is being made, where no transaction is; raises OSError."""
    for directory, mode in ((root / HOME, 0o700), (root / HOME / LOSSES, 0o755)):
        directory.mkdir(mode, exist_ok=True)
    (root / HOME / LOSSES / "new.json").write_bytes(record_file(losses))


def recorded_losses(root: Path) -> list[RecordedLoss]:
    """The losses that are not acknowledged, the oldest transaction first; reads only.

    Raises UnreadableError where the directory cannot be listed.
    """
    return [recorded for name in _record_names(root) for recorded in _read(root, name)]


def acknowledge(root: Path, system: System = SYSTEM) -> list[RecordedLoss]:
    """Remove all records; return what they said. Nothing of the store changes, and a broker may run on it."""
    gone = recorded_losses(root)
    with reported(str(root / HOME)):
        for name in dict.fromkeys(recorded.file for recorded in gone):
            remove_tree(system, str(root / name))
            sync_path(system, str((root / name).parent))
        for directory in (root / HOME / LOSSES, root / HOME):
            if directory.is_dir() and not os.listdir(directory):
                system.remove_directory(str(directory))
                sync_path(system, str(directory.parent))
    return gone


def loss_findings(root: Path) -> Iterator[Finding]:
    """A finding for each loss that is not acknowledged."""
    for recorded in recorded_losses(root):
        facts = {"problem": "loss", "loss": recorded.loss.text} if recorded.loss else {"problem": "unreadable"}
        yield finding("store.recorded-loss", file=recorded.file, store=root, details=facts)


def _record_names(root: Path) -> Iterator[str]:
    kept = f"{HOME}/{LOSSES}"
    yield from (f"{kept}/{entry.name}" for entry in list_directory(root / kept))
    of_transactions = (f"{HOME}/{name}/{LOSS}" for name in transactions(root).values())
    yield from (name for name in of_transactions if has_entry(root / name))


def _read(root: Path, name: str) -> list[RecordedLoss]:
    losses = _parsed(root / name, FORMAT, lambda document: [*map(_parse, document["losses"])])
    return [RecordedLoss(name, loss) for loss in (losses if losses is not None else [None])]


def _parse(loss: Mapping[str, Any]) -> Loss:
    return Loss(
        str(loss["command"]),
        int(loss["time"]),
        int(loss["bytes"]),
        tuple(LostExtent(int(e["physical_offset"]), int(e["size"]), str(e["reason"])) for e in loss["extents"]),
        tuple(DroppedUnits(str(d["topic"]), int(d["queue_id"]), int(d["units"])) for d in loss["dropped"]),
        tuple(map(str, loss["files"])),
        {str(topic): int(count) for topic, count in loss["messages"].items()},
        tuple(map(str, loss["proofs"])),
    )


CHOICE_FORMAT = "rmqtool.selection/1"
DIRECTORY = f"{HOME}/selection"
RECORD, OFFSET_MAP = f"{DIRECTORY}/selection.json", f"{DIRECTORY}/queue-offsets.csv"


@dataclass(frozen=True)
class ChoiceRecord:
    """What was chosen by `command` at `time` (epoch ms): `messages` of the `of` that the sources had.

    `options` are the filters as they are given on the command line; `queue_offsets` is ``keep`` or ``new``. What lies
    before the physical offset `end_offset` was chosen, what follows a broker has written since.
    """

    command: str
    time: int
    sources: tuple[str, ...]
    options: tuple[str, ...]
    queue_offsets: str
    messages: int
    of: int
    end_offset: int

    @property
    def facts(self) -> dict[str, str | int]:
        """What a finding has of it."""
        filters = " ".join(self.options) or "no filter"
        return {"problem": "new" if self.queue_offsets == "new" else "keep", "command": self.command,
                "time": self.time, "messages": self.messages, "of": self.of, "filters": filters}  # fmt: skip


def keep_choice(root: Path, choice: ChoiceRecord) -> None:
    """Put a choice on record in a store that is being made; raises OSError."""
    (root / HOME).mkdir(mode=0o700, exist_ok=True)
    (root / DIRECTORY).mkdir(exist_ok=True)
    (root / RECORD).write_bytes(_document(CHOICE_FORMAT, **asdict(choice)))


def recorded_choice(root: Path) -> ChoiceRecord | None:
    """The choice that a store was made of; None without one, and where this version cannot read the record."""
    return _parsed(root / RECORD, CHOICE_FORMAT, _choice)


def _choice(document: Mapping[str, Any]) -> ChoiceRecord:
    return ChoiceRecord(
        str(document["command"]),
        int(document["time"]),
        tuple(map(str, document["sources"])),
        tuple(map(str, document["options"])),
        str(document["queue_offsets"]),
        int(document["messages"]),
        int(document["of"]),
        int(document["end_offset"]),
    )


def chosen_until(root: Path) -> int:
    """The physical offset up to which messages of a store were left out on purpose; 0 where none were."""
    choice = recorded_choice(root)
    return choice.end_offset if choice else 0


def choice_findings(root: Path) -> Iterator[Finding]:
    """A finding for a store of chosen messages."""
    choice = recorded_choice(root)
    if choice:
        yield finding("store.selection", file=RECORD, store=root, details=choice.facts)
