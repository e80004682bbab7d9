"""Nodes of a DLedger group held against each other, and against the ordinary store that was made of one."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest

from rmqtool.base.errors import Exit
from rmqtool.diff.comparison import StoreComparison
from rmqtool.diff.log_pass import DiffRequest
from rmqtool.diff.records import Name
from rmqtool.formats.dledger import ENTRY_HEADER_SIZE
from rmqtool.store.dledger_node import Entry
from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.diff.pairs import change, compared
from tests.dledger_building import NODE, EntryBuilder, entry_log, put_entries
from tests.verify.small_store import finish

STORES = ["more/4.9.7-dledger", "more/5.3.3-dledger", "more/5.3.3-converted"]
FILE_SIZE = 4096


def node(directory: Path, log: EntryBuilder, committed: int | None = None) -> Path:
    """A node's store with queues and index."""
    return finish(log.write(directory, committed))


def parted(common: int, more: int, term: int) -> EntryBuilder:
    """Entries of which those after the common ones are of another leader."""
    log = entry_log(common)
    log.term = term
    return put_entries(log, more, f"of term {term}")


def made_of(store: Path, *options: str) -> Path:
    """The ordinary store that convert makes of a node's."""
    new = store.with_name(f"{store.name}-new")
    rmqtool("convert", store, "--output", new, *options)
    return new


def data_file(store: Path, offset: int) -> Path:
    return store / NODE / "data" / f"{offset // FILE_SIZE * FILE_SIZE:020d}"


def alone(found: StoreComparison) -> list[int]:
    """How many messages each has alone at the end."""
    names: tuple[Name, ...] = ("a", "b")
    return [found.tails[name].messages if name in found.tails else 0 for name in names]


@pytest.mark.slow
def test_random_nodes(tmp_path: Path) -> None:
    """Cut or parted at any entry: where, and what each has alone; headers with another term are no difference."""
    for seed in range(15):
        chance = random.Random(seed)
        common, more = chance.randrange(1, 40), (chance.randrange(9), chance.randrange(9))
        terms = (2, chance.choice([2, 3]))
        logs = [parted(common, count, term) for count, term in zip(more, terms, strict=True)]
        a, b = (node(tmp_path / f"{seed}-{name}", log) for name, log in zip("ab", logs, strict=True))
        found = compared(a, b)
        same = common + min(more) if terms[0] == terms[1] else common
        assert alone(found) == [common + count - same for count in more], seed
        is_parted = same < common + min(more)
        expected = "diverged" if is_parted else "same" if more[0] == more[1] else f"{'ab'[more[0] < more[1]]}-ahead"
        assert found.verdict == expected, seed
        if is_parted:
            assert found.common_end == logs[0].offsets[common], seed
        assert found.own_queue_differences == [], seed
        assert found.a.node is not None
        assert found.a.node.last == Entry(common + more[0] - 1, 2 if more[0] else 1), seed


def test_headers_are_no_difference(tmp_path: Path) -> None:
    """Another term in a header is no difference; a header that was overwritten is damage of its side."""
    log = entry_log(40)
    a, b = node(tmp_path / "a", log), node(tmp_path / "b", entry_log(40))
    start = log.offsets[20] - ENTRY_HEADER_SIZE
    change(data_file(b, start), start % FILE_SIZE + 23)  # the last byte of the term
    assert compared(a, b).verdict == "same"
    change(data_file(b, start), start % FILE_SIZE)  # of the magic code
    found = compared(a, b)
    assert (found.verdict, found.parting.damaged) == ("damaged", ("b",))
    assert rmqtool("diff", a, b).status == Exit.FINDINGS


@pytest.mark.slow
@pytest.mark.parametrize("name", STORES)
def test_golden_and_made_of_it(name: str, golden_store: GoldenStore, tmp_path: Path) -> None:
    """What convert made has all messages in the same order, and the same queues and config."""
    store, new = golden_store(name), tmp_path / "new"
    assert rmqtool("convert", store, "--output", new).status == Exit.OK
    for pair in ((store, store), (store, new), (new, store)):
        done = rmqtool("diff", *pair, "--json")
        assert (done.document["result"]["verdict"], done.status) == ("same", Exit.OK), pair
    in_order = done.document["result"]["in_order"]
    assert in_order["messages"] == 400 + (name == STORES[2])
    assert in_order["before"] == {"a": 0, "b": 0}
    assert rmqtool("diff", store, new, "--by-message").status == Exit.OK
    assert rmqtool("diff", store, new, "--fast").status == Exit.USAGE


def test_uncommitted_entries(tmp_path: Path) -> None:
    """What convert leaves by default is what the node has alone."""
    log = entry_log(60)
    store = node(tmp_path / "a", log, committed=44)
    found = compared(store, made_of(store), DiffRequest(only="a", limit=100))
    assert (found.verdict, alone(found), found.own_queue_differences) == ("a-ahead", [15, 0], [])
    assert [message["physical_offset"] for message in found.listed] == log.offsets[45:]
    assert found.a.node is not None
    assert found.a.node.uncommitted == 15
    turned = compared(store.with_name("a-new"), store)
    assert (turned.verdict, alone(turned)) == ("b-ahead", [0, 15])


