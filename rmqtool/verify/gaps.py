"""The gaps of a verification: what was not checked, by the user's choice or because it cannot be read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Literal

from rmqtool.base.errors import RmqtoolError, note_failure
from rmqtool.base.files import list_directory
from rmqtool.base.paths import entry_path
from rmqtool.findings.catalogue import CATALOGUE
from rmqtool.findings.report import NEEDING_QUEUES, Selection
from rmqtool.formats.checkpoint import CHECKPOINT_FILE_SIZE
from rmqtool.store.checkpoint import credible, read_checkpoint
from rmqtool.store.config_tables import CONFIG_DATABASES
from rmqtool.store.paths import COMPACTION, COMPACTION_LOG
from rmqtool.store.rocksdb import holds_rows, is_readable
from rmqtool.store.side_rows import POP_STORE
from rmqtool.store.store import (
    CHECKPOINT,
    CONFIG,
    CONSUME_QUEUE_EXT,
    ROCKSDB_CONFIGS,
    SIDE_STORE,
    Store,
    is_rocksdb_directory,
)
from rmqtool.store.tiered import Tier, Unreadable, tier_of
from rmqtool.verify.config_checks import is_database

Why = Literal[
    "only", "skip", "topic", "fast", "sample", "interrupted", "time-limit", "changed", "unreadable",
    "not-supported", "empty",
]  # fmt: skip
"""`changed`: by a running broker, while it was read; `not-supported`: this version does not read it;
`empty`: the store is empty, and may have held something."""

_CHOSEN = ("only", "skip", "topic", "fast", "sample")
_OF_OTHER_COMMANDS = ("clean.", "rebuild.", "export.")
_IN_SIDE_STORE = {"indexRocksDBEnable": "index", "timerRocksDBEnable": "timers", "transRocksDBEnable": "transactions"}
_CODES_OF_ROWS = {
    SIDE_STORE: ("index.row", "timer.row", "store.half-row", "store.rocksdb-damaged"),
    POP_STORE: ("store.pop-row", "store.rocksdb-damaged"),
}
NODE_IS_NOT_PREDICTED = (
    "a node of a DLedger group recovers by Raft, and its leader may cut or replace the end of its log"
)
"""Why there is no prediction of a start of a DLedger store."""


@dataclass(frozen=True)
class Gap:
    """One thing that was not checked.

    `what` names it in a few words, `text` in a sentence; `codes` are prefixes of the codes of findings that may be
    missing because of it.
    """

    what: str
    why: Why
    text: str
    codes: tuple[str, ...] = ()

    @property
    def is_chosen(self) -> bool:
        """Whether the user asked to leave it out."""
        return self.why in _CHOSEN

    @property
    def is_read(self) -> bool:
        """Whether it was read nevertheless, and only its checks were left out."""
        return self.why in ("only", "skip", "topic")

    @property
    def is_doubt(self) -> bool:
        """Whether something may be lost without a trace, rather than not checked."""
        return self.why == "empty"

    @property
    def may_hide_a_loss(self) -> bool:
        """Whether clients may lose something by it, so that a start is not known to fix the rest without loss."""
        return self.why in ("empty", "unreadable")

    def hides(self, code: str) -> bool:
        """Whether findings of a code may be missing because of it."""
        return code.startswith(self.codes)


def gaps_of_selection(selection: Selection, *, bodies: bool) -> Iterator[Gap]:
    """The checks that count for the verdict and that ``--only``, ``--skip``, ``--topic`` or ``--fast`` leave out."""
    if selection.only and (codes := _left_out(Selection(selection.only))):
        named = ", ".join(selection.only)
        yield Gap(f"all but {named} (--only)", "only", f"all but {named}: --only leaves it out", codes)
    if codes := _left_out(Selection((), selection.skip)):
        named = ", ".join(selection.skip)
        yield Gap(f"{named} (--skip)", "skip", f"{named}: --skip leaves it out", codes)
    if selection.topics is not None:
        text = "problems of other topics: --topic or --exclude-topic leaves them out"
        yield Gap("other topics (--topic)", "topic", text)
    if not bodies:
        codes = ("commitlog.body-crc", "commitlog.property-crc")
        yield Gap("bodies (--fast)", "fast", "bodies and their CRCs: --fast does not read them", codes)


def gaps_of_store(store: Store, *, has_log: bool) -> Iterator[Gap]:
    """Parts of a store in formats that are not read, and an empty store."""
    if not has_log and not _has_started(store):
        text = (
            "what this store had: it has no log file and no checkpoint, which a broker's first start writes; it is "
            "new, or everything is lost, or it is elsewhere"
        )
        yield Gap("anything: the store is empty", "empty", text)
    if store.layout == "rocksdb" and not is_readable():
        text = "consume queues: they are kept in RocksDB, which needs the package rocksdict "
        text += "(pip install 'rmqtool[rocksdb]')"
        yield Gap("queues in RocksDB", "not-supported", text, NEEDING_QUEUES)
    if store.dledger_directory:
        yield Gap(
            "the start of a DLedger node",
            "not-supported",
            f"what a start would do: {NODE_IS_NOT_PREDICTED}",
            ("start.",),
        )
    yield from _side_store(store)
    tier = tier_of(store)
    if isinstance(tier, Unreadable):
        yield Gap("tiered storage", "not-supported", f"tiered storage: {tier.why}", ("tiered.",))
    for name in () if is_readable() else ROCKSDB_CONFIGS:
        if is_rocksdb_directory(store.root / name):
            text = f"topics, groups and offsets in the RocksDB database {name}, which needs the package rocksdict"
            yield Gap(f"configuration in RocksDB ({name})", "not-supported", text, ("config.",))
    if any(path.stat().st_size for path in files_below(store.root / CONSUME_QUEUE_EXT)):
        text = f"the filter bits of ext units in {CONSUME_QUEUE_EXT}/, which no message shows"
        yield Gap("ext units of consume queues", "not-supported", text, ("consumequeue.",))


def gaps_of_running(store: Store) -> Iterator[Gap]:
    """What is not checked while a broker writes it: compacted queues, and databases row by row."""
    if next(files_below(store.root / COMPACTION / COMPACTION_LOG), None) is not None:
        text = f"compacted logs in {COMPACTION}/, whose files the running broker replaces"
        yield Gap("compacted logs", "changed", text, ("compaction.", "store.compacted-log"))
    if isinstance(tier_of(store), Tier):
        yield Gap("tiered storage", "changed", "tiered storage, to which the running broker writes", ("tiered.",))
    if not is_readable():
        return  # `gaps_of_store` says so
    config = [f"{CONFIG}/{name}" for name in CONFIG_DATABASES if is_database(store.root / CONFIG / name)]
    codes_of_config = ("config.row", "config.rocksdb-damaged", "config.swapped-offset")
    databases: list[tuple[str, tuple[str, ...]]] = [(name, codes_of_config) for name in config]
    for name, codes in _CODES_OF_ROWS.items():
        if is_rocksdb_directory(store.root / name) and any(map(holds_rows, list_directory(store.root / name))):
            databases.append((name, codes))
    for name, codes in databases:
        text = f"the rows of the RocksDB database {name}, which the running broker changes"
        yield Gap(f"the rows of {name}", "changed", text, codes)


def wanted(gaps: Sequence[Gap], selection: Selection) -> list[Gap]:
    """The gaps in what the user has asked for, and those that the user has chosen."""
    return [gap for gap in gaps if gap.is_chosen or not gap.codes or any(map(selection.wants_any, gap.codes))]


def is_of_verify(code: str) -> bool:
    """Whether a verification can report a code."""
    return not code.startswith(_OF_OTHER_COMMANDS)


def summary_of(gaps: Sequence[Gap]) -> str:
    """The gaps as the end of the sentence about a verdict; empty without gaps."""
    unread = ", ".join(gap.what for gap in gaps if not gap.is_read and not gap.is_doubt)
    unchecked = ", ".join(gap.what for gap in gaps if gap.is_read)
    doubtful = ", ".join(gap.what for gap in gaps if gap.is_doubt)
    parts = (("not read", unread), ("not checked", unchecked), ("not proven", doubtful))
    return "; ".join(f"{label}: {names}" for label, names in parts if names)


def _left_out(selection: Selection) -> tuple[str, ...]:
    counting = (code for code, page in CATALOGUE.items() if is_of_verify(code) and page.about == "messages")
    return tuple(code for code in counting if not selection.wants(code))


def _has_started(store: Store) -> bool:
    """Whether a broker was ever started on the store: its first start writes the checkpoint, a whole page."""
    try:
        has_size = (store.root / CHECKPOINT).stat().st_size >= CHECKPOINT_FILE_SIZE
        return has_size and bool(credible(read_checkpoint(store)))
    except OSError as error:
        note_failure(store.root / CHECKPOINT, error)
        return False
    except RmqtoolError:
        return False


def _side_store(store: Store) -> Iterator[Gap]:
    """The database `rocksdbstore`, which exists in all stores since 5.4.0, and is empty without its features."""
    directory = store.root / SIDE_STORE
    if is_readable() or not is_rocksdb_directory(directory):
        return
    used = [what for name, what in _IN_SIDE_STORE.items() if store.conf.is_on(name)]
    kept = [entry.name for entry in list_directory(directory) if holds_rows(entry)]
    if used or kept:
        what = " and ".join(used) or "index, timers or transactions"
        codes = ("store.rocksdb-side-store", *(f"{name}." for name in ("index", "timer") if name in what))
        yield Gap(f"{what} in {SIDE_STORE}", "not-supported",
                  f"{what} in the RocksDB database {SIDE_STORE}, which needs the package rocksdict", codes)  # fmt: skip


def files_below(directory: Path) -> Iterator[Path]:
    """The files in a directory and below it; none where it cannot be read."""
    try:
        entries = list_directory(directory)
    except RmqtoolError:
        return  # reported as unreadable
    below = (files_below(entry_path(entry)) for entry in entries if entry.is_dir(follow_symlinks=False))
    yield from (entry_path(entry) for entry in entries if entry.is_file())
    yield from chain.from_iterable(below)
