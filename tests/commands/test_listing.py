"""Every message of a commit log: ranges, bodies, text that is not UTF-8, copied files."""

from __future__ import annotations

import base64
import json
import os
import shutil
import zlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rmqtool.base.errors import Exit
from rmqtool.formats.message import COMPRESSED, body_crc
from rmqtool.formats.properties import encode_properties
from tests.building import LogBuilder
from tests.commands.running import inspect, listing, rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.unchanged import unchanged

NAME = "5.3.3-clean"
START = "0" * 20


@pytest.fixture
def golden(golden_store: GoldenStore) -> Path:
    return golden_store(NAME)


def build(tmp_path: Path, *messages: dict[str, Any], file_size: int = 4096) -> Path:
    return LogBuilder(file_size=file_size).add_all(messages).write(tmp_path / "store")


def text_of(store: Path, *options: str) -> str:
    return inspect(store, *options, part="commitlog").out


@pytest.mark.slow
def test_limit(golden: Path) -> None:
    """A limit counts messages; what stands between them comes along."""
    every = listing(golden).lines
    for limit in (0, 1, 2, 100, 300, 5000):
        found = listing(golden, "--limit", str(limit)).lines
        messages = [number for number, line in enumerate(every) if line["kind"] == "message"]
        end = 0 if not limit else messages[limit - 1] + 1 if limit <= len(messages) else len(every)
        assert found == every[:end]


@pytest.mark.slow
def test_offsets_choose_what_begins_between_them(golden: Path) -> None:
    """Any byte may be a border: ranges that meet give everything once, in order."""
    every = listing(golden).lines
    borders = [0, 1, 370, 371, 372, 65_113, 65_535, 65_536, 65_537, 300_001, 595_170, 10**15]
    found = []
    for first, last in pairwise(borders):
        part = listing(golden, "--from-offset", str(first), "--to-offset", str(last)).lines
        assert part == [line for line in every if first <= line["physical_offset"] < last]
        found += part
    assert found == every


@pytest.mark.slow
def test_one_file_of_several(golden: Path) -> None:
    """A file gives the lines that name it, as JSON and as text."""
    every = listing(golden).lines
    parts = [listing(golden, part=f"commitlog/{file.name}") for file in sorted((golden / "commitlog").iterdir())]
    assert [part.status for part in parts] == [Exit.OK] * len(parts)
    assert [line for part in parts for line in part.lines] == every
    assert {len(part.lines) > 0 for part in parts} == {True}


@pytest.mark.slow
def test_copied_and_renamed_files(golden: Path, tmp_path: Path) -> None:
    """A copy elsewhere is read when told what it is; the first record tells the place of one without its name."""
    source = golden / "commitlog" / "65536".zfill(20)
    expected = [{**line, "file": None} for line in listing(golden, part=f"commitlog/{source.name}").lines]
    for name in (source.name, "copy.bin"):
        copy = tmp_path / name
        shutil.copyfile(source, copy)
        assert inspect(tmp_path, part=name).status == Exit.FAILED
        found = listing(tmp_path, "--as", "commitlog", part=name)
        assert found.status == Exit.OK
        assert [{**line, "file": None} for line in found.lines] == expected
        assert {line["file"] for line in found.of_kind("message")} == {name}


def test_a_directory_of_copies(golden: Path, tmp_path: Path) -> None:
    """Log files in a directory of another name are a log when told so; another directory is none."""
    (tmp_path / "copies").mkdir()
    for file in sorted((golden / "commitlog").iterdir())[:2]:
        shutil.copy(file, tmp_path / "copies")
    found = listing(tmp_path, "--as", "commitlog", part="copies")
    assert [line["physical_offset"] for line in found.lines] == [
        line["physical_offset"] for line in listing(golden, "--to-offset", "131072").lines
    ]
    assert inspect(tmp_path, part="copies").status == Exit.NOT_A_STORE
    assert "no commit log file" in inspect(tmp_path, "--as", "commitlog").err


