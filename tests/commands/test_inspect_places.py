"""Every kind of place on the command line: each way to show it, options that do not fit, and bad input."""

from __future__ import annotations

import csv
import io
import random
import re
import shutil
from pathlib import Path

import pytest

from rmqtool.base.errors import Exit
from rmqtool.store.paths import KINDS
from tests.commands.running import inspect, rmqtool
from tests.conftest import GoldenStore
from tests.sampling import one_in
from tests.unchanged import unchanged

FILE = "0" * 20
EXTRAS = {
    "consumequeue": f"consumequeue/orders/0/{FILE}",
    "consumequeue-ext": f"consumequeue_ext/orders/0/{FILE}",
    "index": "index",
    "checkpoint": "checkpoint",
    "abort": "abort.bak",
    "lock": "lock",
    "config": "config/topics.json",
    "timerlog": f"timerlog/{FILE}",
    "timercheck": "config/timercheck",
    "compaction": f"compaction/compactionLog/state/0/{FILE}",
    "compaction-queue": f"compaction/compactionCq/state/0/{FILE}",
    "timerwheel": "timerwheel",
}
GROUP = {
    "dledger": f"dledger-n0/data/{FILE}",
    "dledger-index": f"dledger-n0/index/{FILE}",
    "text": "dledger-n0/currterm",
}
PLACES = [("more/5.5.0-extras", kind, part) for kind, part in EXTRAS.items()]
PLACES += [("more/5.3.3-dledger", kind, part) for kind, part in GROUP.items()]
PLACES += [("5.3.3-clean", "batchconsumequeue", f"batchconsumequeue/bulk-inner/0/{FILE}")]
PLACES += [("5.3.3-clean", "commitlog", f"commitlog/{FILE}")]
CUTS, LONG_CUTS = 120, {"commitlog": 400, "dledger": 400, "compaction": 400}  # bytes: some units of each
VARYING = {"config", "text", "abort", "lock", "index"}  # what a part of them says may be more than the whole
WAYS = (["--hex"], ["--format", "csv"], ["--reverse", "--json"], ["--count"])
"""To show a place, beside --json; each kind of place has another for the same damage."""
ALLOWED = {Exit.OK, Exit.LOSSY, Exit.FAILED}


def test_every_kind_is_tried() -> None:
    """The list above leaves out none but the store itself, and databases, which are no files."""
    assert {kind for _, kind, _ in PLACES} == set(KINDS) - {"store", "rocksdb"}


@pytest.mark.one_in(3)
@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind", "part"), PLACES)
def test_every_way_to_show_a_place(golden_store: GoldenStore, name: str, kind: str, part: str) -> None:
    """Text, table, JSON, CSV, hex and counts of each kind tell of as many; nothing in the store changes."""
    store = golden_store(name)
    found = inspect(store, "--json", "--hex", part=part, every=1)
    assert found.status == Exit.OK, found.err
    lines = [line for line in found.lines if line["kind"] not in ("index_header", "blank")]
    assert lines
    counts = inspect(store, "--json", "--count", part=part).lines
    assert sum(counts[0]["counts"].values()) == len(found.lines)
    for options in ([], ["--format", "table"], ["--hex"], ["--reverse"]):
        shown = inspect(store, *options, part=part)
        assert (shown.status, shown.err) == (Exit.OK, "")
        assert shown.out.count("\n") >= len(lines)
    table = list(csv.reader(io.StringIO(inspect(store, "--format", "csv", part=part).out, newline="")))
    assert len(table) == 1 + len(lines)
    assert {len(row) for row in table} == {len(table[0])}
    plain = inspect(store, "--json", part=part).lines
    names = [name for name in lines[-1] if name not in ("kind", "hex")][:2]
    chosen = inspect(store, "--json", "--columns", ",".join(names), part=part).lines
    expected = [{key: line[key] for key in ("kind", *names)} for line in plain if set(names) <= line.keys()]
    assert [line for line in chosen if set(names) <= line.keys() and len(line) == 1 + len(names)] == expected


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind", "part"), PLACES)
def test_hex_may_be_a_column(golden_store: GoldenStore, name: str, kind: str, part: str) -> None:
    """The same bytes as beside all the others."""
    store = golden_store(name)
    found = [line.get("hex") for line in inspect(store, "--json", "--hex", part=part).lines]
    if any(found):
        chosen = inspect(store, "--json", "--columns", "hex", part=part).lines
        assert [line.get("hex") for line in chosen] == found


