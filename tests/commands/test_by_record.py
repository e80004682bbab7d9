"""Filters that look at the messages to which units point, on the command line."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqtool.base.errors import Exit
from rmqtool.formats.consume_queue import build_unit
from tests.building import LogBuilder
from tests.commands.running import inspect
from tests.conftest import GoldenStore

QUEUE = "consumequeue/orders/0"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Five messages in a log that begins at 4096; two units before them point nowhere, one after them too."""
    log = LogBuilder(start_offset=4096)
    log.add_all([{"store_timestamp": 1000 + number, "properties": {"KEYS": f"k{number}"}} for number in range(5)])
    log.write(tmp_path)
    size = log.offsets[1] - log.offsets[0]
    units = [build_unit(offset, size, 0) for offset in (0, 100, *log.offsets, log.end)]
    (tmp_path / QUEUE).mkdir(parents=True)
    (tmp_path / QUEUE / ("0" * 20)).write_bytes(b"".join(units))
    return tmp_path


@pytest.mark.parametrize("part", ["consumequeue", "consumequeue/orders", QUEUE, f"{QUEUE}/{'0' * 20}"])
def test_by_time_and_by_key(store: Path, part: str) -> None:
    """A folder or a file: the units whose message passes, then how many could not be judged."""
    for options, expected in (
        (["--from", "1003"], [5, 6]),
        (["--from", "1001", "--to", "1003"], [3, 4]),
        (["--key", "k2", "--key", "k4"], [4, 6]),
        (["--key", "k2", "--to", "1000"], []),
    ):
        found = inspect(store, "--json", *options, part=part, every=1)
        assert found.status == Exit.LOSSY
        assert [line["queue_offset"] for line in found.of_kind("message")] == expected
        assert found.lines[-1] == {"kind": "unjudged", "deleted": 2, "unread": 1}
        counted = inspect(store, "--json", "--count", *options, part=part, every=1)
        assert counted.status == Exit.LOSSY
        assert counted.lines[0]["counts"].get("message", 0) == len(expected)
        assert counted.lines[1:] == found.lines[-1:]


@pytest.mark.parametrize("form", [[], ["--format", "csv"], ["--format", "table"], ["--count"]])
def test_what_cannot_be_judged_is_told_beside(store: Path, form: list[str]) -> None:
    """Deleted messages are a note; missing ones are one too, and the status."""
    found = inspect(store, "--from", "1003", *form, part=QUEUE)
    assert found.status == Exit.LOSSY
    assert "2 entries left out: their messages have been deleted" in found.err
    assert "1 entry left out: the log has no message where they point" in found.err
    quiet = inspect(store, "-q", "--from", "1003", *form, part=QUEUE)
    assert "deleted" not in quiet.err
    assert "no message where" in quiet.err


@pytest.mark.slow
def test_deleted_messages_are_no_loss(golden_store: GoldenStore) -> None:
    """A cleaner leaves units before the log's first file in every store."""
    found = inspect(golden_store("5.3.3-trimmed"), "--json", "--from", "0", part="consumequeue")
    assert found.status == Exit.OK
    assert found.lines[-1]["deleted"] > 0
    assert found.lines[-1]["unread"] == 0
    whole = inspect(golden_store("5.3.3-clean"), "--json", "--from", "0", part="consumequeue")
    assert {line["kind"] for line in whole.lines} == {"message"}


def test_a_copy_without_the_log(golden_store: GoldenStore, tmp_path: Path) -> None:
    """Nothing there could judge: refused, with the place where the same question has an answer."""
    source = golden_store("5.3.3-clean")
    shutil.copyfile(source / QUEUE / ("0" * 20), tmp_path / "copy.bin")
    for options in (["--key", "k"], ["--from", "0"], ["--to", "5", "--key", "k"]):
        found = inspect(tmp_path, "--as", "consumequeue", *options, part="copy.bin")
        assert found.status == Exit.USAGE
        assert "there is no commit log next to them" in found.err
        assert "commitlog" in found.err
    shutil.copyfile(min((source / "index").iterdir()), tmp_path / "copied-index")
    refused = inspect(tmp_path, "--as", "index", "--key", "k", part="copied-index")
    assert refused.status == Exit.USAGE
    assert "give --topic and one of --key and --tag" in refused.err
    hashed = inspect(tmp_path, "--as", "index", "--json", "--topic", "orders", "--key", "k", part="copied-index")
    assert hashed.status == Exit.OK


def test_environment_waits_for_a_log(
    golden_store: GoldenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A filter that is set for every command line refuses none."""
    shutil.copyfile(golden_store("5.3.3-clean") / QUEUE / ("0" * 20), tmp_path / "copy.bin")
    every = inspect(tmp_path, "--json", "--as", "consumequeue", part="copy.bin")
    monkeypatch.setenv("RMQTOOL_INSPECT_KEY", "k")
    found = inspect(tmp_path, "--json", "--as", "consumequeue", part="copy.bin")
    assert (found.status, found.out) == (Exit.OK, every.out)


@pytest.mark.slow
def test_index_units_by_their_message(golden_store: GoldenStore) -> None:
    """A topic without a key, and a key without a topic, are looked up; both together are a hash."""
    store = golden_store("5.3.3-clean")
    log = inspect(store, "--json", part="commitlog").of_kind("message")
    wanted = next(message for message in log if message["keys"])
    key, topic = wanted["keys"][0], wanted["topic"]
    by_key = inspect(store, "--json", "--key", key, part="index").of_kind("index_unit")
    holders = {message["physical_offset"] for message in log if key in (*message["keys"], message["unique_key"])}
    assert {unit["physical_offset"] for unit in by_key} == holders
    by_topic = inspect(store, "--json", "--topic", topic, part="index").of_kind("index_unit")
    of_topic = {message["physical_offset"] for message in log if message["topic"] == topic}
    assert {unit["physical_offset"] for unit in by_topic} <= of_topic
    both = inspect(store, "--json", "--topic", topic, "--key", key, part="index").of_kind("index_unit")
    assert {unit["physical_offset"] for unit in both} <= holders & of_topic
    assert len(both) < len(by_key) < len(by_topic)
    slots = inspect(store, "--json", "--slots", "--topic", topic, "--key", key, part="index").of_kind("index_slot")
    assert {slot["slot"] for slot in slots} == {unit["slot"] for unit in both}


def test_config_entries_of_a_topic(golden_store: GoldenStore) -> None:
    """Under its own name, or with a group after it."""
    store = golden_store("5.3.3-clean")
    every = inspect(store, "--json", part="config").lines
    found = inspect(store, "--json", "--topic", "orders", part="config").lines
    assert found == [line for line in every if line["table"] and line["name"].split("@")[0] == "orders"]
    assert {line["name"] for line in found} > {"orders"}
