"""Terms of damaged headers, and groups whose nodes have gone apart: the log of the latest leader is saved whole."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import numpy as np
import pytest

from rmqtool.salvage.carve import EXTENT_DTYPE, NO_TERM, Extents, Sources
from rmqtool.salvage.choose import agreed_terms, by_index, settle_terms
from tests.building import START_TIME
from tests.dledger_building import NODE, EntryBuilder, entry_log
from tests.salvage.entry_logs import file_at, messages, salvaged
from tests.verify.small_store import FILE_SIZE

TERM_AT = -48 + 16  # the first byte of a term, before a message


def extents_of(terms: list[int], records: list[int], times: list[int] | None = None) -> Extents:
    """Extents one after the other of one file, each with so many records, stored at these times or one by one."""
    extents = np.zeros(len(terms), EXTENT_DTYPE)
    extents["term"], extents["records"], extents["header_size"] = terms, records, 48
    extents["first_time"] = extents["last_time"] = times or list(range(len(terms)))
    return extents


def test_as_few_headers_as_explain_it_are_damaged() -> None:
    """Against every choice of extents whose terms never go down."""
    chance = random.Random(1)
    for _ in range(300):
        count = chance.randrange(1, 8)
        terms = [chance.randrange(4) for _ in range(count)]
        records = [chance.randrange(1, 5) for _ in range(count)]
        choices = (rows for size in range(1, count + 1) for rows in itertools.combinations(range(count), size))
        most = max(
            sum(records[row] for row in rows)
            for rows in choices
            if all(terms[one] <= terms[other] for one, other in itertools.pairwise(rows))
        )
        found = settle_terms(extents_of(terms, records), {0})["term"].tolist()
        assert found == sorted(found)
        assert sum(size for size, old, new in zip(records, terms, found, strict=True) if old == new) >= most


@pytest.mark.parametrize(
    ("terms", "times", "expected"),
    [
        ([1, 65, 1], [0, 1, 2], [1, 1, 1]),
        ([5, 1, 5], [0, 1, 2], [5, 5, 5]),
        ([1, 65, 1, 65, 1], [0, 1, 2, 3, 4], [1, 1, 1, 1, 1]),
        ([1, 2, 1], [0, 5, 1], [1, 2, 1]),  # older than what is before: left from before a cut
        ([NO_TERM, 3, NO_TERM], [0, 1, 2], [3, 3, 3]),
    ],
)
def test_terms(terms: list[int], times: list[int], expected: list[int]) -> None:
    assert settle_terms(extents_of(terms, [10, *[1] * (len(terms) - 2), 10], times), {0})["term"].tolist() == expected


def test_plain_files_have_no_term() -> None:
    """Those of other files than the named ones stay without."""
    assert settle_terms(extents_of([NO_TERM, NO_TERM], [1, 1]), set())["term"].tolist() == [NO_TERM, NO_TERM]


def test_more_is_not_missing_than_has_room() -> None:
    """An index that is damaged counts for nothing."""
    extents = extents_of([1, 1, 1], [10, 1, 10])
    extents["size"] = extents["records"] * 200
    extents["physical_offset"] = [0, 2000, 2600]
    extents["first_index"] = [0, 10, 13]
    assert by_index(extents, 22) == (2, 0)
    assert by_index(extents, 24) == (4, 0)
    assert by_index(extents, 20) == (2, 2)
    extents["first_index"] = [0, 1 << 40, 13]
    assert by_index(extents, 22) == (2, 0)


def parted_log(common: int, term: int, more: int) -> EntryBuilder:
    """Entries of which those after the common ones are of the leader of a term."""
    log = entry_log(common)
    log.term = term
    for number in range(more):
        log.put("orders", 0, body=f"{number} of term {term} ".encode() * (1 + term * number % 5),
                store_timestamp=START_TIME + 400 * common + 1000 * term + number,
                properties={"UNIQ_KEY": f"{term}F{number:030X}"})  # fmt: skip
    return log


def change(store: Path, log: EntryBuilder, row: int, position: int, bits: int) -> None:
    """Change a byte of an entry, at a position of its message."""
    offset = log.offsets[row]
    path = file_at(store, offset // FILE_SIZE * FILE_SIZE)
    data = bytearray(path.read_bytes())
    data[offset % FILE_SIZE + position] ^= bits
    path.write_bytes(data)


@pytest.mark.parametrize("seed", range(25))
def test_random_groups(seed: int, tmp_path: Path) -> None:
    """Nodes that end with messages of different leaders, with damaged headers and messages before."""
    chance = random.Random(seed)
    common = chance.randrange(5, 60)
    terms = chance.sample(range(2, 7), chance.choice((2, 3)))
    logs = [parted_log(common, term, chance.randrange(25)) for term in terms]
    stores = [log.write(tmp_path / str(number), committed=common - 1) for number, log in enumerate(logs)]
    damaged = set[int]()
    for log, store in zip(logs, stores, strict=True):
        for row in chance.sample(range(common), 2):
            position = chance.choice((-48, -40, -30, TERM_AT + 2, TERM_AT + 7, 4, 30, 92))
            damaged |= {row} if position > 0 else set()
            change(store, log, row, position, 1 << chance.randrange(8))
    latest = max((log for log in logs if len(log.offsets) > common), key=lambda log: log.term, default=logs[0])
    _, found = salvaged(tmp_path / "new", *chance.sample(stores, len(stores)))
    wanted = messages(latest)
    whole = [record for row, record in enumerate(wanted) if row not in damaged]
    assert [record for record in found if record in set(whole)] == whole


def test_a_damaged_term_at_the_end_of_a_node(tmp_path: Path) -> None:
    """Nothing after it proves it wrong, but another node that has the same message: what is behind there is saved."""
    short, log = entry_log(40), parted_log(40, 3, 10)
    stores = short.write(tmp_path / "a"), log.write(tmp_path / "b")
    change(stores[0], short, 39, TERM_AT + 3, 4)
    _, found = salvaged(tmp_path / "new", *stores)
    assert found == messages(log)


def test_a_damaged_term_before_other_damage(tmp_path: Path) -> None:
    """The entry behind is lost, so that no index follows."""
    log = entry_log(40)
    store = log.write(tmp_path / "a")
    change(store, log, 20, TERM_AT + 3, 4)
    change(store, log, 21, 4, 1)
    _, found = salvaged(tmp_path / "new", store)
    assert found == [record for row, record in enumerate(messages(log)) if row != 21]


@pytest.mark.parametrize("bits", [1, 4, 128])
def test_a_damaged_term_before_a_step_back_of_the_clock(bits: int, tmp_path: Path) -> None:
    """Indices go on after it: the log was not cut there, and a second node makes no difference."""
    log = entry_log(20)
    for number in range(20):
        log.put("orders", 0, body=f"{number}".encode(), store_timestamp=START_TIME + 10_000 - (number > 9))
    stores = log.write(tmp_path / "a"), log.write(tmp_path / "b")
    change(stores[0], log, 29, TERM_AT + 7, bits)
    for number, given in enumerate((stores, stores[::-1], stores[:1])):
        plan, found = salvaged(tmp_path / str(number), *given)
        assert found == messages(log)
        assert not plan.committed_missing


def test_a_damaged_entry_before_a_step_back_of_the_clock(tmp_path: Path) -> None:
    """What is behind it in the last file is not left from before a cut."""
    log = entry_log(40)
    count = len(log.offsets)
    for number in range(6):
        log.put("orders", 0, body=f"{number}".encode(), store_timestamp=START_TIME + 50_000 - 5 * (number > 3))
    assert log.offsets[count + 3] // FILE_SIZE == log.offsets[-1] // FILE_SIZE
    store = log.write(tmp_path / "a")
    change(store, log, count + 3, 4, 1)
    _, found = salvaged(tmp_path / "new", store)
    assert found == [record for row, record in enumerate(messages(log)) if row != count + 3]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_damaged_terms_at_the_end_of_a_node(count: int, tmp_path: Path) -> None:
    """They rise, as those of leaders: the other node, which has the same messages and more, proves them wrong."""
    short, log = entry_log(40), parted_log(40, 1, 10)
    stores = short.write(tmp_path / "a"), log.write(tmp_path / "b")
    for number in range(count):
        change(stores[0], short, 39 - number, TERM_AT + 7, 1 << (6 - number))
    for number, given in enumerate((stores, stores[::-1])):
        assert salvaged(tmp_path / str(number), *given)[1] == messages(log)


class SameRecords(Sources):
    """Sources that have the same record at each offset."""

    def have_same_record(self, one: np.void, other: np.void, physical_offset: int) -> bool:
        return True


@pytest.mark.parametrize(("records", "expected"), [([40, 1], [1, 1]), ([40, 10], [1, 3])])
def test_a_leader_with_more_than_one_entry(records: list[int], expected: list[int]) -> None:
    """A header of another source is damaged, rather than all entries of the leader."""
    sources = [extents_of([1, 3], records), extents_of([1], [41])]
    for extents in sources:
        sizes = 100 * np.array(extents["records"], np.int64)
        extents["size"], extents["physical_offset"] = sizes, np.cumsum(sizes) - sizes
    assert [extents["term"].tolist() for extents in agreed_terms(sources, SameRecords((), 1))] == [expected, [1]]


def test_a_term_above_that_of_the_node(tmp_path: Path) -> None:
    """The last entry of a node, where the other one is damaged, is of no leader that the node did not know."""
    short, log = entry_log(40), parted_log(40, 1, 10)
    stores = short.write(tmp_path / "a"), log.write(tmp_path / "b")
    change(stores[0], short, 39, TERM_AT + 3, 4)
    change(stores[1], log, 39, 4, 1)
    (stores[0] / NODE / "currterm").write_text("voteLeader=n0\ncurrTerm=1\n")
    assert salvaged(tmp_path / "new", *stores)[1] == messages(log)
