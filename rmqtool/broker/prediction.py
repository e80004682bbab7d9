"""The prediction of what a start of the broker does with a store, as `verify` shows it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
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

    `truncated` units vanish from its end, `dispatched` ones are derived again from the log. `lost` messages get no unit
    then nor later, though they are in the log. `in_rocksdb` are rows; of queues that are written twice there are two.
    A row of a batch is at its first offset: rows end there, and may begin later, than the queue does in files.
    Of the dispatched units the last ones may be `misplaced`, `shift` queue offsets before their own. After them
    `revived` ones follow, which are on disk past the end that the queue's own recovery has found.
    Truncated rows stay, and lead nowhere: the maximum may be past them.
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
    misplaced: int = 0
    shift: int = 0
    revived: int = 0

    @property
    def served_end(self) -> int:
        """Where the entries end that lead into the log."""
        live_end = self.max_offset_before - self.truncated
        return min(self.max_offset, live_end) if self.truncated and not self.dispatched else self.max_offset

    @property
    def derived_end(self) -> int:
        """Where the dispatched units end."""
        return self.served_end - self.revived


@dataclass(frozen=True)
class StartRefusal:
    """Why a broker does not start, and the file in its way, relative to the store, or the queue.

    `queue-file` is one that `MappedFileQueue#load` does not take, `queue-end` a last one without a unit, `queue-type`
    of the other kind than its topic; `directory` stands where a file should be; `memory` is not enough for the log;
    with `hang` the broker waits for ever; `setting` is one of broker.conf, which is named; `database` is in config/, or
    kvStore; `compaction` is a file of a compacted queue.
    """

    cause: Literal[
        "config", "log-file", "queue-file", "queue-end", "queue-type", "directory", "index", "timer", "memory", "hang",
        "setting", "database", "compaction",
    ]  # fmt: skip
    why: str
    file: str | None = None
    topic: str | None = None
    queue_id: int | None = None
    setting: str | None = None

    def of_setting(self, name: str | None) -> StartRefusal:
        """The same, for which a setting is the reason; without a name as it is."""
        return self if name is None else replace(self, cause="setting", setting=name)

    def __str__(self) -> str:
        """The reason in a sentence."""
        return self.why if self.file is None else f"{self.file}: {self.why}"

    def details(self) -> dict[str, Any]:
        """The facts of a finding about it."""
        known = {"file": self.file, "topic": self.topic, "queue_id": self.queue_id, "setting": self.setting}
        return {"cause": self.cause} | {name: value for name, value in known.items() if value is not None}


@dataclass(frozen=True)
class StartPrediction:
    """What a start would do.

    `max_offset_after` is the commit log's maximum right after `load()`, None when the broker refuses to start; `end`
    says why the log ends there. Records from `dispatched_from` on are dispatched again; None: none are.
    `messages_lost` counts readable messages past the end. `refusal` is why the broker does not start; with `hangs` it
    waits for ever instead of exiting. `setting` is the one of broker.conf that makes it refuse or open another
    directory. `unsure` lists what may make it act otherwise. Paths are relative to the store.
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
    refusal: StartRefusal | None = None
    hangs: bool = False
    setting: str | None = None
    unsure: list[str] = field(default_factory=list)

    @property
    def is_up(self) -> bool:
        """Whether a broker serves clients after it: it is neither refused, nor does it wait for ever."""
        return self.refusal is None and not self.hangs

    @property
    def refuses(self) -> str | None:
        """Why the broker does not start, in a sentence."""
        return None if self.refusal is None else str(self.refusal)

    def as_json(self) -> dict[str, Any]:
        """The JSON object `start` of the contract."""
        document = asdict(self)
        return {("refuses" if name == "refusal" else name): value for name, value in document.items()} | {
            "refuses": self.refuses
        }