def _file_at(place: Path) -> Path:
    """A file itself, or one of a folder's."""
    return min(place.iterdir()) if place.is_dir() else place


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind", "part"), PLACES)
def test_a_copy_is_read_as_what_it_is(
    golden_store: GoldenStore, tmp_path: Path, name: str, kind: str, part: str
) -> None:
    """A copied file is refused with a hint, and read when told what it is."""
    source = _file_at(golden_store(name) / part)
    copy = tmp_path / "copied.bin"
    shutil.copyfile(source, copy)
    refused = inspect(tmp_path, part=copy.name)
    assert refused.status == Exit.FAILED
    assert "--as " in refused.err
    found = inspect(tmp_path, "--json", "--as", kind, part=copy.name, every=1)
    assert (found.status, found.err) == (Exit.OK, "")
    original = inspect(golden_store(name), "--json", part=f"{part}/{source.name}" if kind == "index" else part)
    assert len(found.lines) == len(original.lines)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind", "part"), PLACES)
def test_a_file_of_the_wrong_kind_says_what_it_looks_like(
    golden_store: GoldenStore, tmp_path: Path, name: str, kind: str, part: str
) -> None:
    """Refused where that is sure, a note where it is likely; never for what it is."""
    source = _file_at(golden_store(name) / part)
    shutil.copyfile(source, tmp_path / "copy.bin")
    known = inspect(tmp_path, part="copy.bin").err
    looks = re.search(r"looks like (.*)", known)
    for other in sorted(set(KINDS) - {"store", "rocksdb", "text", "abort", "lock", "commitlog"}):
        found = inspect(tmp_path, "--as", other, "--limit", "1", part="copy.bin")
        alike = {kind, other} in ({"commitlog", "compaction"}, {"batchconsumequeue", "compaction-queue"})
        if other == kind or alike:
            assert "looks like" not in found.err
        elif looks:
            assert f"looks like {looks[1]}" in found.err, other


