"""Every fault of brokers, F01 to F59, made on stores of which each has what the fault needs: one row for each way.

The small store, which brokers since 5.1 read as their own, takes the damages of `tests.verify`; golden stores of real
brokers take those of `tests.rebuild`, and damages of records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from rmqtool.findings.catalogue import CATALOGUE
from tests.golden import stores
from tests.real_broker.harness import SETTINGS
from tests.rebuild import damaging, log_damages
from tests.verify.circumstances import Circumstance, circumstances
from tests.verify.damages import DAMAGES, RECORD_PATCHES
from tests.verify.losses_facts import keys_of
from tests.verify.small_store import FILE_SIZE, GEOMETRY, QUEUE_FILE_SIZE, RECORDS, TOPICS, small_store
from tests.verify.timer_store import LOG_FILE_SIZE as TIMER_LOG_FILE_SIZE
from tests.verify.timer_store import store_with_timers

SMALL_SETTINGS = {
    "mappedFileSizeCommitLog": str(FILE_SIZE),
    "mappedFileSizeConsumeQueue": str(QUEUE_FILE_SIZE),
    "maxHashSlotNum": str(GEOMETRY[0]),
    "maxIndexNum": str(GEOMETRY[1]),
}
SMALL_KEYS = tuple(f"{topic}\tkey-{number}" for topic in TOPICS for number in range(RECORDS))
_RELEASE = "5.3.3"
_RELEASES = {"5.5": "5.5.0", "5.0": "4.9.7", "4.9.8": "4.9.7"}
"""Releases under test in the place of others that behave alike here."""

ACCEPTED: Mapping[str, str] = {
    "commitlog.no-first-file": "as the cleaner leaves it",
    "commitlog.deleted-topic": "as mqadmin deleteTopic leaves it",
    "consumequeue.orphan": "as a crash after mqadmin deleteTopic leaves it",
    "config.topic-queues": "an operator may have set it",
    "consumequeue.kind: queue of another kind": "the type of its queues is recorded now",
    "consumequeue.lmq-mismatch": "the message did not name this queue",
    "consumequeue.batch-unit": "the entry had another message count",
    "timer.lost": "delivered a second time, as the plan says",
    "config.delay-offset: delay offset": "the level is new",
    "start.refuses 2": "because of its broker.conf",
    "upgrade.refused": "because of its broker.conf",
    "store.mixed": "a message names another broker",
    "store.mixed 2": "a message names another broker",
    "store.wrong-kind 8": "only topics.json showed that this is a broker's store",
    "commitlog.future-timestamp: future": "its index entry has the wrong time",
}
"""Rows after which users may have something else than before the damage although verify says clean; and why."""

Build = Callable[[Path], Path]
NOTHING = Circumstance("").while_verifying


@dataclass(frozen=True)
class Row:
    """One way in which a fault comes about: the store before, what happens to it, and its broker.

    `keys` are the lines "TOPIC tab KEY" of what users of the store may ask for; `meanwhile` is what is so while it is
    repaired.
    """

    fault: str
    name: str
    build: Build
    apply: Callable[[Path], object]
    settings: Mapping[str, str]
    keys: Sequence[str]
    version: str = _RELEASE
    meanwhile: Callable[[Path], AbstractContextManager[object]] = NOTHING

    @property
    def is_stored(self) -> bool:
        """Whether the fault is in the files of a stopped store, and not in the machine or in another process."""
        return self.meanwhile is NOTHING


def rows() -> list[Row]:
    """All rows in the order of their faults; those of findings without a number at the end."""
    found = [*_of_the_small_store(), *_of_circumstances(), *_of_golden_stores()]
    return sorted(found, key=lambda row: (not row.fault, row.fault))


def conf_of(row: Row, path: Path) -> Path:
    """The broker.conf of a row's broker: the settings that it knows, spelled in one way, and an hour to delete at.

    Stores that were not written by whole brokers have their offsets where one without `enableLmq` has them.
    """
    all_settings = {**SETTINGS, "deleteWhen": "04", **row.settings}
    if "enableLmq" not in row.settings:
        del all_settings["enableLmq"]
    unknown = ("maped", "mapper") if row.version.startswith("4") else "maped"
    lines = [f"{name}={value}\n" for name, value in all_settings.items() if not name.startswith(unknown)]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def _of_the_small_store() -> Iterator[Row]:
    for name, damage in DAMAGES.items():
        yield Row(_fault(damage.code), f"{damage.code}: {name}", small_store, damage.apply, SMALL_SETTINGS, SMALL_KEYS)


def _of_circumstances() -> Iterator[Row]:
    numbers = Counter[str]()
    for each in circumstances():
        numbers[each.code] += 1
        name = f"{each.code} {numbers[each.code]}" if numbers[each.code] > 1 else each.code
        version = _RELEASES.get(each.version or "", each.version or _RELEASE)
        timers = {"mappedFileSizeTimerLog": str(TIMER_LOG_FILE_SIZE)} if each.build is store_with_timers else {}
        settings = {**SMALL_SETTINGS, **timers, **each.conf}
        yield Row(_fault(each.code), name, each.build, each.apply, settings, SMALL_KEYS, version, each.while_verifying)


def _of_golden_stores() -> Iterator[Row]:
    for version in (_RELEASE, "4.9.7"):
        for fault, damages in _OF_QUEUES_AND_INDEX.items():
            for damage in damages:
                if version == _RELEASE or not damage.__name__.startswith("batch_"):
                    yield _golden(fault, damage.__name__.replace("_", " "), damage, version)
        for name, (code, position, data) in RECORD_PATCHES.items():
            yield _golden(_fault(code), f"{code}: {name}", partial(_patch_a_record, position, data), version)
        for fault, change in (("F16", log_damages.flip_a_body), ("F18", log_damages.overwrite),
                              ("F20", log_damages.zero_the_end)):  # fmt: skip
            yield _golden(fault, change.__name__.replace("_", " "), partial(_in_a_log_file, change), version)


def _golden(fault: str, name: str, apply: Callable[[Path], object], version: str) -> Row:
    golden = f"{version}-clean"
    return Row(fault, f"{name}, {golden}", _unpacked(golden), apply, {}, _keys(golden), version)


@cache
def _keys(golden: str) -> Sequence[str]:
    return sorted(set(keys_of(stores.oracle(golden)["records"])))


@cache
def _unpacked(golden: str) -> Build:
    return partial(_unpack, golden)


def _unpack(name: str, store: Path) -> Path:
    return stores.unpack(name, store.parent).rename(store)


def _patch_a_record(position: int, data: bytes, store: Path) -> None:
    """In the middle file of the log: of a record with a body, whose hosts are IPv4."""
    log = _log_file(store)
    content = log.read_bytes()
    found = [start for start, _ in log_damages.records(log) if content[start + 36 : start + 40] == bytes(4)
             and any(content[start + 84 : start + 88])]  # fmt: skip
    log_damages.change(log, found[len(found) // 2] + position, data)


def _in_a_log_file(change: Callable[[Path], None], store: Path) -> None:
    change(_log_file(store))


def _log_file(store: Path) -> Path:
    files = sorted((store / "commitlog").iterdir())
    return files[(len(files) - 1) // 2]


def _fault(code: str) -> str:
    return CATALOGUE[code].fault or ""


_OF_QUEUES_AND_INDEX: Mapping[str, tuple[damaging.Damage, ...]] = {
    "F30": (damaging.all_queues_gone, damaging.one_topic_gone, damaging.one_queue_gone, damaging.last_entries_lost),
    "F31": (damaging.entry_points_past_the_log, damaging.entries_past_the_end),
    "F32": (damaging.entry_zeroed,),
    "F33": (damaging.entry_of_another_queue, damaging.wrong_size, damaging.entries_shifted),
    "F34": (damaging.wrong_tags_code, damaging.delivery_time_lost),
    "F35": (damaging.extra_file_of_zeros,),
    "F36": (damaging.middle_file_gone,),
    "F37": (damaging.file_too_short, damaging.file_of_no_bytes, damaging.file_at_a_wrong_offset),
    "F38": (damaging.pre_blank_in_the_middle,),
    "F41": (damaging.light_queue_gone, damaging.light_queue_overwritten),
    "F42": (damaging.batch_queues_gone, damaging.batch_of_no_messages, damaging.batch_base_negative,
            damaging.batch_base_gap),
    "F44": (damaging.index_chain_in_a_circle, damaging.index_hash_of_another_key, damaging.index_points_past_the_log,
            damaging.index_of_other_times, damaging.index_counts_too_much, damaging.index_header_zeroed,
            damaging.index_slots_zeroed, damaging.index_entry_overwritten, damaging.index_cut),
    "F45": (damaging.index_gone, damaging.first_index_file_gone, damaging.index_counts_too_little),
    "F46": (damaging.index_file_of_the_future,),
}  # fmt: skip
