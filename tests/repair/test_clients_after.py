"""What clients lose after a repair, as the plan says before it."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmqtool.broker.dispatched_units import QueueName
from rmqtool.broker.prediction import StartRefusal
from rmqtool.clients.losses import (
    BesideLog,
    ClientLosses,
    Due,
    Had,
    MovedGroup,
    ServedDamage,
    Unreachable,
    UnreachableQueue,
)
from rmqtool.findings.finding import Finding
from rmqtool.repair.change import Change, FileChange, TakenOut
from rmqtool.repair.diagnosis import (
    BODY_CRC,
    PROPERTIES,
    DamagedMessages,
    Diagnosis,
    Repairs,
    _Whole,
    clients_after,
    judged_now,
    needed_sizes,
    notes_on_the_rest,
    repairs_of,
    why_conf,
)
from rmqtool.repair.fields import RightField, RightFields
from rmqtool.repair.log_files import NewCheckpoint, Renamed
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.system_topics import SCHEDULE_TOPIC
from rmqtool.store.config_tables import CommittedOffset
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from tests.building import LogBuilder, message, write_log
from tests.changed_rocksdb import write_queues
from tests.findings.made import made
from tests.query.making import INDEX, index_image

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
    with_offsets = replace(of, clients=replace(LOST, refuses=None, timers=Due(late=2), by_offsets=Offsets()))
    wheel = TakenOut(codes=frozenset(), what="", details=("timerwheel",))
    changes = wheel, a_file("config/consumerOffset.json", {"offsetTable": {"orders@group": {"0": 1}}})
    found = clients_after(with_offsets, Repairs(changes, queues=True, index=True))
    assert found is not None
    assert (found.unreachable, found.keys_not_found, found.groups) == (LOST.unreachable, 5, [])
    assert found.timers == Due()
    found = clients_after(replace(with_offsets, findings=[made("timer.chain")]), Repairs(changes[1:], goes_on=True))
    assert found is not None
    assert found.timers == Due(late=2)


@pytest.mark.parametrize("name", ["consumerOffset.json", "lmqConsumerOffset.json", "topics.json"])
@pytest.mark.parametrize("code", ["config.missing", "config.unreadable", "config.wrong-offset"])
def test_offsets_that_come_back_may_show_a_loss(store: Path, name: str, code: str) -> None:
    """In a store without a message of which nothing else is left; so what it has lost shows only then."""
    change = a_file(f"config/{name}", {}, code)
    shows = name != "topics.json" and code != "config.wrong-offset"
    for more, queues, is_later in (((), frozenset(), shows), ((), {QueueName("orders", 0)}, False),
                                   (("commitlog.missing",), frozenset(), False)):  # fmt: skip
        found = [made(each, store=store) for each in more]
        of = diagnosis(store, *found, clients=replace(LOST, refuses=None), queues_in_log=queues)
        assert (clients_after(of, Repairs((change,))) is None) == is_later


@pytest.mark.parametrize(
    "details", [{"setting": "mappedFileSizeCommitLog"}, {"cause": "database"}, {"cause": "queue-file"}]
)
def test_what_people_do_first_shows_only_later(store: Path, details: dict[str, str]) -> None:
    of = diagnosis(store, made("start.refuses", store=store, details=details))
    assert (clients_after(of, Repairs(queues=True)) is None) == (details != {"cause": "queue-file"})


def test_entries_that_people_move_come_first(store: Path) -> None:
    of = diagnosis(store, made("commitlog.stray", file="/elsewhere/commitlog/x"))
    assert clients_after(of, Repairs(index=True)) is None


@pytest.mark.parametrize("topic", ["orders", SCHEDULE_TOPIC])
def test_only_broker_conf_knows_delays(store: Path, topic: str) -> None:
    """Without their queue nothing else tells when they are due."""
    of = diagnosis(store, made("consumequeue.missing-queue", topic=topic, queue_id=2))
    assert (clients_after(of, Repairs(queues=True)) is None) == (topic == SCHEDULE_TOPIC)
    assert ("messageDelayLevel" in str(why_conf(of, Repairs(queues=True)))) == (topic == SCHEDULE_TOPIC)


@pytest.mark.parametrize(
    ("damage", "is_known"),
    [
        ([(100, 200)], True),
        ([(120, 180), (300, 400)], True),
        ([(99, 200)], False),
        ([(100, 201)], False),
        ([(100, 200), (250, 260)], False),
    ],
)
def test_files_with_other_names_may_be_all_the_damage(
    store: Path, damage: list[tuple[int, int]], is_known: bool
) -> None:
    """What they bring back is known before; where more is damaged, only after it."""
    back = ((100, 200), (300, 400))
    renamed = Renamed(codes=frozenset({"commitlog.overlap"}), what="", names=[], brings_back=back)
    of = diagnosis(store, made("commitlog.overlap", store=store), damage=damage)
    assert (clients_after(of, Repairs((renamed,), goes_on=True)) is not None) == is_known


def test_files_with_other_names_lose_nothing_of_other_topics(store: Path) -> None:
    """Not even where they seemed to be missing."""
    renamed = Renamed(codes=frozenset({"commitlog.overlap"}), what="", names=[], brings_back=((100, 200),))
    of = diagnosis(store, made("commitlog.gap", store=store), clients=replace(LOST, by_offsets=Offsets()))
    found = clients_after(of, Repairs((renamed,), goes_on=True))
    assert found is not None
    assert [each.group for each in found.groups] == ["before set()"]


@pytest.mark.parametrize(("code", "never"), [("config.delay-level", 4), ("config.unreadable", 0)])
def test_messages_of_a_level_that_is_not_configured_stay_undelivered(store: Path, code: str, never: int) -> None:
    """Whatever of the log is found again."""
    renamed = Renamed(codes=frozenset({"commitlog.overlap"}), what="", names=[], brings_back=((100, 200),))
    clients = replace(LOST, delayed=Due(never=4, late=2))
    of = diagnosis(store, made("commitlog.overlap", store=store), made(code), clients=clients)
    found = clients_after(of, Repairs((renamed,), goes_on=True))
    assert found is not None
    assert (found.delayed, found.keys_found_in_damage) == (Due(never=never), 0)


@pytest.mark.parametrize("is_resized", [True, False])
@pytest.mark.parametrize("code", ["commitlog.end-missing", "commitlog.overlap"])
def test_where_a_log_ends_that_is_filled_up(store: Path, code: str, is_resized: bool) -> None:
    """Its last file may be the short one: then only what comes after it shows what clients get."""
    change = a_file("commitlog/0", None, "commitlog.file-size" if is_resized else "commitlog.stray")
    of = diagnosis(store, made(code, store=store), made("index.slot", store=store))
    found = clients_after(of, Repairs((change, a_file("y")), goes_on=True))
    assert (found is None) == (is_resized and code == "commitlog.end-missing")


@pytest.mark.parametrize("keep_offsets", [True, False])
@pytest.mark.parametrize("file", ["config/consumerOffset.json", "config/topics.json"])
def test_a_file_of_offsets_that_stays_refuses_the_start(store: Path, file: str, keep_offsets: bool) -> None:
    refusal = made("start.refuses", store=store, details={"cause": "config", "file": file})
    of = diagnosis(store, refusal, made("config.row", file="config/topics"))
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


def test_topics_that_are_put_back_bring_their_queues(store: Path) -> None:
    """Those are missing ones then, and no longer those of a deleted topic."""
    for code, messages in (("config.topic-missing", 1), ("config.unreadable", 3)):
        repairs = Repairs((a_file("config/topics.json", {}, code),), goes_on=True)
        found = clients_after(diagnosis(store, made(code, store=store)), repairs)
        assert found is not None
        assert found.unreachable.messages == messages


@pytest.mark.parametrize("by_offsets", [None, Offsets()])
def test_messages_that_are_whole_again(store: Path, by_offsets: Offsets | None) -> None:
    """Groups are judged by the damage that is left."""
    fields = (RightField(0, "queue_offset", 20, 8, 1, 0, queues=(QueueName("orders", 0),), keys=1, damaged_bytes=9),)
    right = RightFields(codes=frozenset({"commitlog.field"}), what="", name="x", path=store, writes=[], fields=fields)
    found = clients_after(diagnosis(store, clients=replace(LOST, by_offsets=by_offsets)), Repairs((right,)))
    assert found is not None
    assert (found.unreachable.messages, found.keys_not_found) == (2, 4)
    assert [each.group for each in found.groups] == (["before set()"] if by_offsets else [])


@pytest.mark.parametrize(
    ("code", "facts", "keep_offsets", "are_proven"),
    [
        ("config.delay-offset", {}, False, True),
        ("config.delay-offset", {}, True, False),
        ("config.delay-offset", {"severity": "info"}, False, False),
        ("config.missing", {"details": {"proof": "delays"}}, True, True),
        ("config.wrong-offset", {}, False, False),
    ],
)
def test_delay_offsets_that_are_moved_later(
    store: Path, code: str, facts: dict[str, Any], keep_offsets: bool, are_proven: bool
) -> None:
    of = diagnosis(store, made(code, **facts), clients=replace(LOST, by_offsets=Offsets()))
    for goes_on in (True, False):
        found = clients_after(of, Repairs((a_file("x"),), goes_on=goes_on), keep_offsets=keep_offsets)
        assert found is not None
        assert found.delayed == Due(never=int(are_proven and goes_on))


@pytest.mark.parametrize(
    ("code", "goes_on", "is_right"),
    [("timer.chain", True, True), ("timer.chain", False, False), ("index.slot", True, False)],
)
def test_the_timer_of_a_repair_that_goes_on(
    store: Path, monkeypatch: pytest.MonkeyPatch, code: str, goes_on: bool, is_right: bool
) -> None:
    """Its files are put right once the queues are."""
    wheel = TakenOut(codes=frozenset(), what="", details=("timerwheel",))
    monkeypatch.setattr("rmqtool.repair.diagnosis.timer_changes", lambda _, findings: [wheel])
    of = diagnosis(store, made(code), clients=replace(LOST, timers=Due(late=2)))
    found = clients_after(of, Repairs((a_file("x"),), goes_on=goes_on))
    assert found is not None
    assert found.timers == (Due() if is_right else Due(late=2))


@pytest.mark.parametrize(
    ("timers", "is_known"), [(None, True), (Due(), True), (Due(again=2), True), (Due(never=1, again=2), False)]
)
def test_the_timers_files_are_held_against_a_queue_once_it_is_made(
    store: Path, timers: Due | None, is_known: bool
) -> None:
    """But for what comes again, which the files do not change."""
    of = diagnosis(store, made("consumequeue.hole", store=store), clients=replace(LOST, timers_with_queue=timers))
    assert (clients_after(of, Repairs(queues=True)) is not None) == is_known
    assert clients_after(of, Repairs(index=True)) is not None
    assert clients_after(replace(of, clients=None), Repairs(queues=True)) is None


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
        (("timerwheel",), None, Due(never=1), 3),
        (("timerlog/00000000000000000000",), "timers", Due(never=8), 3),
        (("config/timercheck",), None, Due(never=1), 3),
        (("index/x", "timerwheel"), None, Due(never=1), 3),
        (("index/x",), "keys", Due(late=2, never=1), 5),
    ],
)
def test_files_of_the_timer(store: Path, names: tuple[str, ...], lost: str | None, timers: Due, pop_lost: int) -> None:
    """The timer reads again what waits; what is lost of it is said, and messages in flight come back with it.

    What never comes even without its files does not with them.
    """
    change = TakenOut(codes=frozenset(), what="", details=names, lost=lost)
    left = after(
        store, change, timers=Due(late=2, never=1), timers_without_files=Due(never=8), pop_lost=5, pops_in_timer=2
    )
    assert (left.timers, left.pop_lost, left.pops_in_timer) == (timers, pop_lost, 0 if pop_lost == 3 else 2)


def test_where_a_timer_reads_on_counts(store: Path) -> None:
    """Its file of config/ is one of its files."""
    change = a_file("config/timercheck")
    left = after(store, change, timers=Due(late=2), timers_without_files=Due(never=8), pop_lost=5, pops_in_timer=2)
    assert (left.timers, left.pop_lost, left.pops_in_timer) == (Due(), 3, 0)


@pytest.mark.parametrize(("is_raised", "keys"), [(True, 2), (False, 5)])
def test_an_index_that_the_checkpoint_vouches_for_stays(store: Path, is_raised: bool, keys: int) -> None:
    """The start deletes no file of it (`IndexService#load`)."""
    change = NewCheckpoint(
        codes=frozenset(), what="", name="checkpoint", content=b"", raises_index_time=is_raised, proof=None
    )
    left = after(store, change)
    assert (left.keys_not_found, left.unreachable) == (keys, LOST.unreachable)


@pytest.mark.parametrize(("code", "is_first"), [("commitlog.stray", True), ("timer.log", False)])
def test_files_of_the_log_come_before_a_rebuild(
    store: Path, monkeypatch: pytest.MonkeyPatch, code: str, is_first: bool
) -> None:
    """Which reads it; timers and checkpoint come after it."""
    monkeypatch.setattr("rmqtool.repair.diagnosis.log_file_changes", lambda *_: [a_file("x", None, code)])
    repairs = repairs_of(diagnosis(store, made("consumequeue.hole", store=store)))
    assert (repairs.queues, len(repairs.changes), repairs.goes_on) == (not is_first, int(is_first), True)


@pytest.mark.parametrize(
    ("codes", "keep_offsets", "are_changed"),
    [
        (["index.slot"], False, True),
        (["index.slot"], True, False),
        (["consumequeue.hole"], False, False),
        (["commitlog.unreadable"], False, True),
        (["commitlog.unreadable", "consumequeue.hole"], False, False),
    ],
)
def test_offsets_are_held_against_queues_that_are_right(
    store: Path, monkeypatch: pytest.MonkeyPatch, codes: list[str], keep_offsets: bool, are_changed: bool
) -> None:
    """Not while these are rebuilt, or would be if all could be read."""
    changed: list[bool] = []

    def changes(*_: object, offsets: bool) -> list[Change]:
        changed.append(offsets)
        return []

    monkeypatch.setattr("rmqtool.repair.diagnosis.config_changes", changes)
    repairs_of(diagnosis(store, *(made(code, store=store) for code in codes)), keep_offsets=keep_offsets)
    assert changed == [are_changed]


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
    of = diagnosis(store, clients=clients, damaged_bytes=9)
    for name, of_any in (("flag", False), ("body_crc", True)):  # of a body nothing shows what it was
        fields = (RightField(0, name, 20, 8, 1, 0, damaged_bytes=9),)
        right = RightFields(codes=frozenset({"x"}), what="", name="x", path=store, writes=[], fields=fields)
        found = clients_after(of, Repairs((right,), neutralise=True))
        assert found is not None
        assert [each.group for each in found.groups] == ["before None" if of_any else "before set()"]


@pytest.mark.parametrize(("served_keys", "keys", "keys_found"), [(1, 2, 2), (2, 1, 1), (5, 0, 0)])
def test_what_clients_get_of_a_damaged_message_does_not_come_back(served_keys: int, keys: int, keys_found: int) -> None:
    """By the queues and keys that lead to it already."""
    orders, bills = QueueName("orders", 0), QueueName("bills", 0)
    served = ServedDamage((("orders", 0, 7),), served_keys, missed_by_tag=4)
    whole = {}
    for at in (100, 200):
        field = RightField(at, "flag", 20, 8, 1, 0, queues=(orders, bills), keys=3, keys_found=2, damaged_bytes=1)
        whole[at] = _Whole.of(field, ClientLosses(served_damage={100: served}))
    assert whole == {100: ([bills], keys, True, keys_found, 4), 200: ([orders, bills], 3, True, 2, 0)}


@pytest.mark.parametrize("goes_on", [True, False])
def test_topics_that_are_put_back(goes_on: bool) -> None:
    changes = (a_file("config/topics.json", None, "config.topic-missing"), a_file("x"))
    assert Repairs(changes, goes_on=goes_on).brings_topics == goes_on
    assert not Repairs(changes[1:], goes_on=goes_on).brings_topics


@pytest.mark.parametrize("goes_on", [True, False])
@pytest.mark.parametrize(
    ("code", "in_log"), [("start.refuses", False), ("start.refuses", True), ("consumequeue.ahead", False)]
)
def test_a_start_stays_refused_for_a_queue_that_is_kept(store: Path, code: str, in_log: bool, goes_on: bool) -> None:
    """Where the log has nothing of it, unless more is judged once other things are repaired."""
    refusal = StartRefusal("queue-end", "holds no unit", "consumequeue/orders/0", "orders", 0)
    finding = made(code, store=store, topic="orders", queue_id=0, details=refusal.details())
    of = diagnosis(store, finding, queues_in_log={QueueName("orders" if in_log else "other", 0)})
    after = clients_after(of, Repairs(index=True, goes_on=goes_on))
    assert after is not None
    assert (after.refuses is not None) == (code == "start.refuses" and not in_log and not goes_on)


def test_offsets_that_are_kept(store: Path) -> None:
    """Of a repair that leaves them alone no group is moved."""
    clients = replace(LOST, by_offsets=Offsets())
    of = diagnosis(store, made("commitlog.torn", store=store), clients=clients)
    found = [clients_after(of, Repairs(queues=True), keep_offsets=is_kept) for is_kept in (True, False)]
    assert [len(each.groups) for each in found if each] == [0, 1]


@pytest.mark.parametrize("keep_offsets", [True, False])
def test_why_offsets_stay(store: Path, keep_offsets: bool) -> None:
    """Where the files are in reach; else a step for people says it."""
    of = diagnosis(store, made("config.wrong-offset"))
    (note,) = notes_on_the_rest(of, Repairs(), keep_offsets=keep_offsets)
    assert ("--keep-offsets" in note.why) == keep_offsets
    (store / "config").symlink_to(store.parent)
    assert notes_on_the_rest(of, Repairs(), keep_offsets=keep_offsets) == []


@pytest.mark.parametrize(
    ("group", "offset", "is_rebuilt", "has_repairs", "keep_offsets", "is_said"),
    [
        ("group", 5, True, True, True, True),
        ("group", 5, True, True, False, False),  # it is moved
        ("group", 4, True, True, True, False),
        ("group", 5, False, True, True, False),
        ("group", 5, True, False, True, False),
        ("other", 5, True, True, True, False),
    ],
)
def test_offsets_that_stay_past_the_end_of_a_rebuilt_queue(
    store: Path, group: str, offset: int, is_rebuilt: bool, has_repairs: bool, keep_offsets: bool, is_said: bool
) -> None:
    offsets = {"offsetTable": {"orders@group": {"0": offset}}}
    (store / "config").mkdir(exist_ok=True)
    (store / "config/consumerOffset.json").write_text(json.dumps(offsets))
    in_log = {QueueName("orders" if is_rebuilt else "other", 0)}
    of = diagnosis(store, made("commitlog.zeroed", store=store), queues_in_log=in_log)
    after = replace(LOST, groups=[MovedGroup(group, "orders", 0, 5, 4)])
    repairs = Repairs(queues=has_repairs, index=True)
    notes = notes_on_the_rest(of, repairs, after, keep_offsets=keep_offsets)
    assert any("config.offset-out-of-range" in note.codes for note in notes) == is_said
    assert not any("config.offset-out-of-range" in note.codes for note in notes_on_the_rest(of, repairs))


def test_what_is_left_of_a_queue_is_said_once_its_log_is_right(store: Path) -> None:
    """No rebuild changes a queue of which the log has nothing, as far as the log is known."""
    ahead = made("consumequeue.ahead", store=store, topic="orders", queue_id=0)
    assert [*diagnosis(store, ahead, queues_in_log={QueueName("orders", 0)}).by_treatment] == ["queues"]
    of = diagnosis(store, ahead, queues_in_log={QueueName("other", 0)})
    assert [*of.by_treatment] == ["kept"]
    for has_abort, repairs in ((False, Repairs(queues=True)), (True, Repairs()), (True, Repairs(queues=True))):
        if has_abort:
            (store / "abort").touch()
        codes = [note.codes for note in notes_on_the_rest(of, repairs)]
        assert codes == [{"consumequeue.ahead", *(["store.abort-missing"] if has_abort and repairs.queues else [])}]
    short = made("consumequeue.file-size", store=store, topic="orders", queue_id=0)
    alone = diagnosis(store, short, queues_in_log={QueueName("other", 0)})
    assert [note.codes for note in notes_on_the_rest(alone, Repairs(queues=True))] == [{"consumequeue.file-size"}]
    for code, is_said in (("commitlog.overlap", False), ("commitlog.stray", False), ("config.row", True)):
        notes = notes_on_the_rest(of, Repairs((a_file("x", None, code),), goes_on=True))
        assert any("consumequeue.ahead" in note.codes for note in notes) == is_said


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
    unknown = replace(of, clients=None, queues_in_log={QueueName("orders", 0)})
    assert not any("consumequeue.wrong-record" in note.codes for note in notes_on_the_rest(unknown, repairs_of(of)))
    ahead = made("consumequeue.ahead", store=store, topic="orders", queue_id=0)
    clients = replace(LOST, had=Had({("orders", 0): 1}))
    of = diagnosis(store, *findings, ahead, clients=clients, queues_in_log={QueueName("orders", 0)})
    assert not any("consumequeue.wrong-record" in note.codes for note in notes_on_the_rest(of, repairs_of(of)))


@pytest.mark.parametrize(
    ("code", "details", "is_later"),
    [
        ("timer.chain", {}, True),
        ("checkpoint.future", {}, True),
        ("config.wrong-offset", {}, True),
        ("config.missing", {"proof": "delays"}, True),
        ("config.missing", {}, False),
        ("index.slot", {}, False),
    ],
)
def test_what_is_judged_again(store: Path, code: str, details: dict[str, str], is_later: bool) -> None:
    """Offsets, timers and the checkpoint, once the queues are rebuilt; all is judged now where nothing goes on."""
    of = diagnosis(store, made(code, store=store, details=details))
    assert judged_now(of, Repairs(queues=True, goes_on=True)) == ([] if is_later else [*of.findings])
    assert judged_now(of, Repairs(queues=True)) == [*of.findings]


@pytest.mark.parametrize(
    ("file", "is_rebuilt"), [("consumequeue/orders/0/00000000000000000000", False), ("config/topics.json", True)]
)
def test_nothing_is_rebuilt_from_what_cannot_be_read(store: Path, file: str, is_rebuilt: bool) -> None:
    of = diagnosis(store, made("store.unreadable", file=file), made("consumequeue.hole", store=store))
    assert repairs_of(of).queues == is_rebuilt


def test_all_is_judged_again_after_files_of_the_log(tmp_path: Path) -> None:
    short = message().ljust(4000, b"\0")
    write_log(tmp_path, {0: bytes(4096), 4096: bytes(4096), 8192: short})
    repairs = repairs_of(diagnosis(tmp_path, made("commitlog.file-size"), made("consumequeue.hole")))
    assert (repairs.is_of_log, repairs.goes_on, repairs.queues) == (True, True, False)


@pytest.mark.parametrize(
    ("code", "lost", "is_linked", "goes_on"),
    [
        ("config.topic-missing", "orders", False, True),
        ("config.topic-missing", "others", False, False),
        ("config.topic-missing", "orders", True, False),
        ("config.unreadable", "orders", False, False),
    ],
)
def test_queues_of_a_topic_that_is_put_back_come_next(
    store: Path, tmp_path_factory: pytest.TempPathFactory, code: str, lost: str, is_linked: bool, goes_on: bool
) -> None:
    """They are missing only once the topic is there; nothing is put back where no repair reaches the file."""
    config = store / "config"
    config.symlink_to(tmp_path_factory.mktemp("elsewhere")) if is_linked else config.mkdir()
    (store / "config" / "topics.json").write_text('{"topicConfigTable":{}}')
    clients = replace(LOST, unreachable=Unreachable([UnreachableQueue(lost, 0, 4, 3)]))
    of = diagnosis(store, made(code, topic="orders", file="config/topics.json"), clients=clients)
    assert repairs_of(of).goes_on == goes_on


@pytest.mark.parametrize(
    ("served", "lose", "treatment"), [(2, False, "lose"), (2, True, "neutralise"), (0, False, "neutralise")]
)
def test_damage_that_clients_get_stays_until_it_is_asked_for(
    store: Path, served: int, lose: bool, treatment: str
) -> None:
    """Though a start after a crash would end the log at it."""
    of = diagnosis(
        store,
        made("start.other-mode-data-loss", store=store),
        bodies=DamagedMessages(until=1000, served=served),
        lose={BODY_CRC} if lose else set(),
    )
    assert [*of.by_treatment] == [treatment]
    assert [of.bodies.serves(at) for at in (999, 1000)] == [True, False]


@pytest.mark.parametrize("lose", [set(), {BODY_CRC}, {PROPERTIES}, {BODY_CRC, PROPERTIES}])
def test_only_the_damage_that_is_asked_for_is_taken_away(store: Path, lose: set[str]) -> None:
    served = DamagedMessages(until=1000, served=1)
    findings = [made(code, store=store, offset=4) for code in (BODY_CRC, PROPERTIES)]
    found = diagnosis(store, *findings, bodies=served, properties=served, lose=lose).by_treatment
    assert {each.code for each in found.get("neutralise", ())} == lose


def test_a_batch_queue_is_known_by_its_directory(store: Path) -> None:
    for name in ("consumequeue/orders", "batchconsumequeue/bulk"):
        (store / name / "0").mkdir(parents=True)
    for topic, sizes in (("orders", {"simple"}), ("bulk", {"simple", "batch"})):
        of = diagnosis(store, made("consumequeue.hole", topic=topic, queue_id=0))
        assert needed_sizes(of, Repairs(queues=True)) == sizes


def test_sizes_that_only_broker_conf_knows(store: Path) -> None:
    """Those of the files that are rebuilt now or later; of batch queues where one of the queues is such."""
    goes_on = Repairs((a_file("x"),), goes_on=True)
    orders, bulk = (made("consumequeue.hole", topic=topic, queue_id=0) for topic in ("orders", "bulk"))
    assert needed_sizes(diagnosis(store, orders), goes_on) == {"simple"}
    assert needed_sizes(diagnosis(store, orders), Repairs((a_file("x"),))) == frozenset()
    assert needed_sizes(diagnosis(store, made("index.slot")), goes_on) == {"index"}
    for repairs, sizes in ((goes_on, {"index"}), (Repairs(queues=True), {"simple", "index"}), (Repairs(), set())):
        assert needed_sizes(diagnosis(store, made("timer.log"), keys_missing=True), repairs) == sizes
    (store / "config").mkdir()
    table = {"bulk": {"topicName": "bulk", "attributes": {"queue.type": "BatchCQ"}}}
    (store / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": table}))
    assert needed_sizes(diagnosis(store, orders), goes_on) == {"simple"}
    assert needed_sizes(diagnosis(store, orders, bulk), goes_on) == {"simple", "batch"}


@pytest.mark.parametrize(("damaged_bytes", "keys"), [(9, 4), (0, 5)])
def test_keys_of_a_record_that_was_no_damage(store: Path, damaged_bytes: int, keys: int) -> None:
    """Queries have found them before."""
    fields = (RightField(0, "queue_offset", 20, 8, 1, 0, keys=1, damaged_bytes=damaged_bytes),)
    right = RightFields(codes=frozenset({"commitlog.field"}), what="", name="x", path=store, writes=[], fields=fields)
    assert after(store, right).keys_not_found == keys


@pytest.mark.parametrize(
    ("has_index", "has_conf", "is_damaged", "is_killed", "follows"),
    [
        (True, False, True, False, True),
        (True, False, False, True, True),
        (True, False, False, False, False),
        (False, True, True, False, True),
        (False, False, True, True, False),
    ],
)
def test_an_index_that_follows_the_queues(
    store: Path, has_index: bool, has_conf: bool, is_damaged: bool, is_killed: bool, follows: bool
) -> None:
    """Its keys lead to damage, or no start completes it."""
    if has_index:
        (store / "index").mkdir()
        (store / "index" / INDEX).write_bytes(index_image([(1, 0, 7000)]))
    if is_killed:
        (store / "abort").touch()
    conf = BrokerConf(path=str(store.parent / "broker.conf") if has_conf else None)
    findings = [made("commitlog.zeroed" if is_damaged else "consumequeue.hole", store=store)]
    repairs = repairs_of(Diagnosis(Snapshot(open_store(store, conf)), findings))
    assert (repairs.queues, repairs.index) == (True, follows)


@pytest.mark.parametrize("is_database", [True, False])
def test_delays_of_a_database_that_is_made_anew(store: Path, is_database: bool) -> None:

    if is_database:
        write_queues(store, [], None)
    for code in ("consumequeue.database", "consumequeue.row"):
        why = why_conf(diagnosis(store, made(code)), Repairs(queues=True))
        assert ("messageDelayLevel" in str(why)) == (is_database and code == "consumequeue.database")


OTHER_MODE, ZEROED = "start.other-mode-data-loss", "commitlog.zeroed"


@pytest.mark.parametrize(
    ("codes", "bodies", "treated"),
    [
        ((OTHER_MODE,), DamagedMessages(), {"neutralise": 1}),
        ((BODY_CRC, OTHER_MODE), DamagedMessages(until=1000, served=1), {"lose": 2}),
        ((BODY_CRC, OTHER_MODE), DamagedMessages(until=1000, served=1, others=1), {"lose": 1, "neutralise": 1}),
        (
            (BODY_CRC, OTHER_MODE),
            DamagedMessages(until=1000, served=1, unproven={5}),
            {"lose": 1, "neutralise": 1},
        ),
        ((BODY_CRC, OTHER_MODE, ZEROED), DamagedMessages(until=1000, served=1), {"lose": 1, "neutralise": 2}),
        ((BODY_CRC,), DamagedMessages(until=1000, served=1, unproven={0}), {"neutralise": 1}),
        ((BODY_CRC,), DamagedMessages(), {"neutralise": 1}),
    ],
)
def test_what_would_take_messages_from_clients(
    store: Path, codes: tuple[str, ...], bodies: DamagedMessages, treated: dict[str, int]
) -> None:
    """What a start after a crash does for them alone waits with them; other damage does not."""
    of = diagnosis(store, *(made(code, store=store, offset=0) for code in codes), bodies=bodies)
    assert {name: len(findings) for name, findings in of.by_treatment.items()} == treated
    known = replace(of, queues_in_log={QueueName("orders", 0)})
    assert known.by_treatment.keys() == treated.keys()


@pytest.mark.parametrize(
    ("code", "change", "is_later"),
    [
        ("commitlog.gap", "commitlog.overlap", True),
        ("commitlog.gap", "commitlog.file-size", False),
        ("config.missing", "commitlog.file-size", True),
        ("timer.chain", "commitlog.file-size", True),
        ("consumequeue.hole", "commitlog.overlap", False),
    ],
)
def test_what_is_judged_again_after_files_of_the_log(store: Path, code: str, change: str, is_later: bool) -> None:
    """Files that seem to be missing, where others get their names."""
    of = diagnosis(store, made(code, store=store))
    renamed = Renamed(codes=frozenset({change}), what="", names=[])
    repairs = Repairs((renamed if change == "commitlog.overlap" else a_file("x", None, change),), goes_on=True)
    assert (judged_now(of, repairs) == []) == is_later
