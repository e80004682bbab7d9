"""Real DLedger nodes on the stores that commands read as they are: the same answers, and the same files."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from rmqtool.base.errors import Exit
from rmqtool.formats.dledger import ENTRY_DTYPE, ENTRY_HEADER_SIZE, INDEX_UNIT_SIZE, MAGIC_ENTRY
from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.dledger_building import NODE
from tests.real_broker.harness import Harness, HarnessError, dledger_settings, group_settings
from tests.sampling import one_in
from tests.verify.damages import overwrite

pytestmark = [pytest.mark.broker, pytest.mark.slow]
Factory = Callable[[str], Harness]

INDEX_FILE = 5 * 1024 * 1024 * 32  # DLedgerConfig.mappedFileSizeForEntryIndex, bytes
STORES = [("4.9.7", "more/4.9.7-dledger"), ("5.3.3", "more/5.3.3-dledger"), ("5.3.3", "more/5.3.3-converted")]
EVERY_HOUR = ";".join(map(str, range(24)))
HOUR = 3600
DELETING_AT_MOST_S = 120
KEPT_FOR_S = 3
FIRST_RUN_S = 60  # the cleaner of all brokers begins so long after a start
RUN_EVERY_S = 10
CATCHING_UP_AT_MOST_S = 120


def node(golden: Path, tmp_path: Path) -> Path:
    """A copy on which a node starts: in golden ones the index of entries is cut after its units."""
    root = copied(golden, tmp_path / "store")
    for index in root.glob("dledger-*/index/*"):
        os.truncate(index, INDEX_FILE)
    return root


@pytest.mark.parametrize(("version", "name"), STORES)
def test_pulls_and_queries(
    harness: Factory, golden_store: GoldenStore, tmp_path: Path, version: str, name: str
) -> None:
    """What a consumer gets, and what a key finds."""
    root = golden_store(name)
    pulls: list[list[Any]] = [
        ["orders", queue, offset, 32, None] for queue in (0, 1) for offset in (0, 5, 150, 198, 199, 200, 201, 500)
    ]
    pulls = [*one_in(3, pulls, name)]
    keys: list[list[Any]] = [["orders", f"key{number}", 1000, 0, 1 << 60] for number in one_in(3, range(5), name)]
    asked: dict[str, Any] = {"pull": pulls, "query": keys}
    answers = harness(version).ask(node(root, tmp_path), asked, dledger_settings())
    for (topic, queue, offset, most, _), expected in zip(pulls, answers["pull"], strict=True):
        options = ("--topic", topic, "--queue", str(queue), "--queue-offset", str(offset), "--max", str(most))
        [found] = rmqtool("query", root, "--pull", *options, "--json", "--broker-version", version).lines
        offsets = [message["physical_offset"] for message in found["messages"]]
        assert {**{key: found[key] for key in expected if key in found}, "physical_offsets": offsets} == expected
    for (topic, key, *_), expected in zip(keys, answers["query"], strict=True):
        rows = rmqtool("query", root, "--topic", topic, "--key", key, "--limit", "1000", "--json").lines
        assert {row["physical_offset"] for row in rows} == set(expected)


@pytest.mark.parametrize(("version", "name"), STORES)
def test_a_node_serves_rebuilt_queues(
    harness: Factory, golden_store: GoldenStore, tmp_path: Path, version: str, name: str
) -> None:
    """Queues that were lost and rebuilt lead it to all messages."""
    questions = {"read": [["orders", 0], ["orders", 1]]}
    (tmp_path / "healthy").mkdir()
    expected = harness(version).ask(node(golden_store(name), tmp_path / "healthy"), questions, dledger_settings())
    root = node(golden_store(name), tmp_path)
    shutil.rmtree(root / "consumequeue" / "orders" / "1")
    assert rmqtool("rebuild-cq", root, "--yes", "--broker-version", version).status == Exit.OK
    found = harness(version).ask(root, questions, dledger_settings())
    assert found["read"] == expected["read"]
    assert sum(map(len, found["read"])) >= 400


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("ages", "gone"), [((80, 72.5), 1), ((80, 74), 2), ((72.5, 80), 0)])
@pytest.mark.parametrize(("version", "name"), STORES[:2])
def test_a_node_deletes_what_clean_says(
    harness: Factory, golden_store: GoldenStore, tmp_path: Path, version: str, name: str, ages: tuple[float, ...],
    gone: int,
) -> None:  # fmt: skip
    """An hour later than an ordinary broker: the first younger file ends it, and the last one stays."""
    root = node(golden_store(name), tmp_path)
    files = sorted((root / NODE / "data").iterdir())
    for file, hours in zip(files, ages, strict=False):
        moment = time.time() - hours * HOUR
        os.utime(file, (moment, moment))
    options = ("--delete-when", EVERY_HOUR, "--broker-version", version)
    document = rmqtool("clean", root, "--dry-run", "--json", *options).document["result"]
    assert [each["file"] for each in document["passes"][0]["commit_log"]] == [
        str(file.relative_to(root)) for file in files[:gone]
    ]
    settings = {**dledger_settings(), "deleteWhen": EVERY_HOUR}
    with harness(version).hold(root, 0, settings):
        until = time.monotonic() + DELETING_AT_MOST_S
        while files[gone - 1].exists() and gone and time.monotonic() < until:
            time.sleep(0.1)
        time.sleep(KEPT_FOR_S)  # it looks ten times a second
        assert sorted((root / NODE / "data").iterdir())[: 3 - gone] == files[gone:]


@pytest.mark.rare
@pytest.mark.parametrize(("version", "gone"), [("4.9.7", 4), ("5.3.3", 0)])
def test_plain_files_hold_a_node_back(
    harness: Factory, golden_store: GoldenStore, tmp_path: Path, version: str, gone: int
) -> None:
    """Up to 4.9.x the plain file goes, and then those of entries; in later releases none of both ever does."""
    root = node(golden_store(STORES[2][1]), tmp_path)
    files = sorted((root / "commitlog").iterdir()) + sorted((root / NODE / "data").iterdir())
    for file, hours in zip(files, (90, 80, 79, 78), strict=True):
        moment = time.time() - hours * HOUR
        os.utime(file, (moment, moment))
    options = ("--delete-when", EVERY_HOUR, "--broker-version", version, "--all-runs")
    document = rmqtool("clean", root, "--dry-run", "--json", *options).document["result"]
    expected = [root / each["file"] for run in document["passes"] for each in run["commit_log"]]
    assert expected == files[: max(0, gone - 1)]
    with harness(version).hold(root, 0, {**dledger_settings(), "deleteWhen": EVERY_HOUR}):
        until = time.monotonic() + FIRST_RUN_S + DELETING_AT_MOST_S
        while any(file.exists() for file in expected) and time.monotonic() < until:
            time.sleep(0.5)
        time.sleep(KEPT_FOR_S if expected else FIRST_RUN_S + 2 * RUN_EVERY_S)
        assert [file for file in files if not file.exists()] == expected


@pytest.mark.one_in(3)
@pytest.mark.parametrize("what", ["index", "cut", "last-cut", "gap", "empty"])
def test_files_that_a_node_does_not_start_with(
    harness: Factory, golden_store: GoldenStore, tmp_path: Path, what: str
) -> None:
    """As verify says: data files of another size, and one that is missing; an index that is gone is made again."""
    version, name = STORES[1]
    root = node(golden_store(name), tmp_path)
    files = sorted((root / NODE / "data").iterdir())
    match what:
        case "index":
            for path in (root / NODE / "index").iterdir():
                path.unlink()
        case "gap":
            files[1].unlink()
        case _:
            os.truncate(files[2 if what == "last-cut" else 1], 0 if what == "empty" else 50_000)
    effects = [each["effect"] for each in rmqtool("verify", root, "--json").document["findings"]]
    refuses = any(effect.startswith("the node does not start") for effect in effects)
    questions = {"read": [["orders", 0], ["orders", 1]]}
    if what == "index":
        found = harness(version).ask(root, questions, dledger_settings())
        assert [len(messages) for messages in found["read"]] == [200, 200]
        assert rmqtool("verify", root, "--json").document["result"]["verdict"] == "unproven"
    else:
        with pytest.raises(HarnessError):
            harness(version).ask(root, questions, dledger_settings())
    assert refuses == (what != "index")


@pytest.mark.one_in(4)
@pytest.mark.parametrize("field", ["position", "body_size", "index", "term"])
@pytest.mark.parametrize(("version", "name"), STORES[:2])
def test_a_header_that_does_not_fit_ends_the_log(
    harness: Factory, golden_store: GoldenStore, tmp_path: Path, version: str, name: str, field: str
) -> None:
    """As verify says: a start cuts the log there, or after it where the next term is lower; salvage has all of it."""
    root = node(golden_store(name), tmp_path)
    *before, last = sorted((root / NODE / "data").iterdir())
    headers = list(_entries(last.read_bytes()))
    row = len(headers) // 2
    place, header = headers[row]
    header[field] += 1
    overwrite(root, str(last.relative_to(root)), place, header.tobytes())
    row += field == "term"
    document = rmqtool("verify", root, "--json", "--broker-version", version).document
    told = [each["offset"] for each in document["findings"] if each["code"] == "commitlog.entry-header"]
    assert told == [int(last.name) + headers[row][0] + ENTRY_HEADER_SIZE]
    assert rmqtool("salvage", root, "--output", tmp_path / "new", "--broker-version", version).status == Exit.OK
    saved = rmqtool("verify", tmp_path / "new", "--json").document["result"]["messages"]
    kept = sum(len(list(_entries(file.read_bytes()))) for file in before) + row
    assert saved == document["result"]["messages"] > kept
    found = harness(version).ask(root, {"read": [["orders", 0], ["orders", 1]]}, dledger_settings())
    assert sum(map(len, found["read"])) == kept


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("text", "starts"), [("3x9", False), ("", True), ("9999", True)])
def test_a_checkpoint_that_a_node_does_not_start_with(
    harness: Factory, golden_store: GoldenStore, tmp_path: Path, text: str, starts: bool
) -> None:
    """As verify says; what verify names makes it start."""
    version, name = STORES[1]
    root = node(golden_store(name), tmp_path)
    (root / NODE / "checkpoint").write_text(f"committedIndex={text}\nendIndex=399\n")
    findings = rmqtool("verify", root, "--json", "--broker-version", version).document["findings"]
    remedies = [each["remedy"] for each in findings if each["code"] == "store.dledger-checkpoint"]
    assert bool(remedies) != starts
    for remedy in remedies:
        with pytest.raises(HarnessError, match=r"NumberFormatException|refuses to load"):
            harness(version).ask(root, {}, dledger_settings())
        subprocess.run(shlex.split(remedy), check=True)
    found = harness(version).ask(root, {"read": [["orders", 0], ["orders", 1]]}, dledger_settings())
    assert sum(map(len, found["read"])) == 400


@pytest.mark.rare
@pytest.mark.one_in(2)
@pytest.mark.parametrize(("version", "name"), STORES[:2])
def test_an_index_unit_that_leads_elsewhere_holds_a_new_node_back(
    harness: Factory, golden_store: GoldenStore, tmp_path: Path, version: str, name: str
) -> None:
    """As verify says: it gets no entry from there on, until what verify names is done."""
    root, new, again = node(golden_store(name), tmp_path), tmp_path / "new", tmp_path / "again"
    harness(version).write(root, "dledger")  # a start reads the last three data files, and fixes their index
    files = sorted((root / NODE / "data").iterdir())
    _, (place, header), *_ = _entries(files[1].read_bytes())
    unit = int(header["index"][0]) * INDEX_UNIT_SIZE
    overwrite(root, f"{NODE}/index/{0:020d}", unit, b"\0" * INDEX_UNIT_SIZE)
    _let_catch_up(harness(version), root, new, int(files[1].name) + place)
    findings = rmqtool("verify", root, "--json", "--broker-version", version).document["findings"]
    [finding] = [each for each in findings if each["code"] == "store.dledger-index"]
    assert finding["offset"] == int(files[1].name) + place + ENTRY_HEADER_SIZE
    subprocess.run(shlex.split(finding["remedy"]), check=True)
    *_, (place, header) = _entries(files[-1].read_bytes())
    _let_catch_up(harness(version), root, again, int(files[-1].name) + place + int(header["size"][0]))


def _let_catch_up(harness: Harness, root: Path, new: Path, expected: int) -> None:
    """Start a node on a store, and a new one, whose log ends at `expected`, bytes, when nothing is added any more."""
    data = new / "dledger-n1" / "data"
    new.mkdir()
    first, second = group_settings(2)
    with harness.hold(root, 0, first), harness.hold(new, 0, second):
        until = time.monotonic() + CATCHING_UP_AT_MOST_S
        while _log_end(data) < expected and time.monotonic() < until:
            time.sleep(0.1)
        time.sleep(KEPT_FOR_S)
    assert _log_end(data) == expected


def _log_end(data: Path) -> int:
    """Where the last entry of a node ends, bytes."""
    entries = [(file, *each) for file in sorted(data.glob("*")) for each in _entries(file.read_bytes())]
    return int(entries[-1][0].name) + entries[-1][1] + int(entries[-1][2]["size"][0]) if entries else 0


def _entries(data: bytes) -> Iterator[tuple[int, NDArray[np.void]]]:
    """Where the entries of a file begin, and their headers, to be changed."""
    place = 0
    while place + ENTRY_HEADER_SIZE <= len(data):
        header = np.frombuffer(data, ENTRY_DTYPE, 1, place).copy()
        if header["magic"] != MAGIC_ENTRY:
            return
        yield place, header
        place += int(header["size"][0])
