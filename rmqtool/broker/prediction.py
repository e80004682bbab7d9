"""The prediction of what a start of the broker does with a store, as `verify` shows it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from rmqtool.store.consume_queues import Kind

Mode = Literal["normal", "abnormal"]


@dataclass(frozen=True)
class ScanFrom:
    """Where the recovery scan begins: the file, relative to the store, and its first physical offset, bytes."""

    file: str
    physical_offset: int


@dataclass(frozen=True)
class QueueChange:
    """A queue that a start changes; offsets as the broker reports them before and after it.

    `truncated` units vanish from its end, `dispatched` ones are derived anew from the log. `lost` messages get no unit
    then nor later, though they are in the log. `in_rocksdb` are rows; of queues that are written twice there are two.
    A row of a batch is at its first offset: rows end there, and may begin later, than the queue does in files.
    """

    kind: Kind
    topic: str
    queue_id: int
    min_offset_before: int
    max_offset_before: int
    min_offset: int
    max_offset: int
    truncated: int
    dispatched: int
    lost: int = 0
    in_rocksdb: bool = False


@dataclass(frozen=True)
class StartPrediction:
    """What a start would do.

    `max_offset_after` is the commit log's maximum right after `load()`, None when the broker refuses to start; `end`
    says why the log ends there. Records from `dispatched_from` on are dispatched again; None: none are.
    `messages_lost` counts readable messages behind the end. `refuses` is why the broker does not start; with `hangs` it
    waits for ever instead of exiting. `unsure` lists what may make it act otherwise. Paths are relative to the store.
    """

    mode: Mode
    version: str
    scan_from: ScanFrom | None = None
    dispatched_from: int | None = None
    max_offset_after: int | None = None
    end: str | None = None
    commit_log_bytes_cut: int = 0
    messages_lost: int = 0
    files_deleted: list[str] = field(default_factory=list)
    queues: list[QueueChange] = field(default_factory=list)
    refuses: str | None = None
    hangs: bool = False
    unsure: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """The JSON object `start` of the contract."""
        return asdict(self)