def test_a_copy_that_tells_no_place(tmp_path: Path) -> None:
    """Without a name and without a first record a file cannot be read, and the hint says what to do."""
    (tmp_path / "copy.bin").write_bytes(bytes(1000))
    found = inspect(tmp_path, "--as", "commitlog", part="copy.bin")
    assert found.status == Exit.FAILED
    assert "rename a copy to its start offset" in found.err


def test_a_file_under_a_wrong_name(golden: Path, tmp_path: Path) -> None:
    """Its name counts: every record then tells another position, and all of the file is damage."""
    shutil.copyfile(golden / "commitlog" / START, tmp_path / "131072".zfill(20))
    found = listing(tmp_path, "--as", "commitlog", part="131072".zfill(20))
    assert found.status == Exit.LOSSY
    assert [damage["physical_offset"] for damage in found.of_kind("damage")] == [131072]
    assert found.of_kind("message") == []


@pytest.mark.slow
def test_the_log_by_other_ways(golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link to the log, a link of its name to another directory, and the working directory lead to the same."""
    expected = listing(golden).out
    (tmp_path / "link").symlink_to(golden / "commitlog")
    assert rmqtool("inspect", tmp_path / "link", "--json").out == expected
    copied(golden / "commitlog", tmp_path / "disk2")
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "commitlog").symlink_to("../disk2")
    assert rmqtool("inspect", tmp_path / "store" / "commitlog", "--json").out == expected
    assert (
        rmqtool("inspect", tmp_path / "store" / "commitlog" / START, "--json").lines[0]["file"].startswith("commitlog/")
    )
    monkeypatch.chdir(golden / "commitlog")
    assert rmqtool("inspect", ".", "--json").out == expected
    assert rmqtool("inspect", START, "--json").lines[0]["file"] == f"commitlog/{START}"
    monkeypatch.chdir(golden)
    assert rmqtool("inspect", "commitlog", "--json").out == expected
    assert rmqtool("inspect", "./commitlog/../commitlog/", "--json").out == expected


@pytest.mark.slow
def test_bodies_of_every_kind(golden: Path) -> None:
    """Decompressed, stored and no body; the bytes are those whose length and CRC the record tells."""
    plain, stored, without = (
        listing(golden, "--body", choice).of_kind("message") for choice in ("decompressed", "stored", "none")
    )
    kinds = set()
    for one, other, bare in zip(plain, stored, without, strict=True):
        data = body_of(other)
        assert len(data) == other["body_size"]
        assert not data or body_crc(data) == other["body_crc"]
        if one["compression"] == "zlib":
            assert body_of(one) == zlib.decompress(data)
        elif one["compression"] == "none":
            assert body_of(one) == data
        else:
            assert body_of(one) != data
        kinds.add((one["compression"], one["body"] is None))
        assert bare.keys().isdisjoint({"body", "body_base64", "body_error"})
        assert bare == {name: value for name, value in one.items() if not name.startswith("body") or name in bare}
    assert {("none", False), ("none", True), ("zlib", False), ("lz4", False), ("zstd", False)} <= kinds


def body_of(message: dict[str, Any]) -> bytes:
    return base64.b64decode(message["body_base64"]) if message["body"] is None else message["body"].encode()


def test_bodies_that_are_not_utf_8(tmp_path: Path) -> None:
    """The body is null and its bytes stand beside it; a body that is UTF-8 stands alone."""
    store = build(tmp_path, {"body": b"\xff\xfe\x00"}, {"body": "é".encode()}, {"body": b""}, {"body": b"\0"})
    found = listing(store).lines
    assert [line["body"] for line in found] == [None, "é", "", "\0"]
    assert [line.get("body_base64") for line in found] == ["//4A", None, None, None]


def test_a_body_that_does_not_decompress(tmp_path: Path) -> None:
    """It is shown as stored, with the reason, and is no damage of the log."""
    store = build(
        tmp_path, {"sys_flag": COMPRESSED, "body": b"no zlib"}, {"sys_flag": COMPRESSED | 0x700, "body": b"x"}
    )
    found = listing(store)
    assert found.status == Exit.OK
    assert [(line["body"], "body_error" in line, line["compression"]) for line in found.lines] == [
        ("no zlib", True, "zlib"),
        ("x", True, "unknown"),
    ]
    assert text_of(store).count("shown as stored") == 2


def test_a_wrong_crc(tmp_path: Path) -> None:
    """A body that does not have the stored CRC says so, and the message is shown."""
    store = build(tmp_path, {"body": b"one", "body_crc": 1}, {"body": b"two"})
    assert [line["body_crc_ok"] for line in listing(store).lines] == [False, True]
    assert "WRONG" in text_of(store)


def test_topics_and_properties_that_are_not_utf_8(tmp_path: Path) -> None:
    """They are decoded as Java does, and the stored bytes stand beside them; others have no such neighbour."""
    properties = b"KEYS\x01\xff\x02a\x01b\x02"
    store = build(tmp_path, {"topic": b"t\xff", "properties": properties}, {"topic": b"t", "properties": {"a": "é"}})
    bad, good = listing(store).lines
    assert bad["topic"] == "t\ufffd"
    assert bad["properties"] == {"KEYS": "\ufffd", "a": "b"}
    assert bad["keys"] == ["\ufffd"]
    assert base64.b64decode(bad["topic_base64"]) == b"t\xff"
    assert base64.b64decode(bad["properties_base64"]) == properties
    assert {"topic_base64", "properties_base64"}.isdisjoint(good)


def test_properties_as_stored(tmp_path: Path) -> None:
    """Stored order, the last of equal names, keys split at spaces, tags and unique key beside them."""
    properties = b"b\x011\x02a\x012\x02KEYS\x01 k1  k2 \x02TAGS\x01T\x02UNIQ_KEY\x01U\x02b\x013\x02"
    (found,) = listing(build(tmp_path, {"properties": properties})).lines
    assert list(found["properties"].items())[:2] == [("b", "3"), ("a", "2")]
    assert (found["keys"], found["tags"], found["unique_key"]) == (["k1", "k2"], "T", "U")


def test_body_formats(tmp_path: Path) -> None:
    """Text, hex, indented JSON and base64; what is not JSON is shown as text, what is not text in hex."""
    body = b'{"a":[1]}'
    store = build(tmp_path, {"body": body}, {"body": b"plain"}, {"body": b"\xff\x00A"})
    assert '\n    {"a":[1]}\n' in text_of(store)
    assert f"000000  {body.hex(' '):<47}  {body.decode()}\n" in text_of(store, "--body-format", "hex")
    assert '\n    {\n      "a": [\n        1\n      ]\n    }\n' in text_of(store, "--body-format", "json")
    assert base64.b64encode(body).decode() in text_of(store, "--body-format", "base64")
    for body_format in ("text", "json"):
        assert "\n    plain\n" in text_of(store, "--body-format", body_format)
        assert "000000  ff 00 41" in text_of(store, "--body-format", body_format)
    assert body.decode() not in text_of(store, "--body", "none")
    deep = build(tmp_path / "deep", {"body": b"[" * 2000}, {"body": b"1" * 3000}, {"body": b'"\\ud800"'})
    assert inspect(deep, "--body-format", "json", part="commitlog").status == Exit.OK


def test_a_blank_passes_no_filter(golden_store: GoldenStore) -> None:
    """People do not see the ends of files where they look for messages; the status says that there are none."""
    log = golden_store("5.3.3-clean") / "commitlog"
    found = rmqtool("inspect", log, "--topic", "ordres")
    assert (found.status, found.out) == (Exit.FINDINGS, "")
    assert "did you mean orders?" in found.err
    assert rmqtool("inspect", log, "--topic", "ordres", "--json").status == Exit.FINDINGS


def test_blanks_and_damage(tmp_path: Path) -> None:
    """They stand in their place, in text too, and what lies after them is listed."""
    store = build(tmp_path, *[{"body": bytes(80)}] * 6, file_size=600)
    file = store / "commitlog" / START
    data = bytearray(file.read_bytes())
    data[4:8] = b"\0\0\0\1"
    file.write_bytes(data)
    found = listing(store)
    assert found.status == Exit.LOSSY
    size = found.of_kind("message")[0]["message_size"]
    kinds = ["damage", "message", "message", "blank", "message", "message", "message"]
    assert [line["kind"] for line in found.lines] == kinds
    assert found.lines[0] == {"kind": "damage", "physical_offset": 0, "size": size, "reason": "magic-code"}
    text = text_of(store)
    assert text.startswith(f"damage   0 to {size}  {size} B: magic-code, neither a message nor a blank begins here\n")
    assert f"\nblank    {3 * size} to 600  {600 - 3 * size} B, the end of the file\n" in text


def test_a_missing_file(golden: Path, tmp_path: Path) -> None:
    """Bytes that no file holds are damage, and nothing is looked for in them."""
    store = copied(golden, tmp_path / "store")
    (store / "commitlog" / "65536".zfill(20)).unlink()
    found = listing(store, "--limit", "200")
    assert found.status == Exit.LOSSY
    assert found.of_kind("damage") == [{"kind": "damage", "physical_offset": 65536, "size": 65536, "reason": "missing"}]


def test_times_beyond_the_calendar(tmp_path: Path) -> None:
    """A timestamp with no date is a number, and its time is null; text shows the number."""
    store = build(tmp_path, {"store_timestamp": (1 << 63) - 1, "born_timestamp": -(1 << 63)})
    (found,) = listing(store).lines
    assert (found["store_timestamp"], found["store_time"]) == ((1 << 63) - 1, None)
    assert (found["born_timestamp"], found["born_time"]) == (-(1 << 63), None)
    assert str((1 << 63) - 1) in text_of(store)


def test_lines_are_lines(tmp_path: Path) -> None:
    """Line separators inside of text never end a JSON line."""
    nasty = "a\nb\r\u2028\u2029\x85\x0c\x7f"
    store = build(tmp_path, {"body": nasty.encode(), "properties": encode_properties({"k": nasty})})
    out = inspect(store, "--json", part="commitlog").out
    assert len(out.splitlines()) == 1
    assert json.loads(out)["body"] == json.loads(out)["properties"]["k"] == nasty


@pytest.mark.slow
def test_a_log_elsewhere(golden: Path, tmp_path: Path) -> None:
    """Commit log paths of broker.conf are followed; files outside of the store have absolute names."""
    for number, file in enumerate(sorted((golden / "commitlog").iterdir())):
        (tmp_path / f"disk{number % 2}").mkdir(exist_ok=True)
        shutil.copy(file, tmp_path / f"disk{number % 2}")
    (tmp_path / "store").mkdir()
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathCommitLog={tmp_path}/disk0,{tmp_path}/disk1\n")
    with unchanged(tmp_path):
        found = rmqtool("inspect", tmp_path / "store", "--json", "--scan", "--broker-conf", conf)
    expected = inspect(golden, "--json", "--scan").document["result"]
    assert found.status == Exit.OK
    assert found.document["result"]["broker"]["layout"] == "multi-path"
    assert found.document["result"]["commit_log"] == expected["commit_log"]
    assert found.document["result"]["scan"] == expected["scan"]
    with unchanged(tmp_path):
        text = rmqtool("inspect", tmp_path / "store", "--broker-conf", conf)
        lines = rmqtool("inspect", tmp_path / "disk1", "--broker-conf", conf, "--json").lines
    assert f"rmqtool inspect {tmp_path}/disk0 --broker-conf {conf} --limit 10" in text.err
    assert [line["physical_offset"] for line in lines] == [line["physical_offset"] for line in listing(golden).lines]


def test_file_names_that_are_not_utf_8(tmp_path: Path) -> None:
    """A store in a directory of any name is read, and its name is shown escaped."""
    store = LogBuilder().add_all([{}]).write(tmp_path / os.fsdecode(b"st\xffre"))
    assert inspect(store, "--json").status == listing(store).status == Exit.OK
    assert "st\\udcffre" in inspect(store).out
