"""What clients lose after a repair, as the plan says before it."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmqtool.broker.dispatched_units import QueueName
from rmqtool.clients.losses import BesideLog, ClientLosses, Due, Had, MovedGroup, Unreachable, UnreachableQueue
from rmqtool.findings.finding import Finding
from rmqtool.repair.change import Change, FileChange, TakenOut
from rmqtool.repair.diagnosis import Diagnosis, Repairs, clients_after, notes_on_the_rest, repairs_of
from rmqtool.store.config_tables import CommittedOffset
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from tests.building import LogBuilder
from tests.findings.made import made

LOST = ClientLosses(
    unreachable=Unreachable([UnreachableQueue("orders", 0, 4, 3, in_damage=1)]),
    keys_not_found=5,
    keys_in_damage=2,
    refuses="a file is too short",
)


class Offsets:
    """What is lost by offsets: one group for each offset, one delayed message for each level."""

    def __init__(self, *, are_kept: bool = False) -> None:
        self.are_kept = are_kept

    def with_whole(self, names: Sequence[tuple[str, int]]) -> Offsets:
        return self

    def kept(self) -> Offsets:
        return Offsets(are_kept=True)

    def groups(
        self, committed: Iterable[CommittedOffset] | None = None, *, lost: Collection[str] | None = ()
    ) -> list[MovedGroup]:
        names = ["before"] if committed is None else [each.group for each in committed]
        return [MovedGroup(f"{name} {lost}", "orders", 0, 4, 0) for name in names if not self.are_kept]

    def delayed(self, by_level: Mapping[int, int] | None = None, *, are_proven: bool = False) -> Due:
        return Due(late=sum((by_level or {}).values()), never=int(are_proven))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    log = LogBuilder()
    log.add()
    return log.write(tmp_path)


def diagnosis(store: Path, *findings: Finding, **facts: Any) -> Diagnosis:
    return Diagnosis(Snapshot(open_store(store)), findings, **{"clients": LOST, **facts})


def a_file(name: str, content: object = None, *codes: str, **more: Any) -> FileChange:
    text = None if content is None else json.dumps(content).encode()
    return FileChange(codes=frozenset(codes), what="", name=name, content=text, **more)


def test_a_rebuild_brings_back_what_is_not_in_damage(store: Path) -> None:
    hole = made("consumequeue.hole", store=store)
    queues = clients_after(diagnosis(store, hole), Repairs(queues=True))
    assert queues is not None
    assert (queues.unreachable.messages, queues.keys_not_found, queues.refuses) == (1, 5, None)
    index = clients_after(diagnosis(store, hole), Repairs(index=True))
    assert index is not None
    assert (index.unreachable.messages, index.keys_not_found) == (3, 2)
    for repairs in (Repairs(neutralise=True), Repairs((a_file("x"),), goes_on=True)):
        later = [made(code, store=store) for code in ("consumequeue.hole", "index.slot")]
        both = clients_after(diagnosis(store, *later), repairs)
        assert both is not None
        assert (both.unreachable.messages, both.keys_not_found) == (1, 2)
    assert clients_after(diagnosis(store, hole), Repairs()) == LOST


def test_where_a_start_cuts_the_log_only_dummy_records_help(store: Path) -> None:
    of = diagnosis(store, made("consumequeue.hole", store=store), cuts_log=True)
    assert clients_after(of, Repairs(queues=True)) == LOST
    assert clients_after(of, Repairs(queues=True, neutralise=True)) != LOST
    assert clients_after(replace(of, clients=None), Repairs(queues=True)) is None


def test_nothing_of_a_log_that_is_gone_comes_back(store: Path) -> None:
    of = diagnosis(store, made("consumequeue.hole", store=store), queues_in_log=frozenset())
    assert clients_after(of, Repairs()) == LOST
    assert clients_after(of, Repairs(queues=True)) is None
    up = replace(of, clients=replace(LOST, refuses=None))
    assert clients_after(up, Repairs(queues=True)) == up.clients
    some = replace(of, queues_in_log={QueueName("orders", 0)})
    assert clients_after(some, Repairs(queues=True)) not in (None, LOST)


@pytest.mark.parametrize(
    "details", [{"setting": "mappedFileSizeCommitLog"}, {"cause": "database"}, {"cause": "queue-file"}]
)
def test_what_people_do_first_shows_only_later(store: Path, details: dict[str, str]) -> None:
    of = diagnosis(store, made("start.refuses", store=store, details=details))
    assert (clients_after(of, Repairs(queues=True)) is None) == (details != {"cause": "queue-file"})


@pytest.mark.parametrize("keep_offsets", [True, False])
@pytest.mark.parametrize("file", ["config/consumerOffset.json", "config/topics.json"])
def test_a_file_of_offsets_that_stays_refuses_the_start(store: Path, file: str, keep_offsets: bool) -> None:
    refusal = made("start.refuses", store=store, details={"cause": "config", "file": file})
    of = diagnosis(store, refusal)
    after = clients_after(of, Repairs(queues=True), keep_offsets=keep_offsets)
    assert after is not None
    assert (after.refuses is not None) == (keep_offsets and "Offset" in file)


def after(store: Path, change: Change, **facts: Any) -> ClientLosses:
    """What clients lose after one change."""
    clients = replace(LOST, by_offsets=Offsets(), refuses=None, **facts)
    found = clients_after(diagnosis(store, clients=clients), Repairs((change,)))
    assert found is not None
    return found


def test_offsets_that_are_written_count(store: Path) -> None:
    table = {"offsetTable": {"orders@billing": {0: 4}}}
    groups = after(store, a_file("config/consumerOffset.json", table)).groups
    assert [each.group for each in groups] == ["billing ()"]
    assert after(store, a_file("config/delayOffset.json", {"offsetTable": {3: 7}})).delayed == Due(late=7)
    assert after(store, a_file("config/delayOffset.json")).delayed == Due()
    assert after(store, a_file("config/topics.json", {})) == replace(LOST, refuses=None)


def test_what_is_beside_the_log(store: Path) -> None:
    beside = BesideLog(compacted=5, compacted_left=2, tiered=9, tiered_left=7)
    compacted = after(store, a_file("x", None, "compaction.log"), beside_log=beside).beside_log
    assert (compacted.compacted, compacted.tiered) == (2, 9)
    for saved, tiered in ((0, 7), (3, 4), (9, 0)):
        left = after(store, a_file("x", None, "tiered.x", saved=saved), beside_log=beside).beside_log
        assert (left.tiered, left.tiered_left, left.compacted) == (tiered, tiered, 5)
    few = BesideLog(tiered=1, tiered_left=7)
    assert after(store, a_file("x", None, "tiered.x"), beside_log=few).beside_log.tiered == 1


@pytest.mark.parametrize(
    ("names", "lost", "timers", "pop_lost"),
    [
        (("timerwheel",), None, Due(), 3),
        (("timerlog/00000000000000000000",), "timers", Due(never=8), 3),
        (("config/timercheck",), None, Due(), 3),
        (("index/x", "timerwheel"), None, Due(), 3),
        (("index/x",), "keys", Due(late=2), 5),
    ],
)
def test_files_of_the_timer(store: Path, names: tuple[str, ...], lost: str | None, timers: Due, pop_lost: int) -> None:
    """The timer reads again what waits; what is lost of it is said, and messages in flight come back with it."""
    change = TakenOut(codes=frozenset(), what="", details=names, lost=lost)
    left = after(store, change, timers=Due(late=2), timers_without_files=Due(never=8), pop_lost=5, pops_in_timer=2)
    assert (left.timers, left.pop_lost, left.pops_in_timer) == (timers, pop_lost, 0 if pop_lost == 3 else 2)


@pytest.mark.parametrize(
    ("code", "lost"), [("commitlog.torn", "None"), ("commitlog.gap", "None"), ("index.slot", "{'orders'}")]
)
def test_groups_of_all_topics_where_nothing_shows_which_lost_messages(store: Path, code: str, lost: str) -> None:
    of = diagnosis(store, made(code, store=store), clients=replace(LOST, by_offsets=Offsets()))
    found = clients_after(of, Repairs(queues=True))
    assert found is not None
    assert [each.group for each in found.groups] == [f"before {lost}"]


def test_damage_that_leaves_no_trace_may_be_of_any_topic(store: Path) -> None:
    clients = ClientLosses(by_offsets=Offsets())
    for damaged_bytes, neutralise in ((9, True), (0, True), (9, False)):
        of = diagnosis(store, clients=clients, damaged_bytes=damaged_bytes)
        found = clients_after(of, Repairs(queues=True, neutralise=neutralise))
        assert found is not None
        of_any = damaged_bytes > 0 and neutralise
        assert [each.group for each in found.groups] == ["before None" if of_any else "before set()"]


def test_offsets_that_are_kept(store: Path) -> None:
    """Of a repair that leaves them alone no group is moved."""
    clients = replace(LOST, by_offsets=Offsets())
    of = diagnosis(store, made("commitlog.torn", store=store), clients=clients)
    found = [clients_after(of, Repairs(queues=True), keep_offsets=is_kept) for is_kept in (True, False)]
    assert [len(each.groups) for each in found if each] == [0, 1]


def test_units_of_a_queue_that_is_all_damage_stay(store: Path) -> None:
    """They lead into dummy records then, unless the queue has more, or the log has none of it."""
    codes = ["consumequeue.wrong-record", "commitlog.zeroed"]
    findings = [made(code, store=store, topic="orders", queue_id=0) for code in codes]
    for had, names, is_left in ((1, True, True), (2, True, False), (2, False, True)):
        clients = replace(LOST, had=Had({("orders", 0): had}))
        in_log = {QueueName("orders", 0)} if names else {QueueName("other", 0)}
        of = diagnosis(store, *findings, clients=clients, queues_in_log=in_log)
        notes = notes_on_the_rest(of, repairs_of(of))
        assert any("consumequeue.wrong-record" in note.codes for note in notes) == is_left
    ahead = made("consumequeue.ahead", store=store, topic="orders", queue_id=0)
    clients = replace(LOST, had=Had({("orders", 0): 1}))
    of = diagnosis(store, *findings, ahead, clients=clients, queues_in_log={QueueName("orders", 0)})
    assert not any("consumequeue.wrong-record" in note.codes for note in notes_on_the_rest(of, repairs_of(of)))