@pytest.mark.slow
def test_random_damage(tmp_path: Path) -> None:
    """Bodies that were changed and entries that were overwritten, in the node or in the new store."""
    for seed in range(12):
        chance = random.Random(seed)
        log = entry_log(60)
        store = node(tmp_path / f"{seed}", log)
        new = made_of(store)
        rows = sorted(chance.sample(range(1, 59, 3), chance.randrange(1, 5)))
        for row in rows:
            path = data_file(store, log.offsets[row])
            at = log.offsets[row] % FILE_SIZE
            change(path, at + chance.choice([90, 4, -ENTRY_HEADER_SIZE]))  # body, magic code of message or entry
        found = compared(store, new)
        assert (found.verdict, found.parting.damaged, found.parting.extents) == ("damaged", ("a",), len(rows)), seed
        assert found.alignment is not None
        assert found.alignment.messages == 60 - len(rows), seed
        assert [each.a.offset for each in found.parting.differences] == [
            each.offset for each in found.parting.differences
        ], seed
        turned = compared(new, store)
        assert (turned.verdict, turned.parting.damaged, turned.parting.extents) == ("damaged", ("b",), len(rows)), seed


def test_lost_in_both(tmp_path: Path) -> None:
    """Damage that was there when it was converted is damage still: dummy records stand in its place."""
    log = entry_log(60)
    store = node(tmp_path / "a", log)
    change(data_file(store, log.offsets[20]), log.offsets[20] % FILE_SIZE + 4)
    found = compared(store, made_of(store))
    assert (found.verdict, found.parting.damaged, found.parting.both_lost) == ("damaged", ("a",), True)
    assert found.alignment is not None
    assert found.alignment.messages == 59


def test_parted_after_a_conversion(tmp_path: Path) -> None:
    """The node went on with other messages: both tails, by the offsets of each log."""
    common = 50
    store = node(tmp_path / "b", entry_log(common))
    new = made_of(node(tmp_path / "a", parted(common, 6, 2)))
    put = parted(common, 3, 3)
    node(store, put)
    found = compared(store, new)
    assert (found.verdict, alone(found)) == ("diverged", [3, 6])
    assert found.parting.diverged is not None
    assert found.parting.diverged.start == put.offsets[common]


def test_first_files_gone(tmp_path: Path) -> None:
    """Retention has deleted the node's first file: that the other has older messages is no divergence."""
    log = entry_log(60)
    store = node(tmp_path / "a", log)
    new = made_of(store)
    data_file(store, 0).unlink()
    found = compared(store, new)
    lost = sum(offset < FILE_SIZE for offset in log.offsets)
    assert found.alignment is not None
    assert (found.alignment.messages, found.alignment.before) == (60 - lost, {"a": 0, "b": lost})
    assert (found.verdict, found.tails) == ("differs", {})


def test_nothing_in_common(tmp_path: Path) -> None:
    """A group of another cluster."""
    store = node(tmp_path / "a", entry_log(30))
    other = made_of(node(tmp_path / "b", put_entries(EntryBuilder(file_size=FILE_SIZE), 30, "another")))
    done = rmqtool("diff", store, other)
    assert done.status == Exit.FINDINGS
    assert "no overlap: the logs have no message in common" in done.out
    assert f"rmqtool diff {store} {other} --by-message" in done.out


@pytest.mark.slow
def test_many_that_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next common message is found however far it is, with a window that grows."""
    monkeypatch.setattr("rmqtool.diff.by_message._FIRST_WINDOW", 2)
    log = entry_log(200)
    store = node(tmp_path / "a", log)
    new = made_of(store)
    for row in range(20, 150):
        change(data_file(store, log.offsets[row]), log.offsets[row] % FILE_SIZE + 90)
    found = compared(store, new)
    assert found.alignment is not None
    assert (found.alignment.messages, found.verdict, found.parting.extents) == (70, "damaged", 1)


def test_topics_that_differ(tmp_path: Path) -> None:
    """Config and queues count as in every comparison."""
    store = node(tmp_path / "a", entry_log(30))
    new = made_of(store)
    path = new / "config" / "topics.json"
    content = json.loads(path.read_text())
    content["topicConfigTable"]["new"] = {"perm": 6}
    path.write_text(json.dumps(content))
    os.truncate(next((new / "consumequeue" / "orders" / "1").iterdir()), 20)
    found = compared(store, new)
    assert found.verdict == "differs"
    assert [entry.file for entry in found.configs] == ["topics.json"]
    assert [(queue.topic, queue.queue_id) for queue in found.own_queue_differences] == [("orders", 1)]


def test_both_are_damaged(tmp_path: Path) -> None:
    """Each in the same message."""
    log = entry_log(40)
    stores = node(tmp_path / "a", log), node(tmp_path / "b", log)
    at = log.offsets[20]
    for number, store in enumerate(stores):
        change(data_file(store, at), at % FILE_SIZE + 90 + number)
    assert "copies of one log, but A and B are damaged" in rmqtool("diff", *stores).out
