"""The record of a choice: which messages of its sources a store was made of. A wanted choice is no loss.

It is the file ``.rmqtool/selection/selection.json``; beside it stands the map of queue offsets that were counted again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.files import read_all
from rmqtool.findings.catalogue import finding
from rmqtool.findings.finding import Finding
from rmqtool.transaction.paths import HOME

FORMAT = "rmqtool.selection/1"
DIRECTORY = f"{HOME}/selection"
RECORD, OFFSET_MAP = f"{DIRECTORY}/selection.json", f"{DIRECTORY}/queue-offsets.csv"

_MAX_SIZE = 1 << 20  # bytes


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
    document = {"format": FORMAT, **asdict(choice)}
    (root / RECORD).write_bytes((json.dumps(document, indent=1) + "\n").encode("ascii"))


def recorded_choice(root: Path) -> ChoiceRecord | None:
    """The choice that a store was made of; None without one, and where this version cannot read the record."""
    try:
        document = json.loads(read_all(root / RECORD, _MAX_SIZE))
        if document["format"] != FORMAT:
            return None
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
    except (RmqtoolError, ArithmeticError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def chosen_until(root: Path) -> int:
    """The physical offset up to which messages of a store were left out on purpose; 0 where none were."""
    choice = recorded_choice(root)
    return choice.end_offset if choice else 0


def choice_findings(root: Path) -> Iterator[Finding]:
    """A finding for a store of chosen messages."""
    choice = recorded_choice(root)
    if choice:
        yield finding("store.selection", file=RECORD, store=root, details=choice.facts)