def damages(data: bytes, seed: int) -> dict[str, bytes]:
    """Ways to spoil a file: cut, flipped, zero, foreign, huge numbers."""
    rng = random.Random(seed)
    found = {f"cut {size}": data[:size] for size in {0, 1, 2, 7, 19, 20, 39, 40, 47, 52, len(data) // 2, len(data) - 1}}
    found["zero"] = bytes(len(data))
    found["ones"] = b"\xff" * min(len(data), 4000)
    found["largest"] = b"\x7f\xff\xff\xff" * (min(len(data), 4000) // 4)
    found["foreign"] = rng.randbytes(min(len(data), 4000))
    found["text"] = b"# just a text\n" * 20
    head = min(len(data), 400)
    for number in range(8):
        spoilt = bytearray(data)
        for at in rng.sample(range(head), min(head, 1 + number % 3)):
            spoilt[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, spoilt[at] ^ 1 << rng.randrange(8)))
        found[f"flipped {number}"] = bytes(spoilt)
    return found


@pytest.mark.one_in(3)
@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind", "part"), [place for place in PLACES if place[1] != "timerwheel"])
def test_bad_input(unpacked: GoldenStore, tmp_path: Path, name: str, kind: str, part: str) -> None:
    """Whatever stands in a file, it is shown or refused; never a traceback, a hang, or a changed byte."""
    source = unpacked(name) / part
    if source.is_dir():
        source, part = min(source.iterdir()), f"{part}/{min(source.iterdir()).name}"
    data = source.read_bytes()
    file = tmp_path / part
    file.parent.mkdir(parents=True, exist_ok=True)
    statuses = set()
    spoilt_data = damages(data[:6000] if kind != "index" else data, len(kind))
    for number, (how, spoilt) in enumerate(spoilt_data.items()):
        file.write_bytes(spoilt)
        with unchanged(tmp_path):
            other = WAYS[(number + len(kind)) % len(WAYS)]
            for words in (["--json"], other, *([["--slots"]] if kind == "index" else [])):
                found = rmqtool("inspect", file, *words, every=1)
                assert found.status in ALLOWED, (how, words, found)
                assert "Traceback" not in found.err
                statuses.add(found.status)
    assert Exit.OK in statuses


@pytest.mark.one_in(3)
@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind", "part"), PLACES)
def test_a_file_cut_at_every_byte(unpacked: GoldenStore, tmp_path: Path, name: str, kind: str, part: str) -> None:
    """Up to some units of each kind: what is complete is shown, the more the longer the file is.

    `make test` cuts at every third byte.
    """
    source = unpacked(name) / part
    if source.is_dir():
        source, part = min(source.iterdir()), f"{part}/{min(source.iterdir()).name}"
    data = source.read_bytes()[: LONG_CUTS.get(kind, CUTS)]
    file = tmp_path / part
    file.parent.mkdir(parents=True, exist_ok=True)
    shown = []
    for size in one_in(3, range(len(data) + 1), part):
        file.write_bytes(data[:size])
        found = rmqtool("inspect", file, "--json")
        assert found.status in ALLOWED, (size, found)
        assert found.status == Exit.OK or "Traceback" not in found.err + found.out
        lines = [] if found.out.startswith("{\n") else found.lines  # a document tells why there are none
        shown.append(sum(line["kind"] not in ("error", "damage", "bad_unit") for line in lines))
        assert file.read_bytes() == data[:size]
    assert max(shown) > 0 or kind == "timerwheel"  # its first slots are empty
    assert kind in VARYING or shown == sorted(shown)


@pytest.mark.slow
@pytest.mark.parametrize("size", [0, 31, 32, 100_000])
def test_a_timer_wheel_of_any_size(unpacked: GoldenStore, tmp_path: Path, size: int) -> None:
    """A wheel that is cut shows the slots that are there, one full of ones shows them out of place."""
    file = tmp_path / "timerwheel"
    file.write_bytes((unpacked("more/5.5.0-extras") / "timerwheel").read_bytes()[:size])
    assert inspect(tmp_path, "--json", part="timerwheel", every=1).status == Exit.OK
    file.write_bytes(b"\x7f" * size)
    found = inspect(tmp_path, "--json", part="timerwheel", every=1)
    assert len(found.lines) == size // 32
    assert not any(line["in_place"] for line in found.lines)


@pytest.mark.parametrize(
    ("part", "options", "words"),
    [
        ("checkpoint", ["--topic", "t"], "--topic: it is not in these files"),
        ("lock", ["--from", "-2h", "--key", "k"], "--key, --from"),
        ("index", ["--slots", "--topic", "t"], "give --topic and one of them"),
        ("index", ["--slots", "--topic", "t", "--from", "-2h"], "--from: it is not in hash slots"),
        ("index", ["--follow"], "--follow is for a commit log"),
        ("commitlog", ["--follow", "--reverse"], "--follow is for a commit log, without"),
        ("commitlog", ["--slots"], "--slots is for index files"),
        ("commitlog", ["--columns", "topic,nothing"], "no such column here: 'nothing'"),
        ("commitlog", ["--columns", ","], "no such column"),
        ("commitlog", ["--json", "--format", "csv"], "--json and --format csv"),
        ("commitlog", ["--from", "5", "--to", "4"], "--from is later than --to"),
        ("", ["--reverse", "--limit", "1"], "--limit, --reverse: for a part of a store only"),
    ],
)
def test_options_that_do_not_fit(golden_store: GoldenStore, part: str, options: list[str], words: str) -> None:
    """Each is a usage error that names them, before anything is shown."""
    found = inspect(golden_store("5.3.3-single"), *options, part=part)
    assert found.status == Exit.USAGE
    if "--json" not in options:
        assert found.out == ""
        assert words in found.err
    else:
        assert words in found.document["error"]["message"]


@pytest.mark.slow
def test_filters_of_messages(golden_store: GoldenStore) -> None:
    """Filters on the command line choose among the lines; blanks stand in their place."""
    store = golden_store("5.3.3-clean")
    every = [line for line in inspect(store, "--json", part="commitlog").lines if line["kind"] == "message"]
    time = every[len(every) // 2]["store_timestamp"]
    for options, passes in (
        (["--topic", "orders", "--topic", "early"], lambda m: m["topic"] in ("orders", "early")),
        (["--queue", "1"], lambda m: m["queue_id"] == 1),
        (["--tag", "Aa || BB"], lambda m: m["tags"] in ("Aa", "BB")),
        (["--key", every[3]["unique_key"]], lambda m: m["unique_key"] == every[3]["unique_key"]),
        (["--from", str(time)], lambda m: m["store_timestamp"] >= time),
        (["--to", str(time)], lambda m: m["store_timestamp"] < time),
    ):
        found = [
            line for line in inspect(store, "--json", *options, part="commitlog").lines if line["kind"] == "message"
        ]
        expected = [line for line in every if passes(line)]
        assert found == expected
        assert 0 < len(found) < len(every)
        assert inspect(store, "--json", "--limit", "1", *options, part="commitlog").of_kind("message") == expected[:1]
        counted = inspect(store, "--json", "--count", *options, part="commitlog").lines[0]["counts"]["message"]
        assert counted == len(expected)


def test_damage_in_csv_is_told_beside(tmp_path: Path, unpacked: GoldenStore) -> None:
    """It has no line of its own; the status and a note tell."""
    file = tmp_path / "commitlog" / FILE
    file.parent.mkdir()
    data = bytearray((unpacked("5.3.3-clean") / "commitlog" / FILE).read_bytes())
    data[400:420] = b"\xff" * 20
    file.write_bytes(data)
    found = inspect(tmp_path, "--format", "csv", "--columns", "physical_offset", part="commitlog")
    assert found.status == Exit.LOSSY
    assert "not in CSV: 1 damaged range" in found.err


@pytest.mark.parametrize(("part", "word"), [("compaction", "compaction/compactionLog")])
def test_directories_that_are_not_listed(golden_store: GoldenStore, part: str, word: str) -> None:
    """What belongs to a store is named for what it is, and not taken for something that should be one."""
    found = inspect(golden_store("more/5.5.0-extras"), part=part)
    assert (found.status, found.out, word in found.err) == (Exit.FAILED, "", True)
