"""`--redact`: no byte of what is redacted is in any output, searched for over stores of real brokers."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from rmqtool.base.errors import Exit
from tests.building import LogBuilder, write_log
from tests.commands.running import Result, listing, rmqtool
from tests.conftest import GoldenStore
from tests.export.exporting import oracle_row
from tests.golden import stores
from tests.sampling import one_in
from tests.unchanged import unchanged
from tests.verify.small_store import small_store

WHAT = ("keys", "properties", "bodies", "hosts")
STORE = "5.5.0-clean"
TOPICS = ("REAL_TOPIC", "INNER_MULTI_DISPATCH", "RETRY_TOPIC")  # properties that name queues, which stay
SEARCHED = 60  # values of a store that are looked for, of all
KEY, BODY = "order-4711", "card 4111-1111"


def secrets_of(records: list[dict[str, Any]], what: str) -> set[bytes]:
    """The values that must not be seen; not those that other fields show: topics, numbers, message ids."""
    shown = " ".join(record["topic"] for record in records)
    shown += " ".join(record["properties"].get(name, "") for record in records for name in TOPICS)
    if what == "properties":
        shown += " ".join(record["message_id"] for record in records)
    found: set[str | bytes] = set()
    for record, row in ((record, oracle_row(record)) for record in records):
        if what == "keys":
            found |= {*row["keys"], row["unique_key"] or ""}
        if what == "properties":
            found |= {value for name, value in row["properties"] if name not in TOPICS}
        if what == "hosts":
            found |= {row["born_host"], row["store_host"], row["message_id"]}
        if what == "bodies":
            body = row["body"]
            found |= {body, base64.b64encode(body), base64.b64decode(record["body_stored_base64"]), body.hex().encode()}
    texts = {value if isinstance(value, bytes) else value.encode() for value in found}
    kept = sorted(text for text in texts if len(text) > 5 and not text.isdigit() and text not in shown.encode())
    return set(kept[:: 1 + len(kept) // SEARCHED])


def outputs(store: Path, folder: Path, offsets: Sequence[int], options: list[str]) -> Iterator[tuple[str, bytes]]:
    """The name and the bytes of each output: listings in all forms, queries, exports with their manifests."""

    def ran(name: str, found: Result) -> tuple[str, bytes]:
        assert found.status in (Exit.OK, Exit.LOSSY), (name, found.err)
        return name, (found.out + found.err).encode()

    for form in ("json", "csv", "text", "table"):
        yield ran(form, rmqtool("inspect", store / "commitlog", "--format", form, *options))
    for part in ("consumequeue", "index"):
        if (store / part).is_dir():
            yield ran(part, rmqtool("inspect", store / part, *options))
    for offset in offsets:
        for shown in (["--json"], []):
            line: list[str | Path] = ["query", store, "--offset", str(offset), "--trace", *shown, *options]
            yield ran(f"query {offset}", rmqtool(*line))
    kinds = ("--kind", "delay", "--kind", "retry", "--kind", "dead-letter", "--kind", "half", "--kind", "timer")
    for shown in (["--json"], []):
        redacting = [*shown, *options[: options.index("--body") if "--body" in options else None]]
        yield ran("pending", rmqtool("pending", store, "--list", *kinds, *redacting))
    for form in ("parquet", "csv", "ndjson"):
        line = ["export", store, "--output", folder / form, "--format", form, "--compression", "none", *options]
        yield ran(form, rmqtool(*line, "--engine", "local", "--json"))
        yield from ((str(path), path.read_bytes()) for path in (folder / form).rglob("*") if path.is_file())


@pytest.mark.slow
@pytest.mark.one_in(8)
@pytest.mark.parametrize("how", ["hide", "hash"])
@pytest.mark.parametrize("name", stores.names())
def test_nothing_is_left(name: str, how: str, golden_store: GoldenStore, tmp_path: Path) -> None:
    """Of stores of all releases; bodies of traces repeat keys and hosts, and are left out."""
    records = stores.oracle(name)["records"]
    offsets = one_in(3, [record["physical_offset"] for record in records[:: 1 + len(records) // 8]], name)
    for what in WHAT:
        secrets = secrets_of(records, what)
        options = ["--redact", what, "--redact-as", how, *(["--body", "none"] if what != "bodies" else [])]
        for place, data in outputs(golden_store(name), tmp_path / what, offsets, options):
            left = [secret for secret in secrets if secret in data]
            assert not left, (what, place, left[:3])


@pytest.mark.slow
@pytest.mark.one_in(8)
@pytest.mark.parametrize("name", stores.names())
def test_nothing_is_left_in_differences(name: str, golden_store: GoldenStore, tmp_path: Path) -> None:
    """Of a store and a copy that has changed bytes and lacks the last half of the messages."""
    records, store = stores.oracle(name)["records"], golden_store(name)
    if len(records) < 2:
        pytest.skip("nothing can differ")
    older = stores.unpack(name, tmp_path / "older")
    spoil(older, records)
    line: list[str | Path] = ["diff", store, older, "--only", "a", "--limit", "1000"]
    for shown in ([], ["--json"]):
        assert any(secret in rmqtool(*line, *shown).out.encode() for secret in secrets_of(records, "keys"))
        for what in WHAT:
            out = rmqtool(*line, *shown, "--redact", what).out.encode()
            left = [secret for secret in secrets_of(records, what) if secret in out]
            assert not left, (what, left[:3])


def spoil(store: Path, records: list[dict[str, Any]]) -> None:
    """Change one byte of a body, and cut the log in the middle."""
    for number, at in ((0, 60), (len(records) // 2, 0)):
        offset = records[number]["physical_offset"] + at
        path = max(path for path in (store / "commitlog").iterdir() if int(path.name) <= offset)
        data = bytearray(path.read_bytes())
        position = offset - int(path.name)
        if at:
            data[position] ^= 1
        else:
            data[position:] = bytes(len(data) - position)
            for later in (store / "commitlog").iterdir():
                if later.name > path.name:
                    later.unlink()
        path.write_bytes(data)


@pytest.mark.slow
def test_a_search_finds_what_is_not_redacted(golden_store: GoldenStore, tmp_path: Path) -> None:
    """All of it: the test above looks for what is there."""
    records = stores.oracle(STORE)["records"]
    found = rmqtool("inspect", golden_store(STORE) / "commitlog", "--format", "json").out.encode()
    for what in ("keys", "hosts"):
        assert all(secret in found for secret in secrets_of(records, what)), what


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Path]:
    builder = LogBuilder()
    for body in (BODY.encode(), b"\xff" + BODY.encode(), b""):
        properties = {"KEYS": f"{KEY} b", "UNIQ_KEY": "0A0B0C0D00", "TAGS": "red", "card": "4111"}
        builder.add(body=body, properties=properties)
    with unchanged(builder.write(tmp_path / "store")) as store:
        yield store


def lines(store: Path, *options: str) -> list[dict[str, Any]]:
    return rmqtool("inspect", store / "commitlog", "--json", *options).of_kind("message")


def test_hiding(store: Path) -> None:
    """A mark in the place of each value; null stays null, names stay, nothing else changes."""
    plain, hidden = lines(store), lines(store, "--redact", ",".join(WHAT))
    hiding = {
        "keys",
        "unique_key",
        "tags",
        "properties",
        "body",
        "body_base64",
        "born_host",
        "store_host",
        "message_id",
    }
    for before, after in zip(plain, hidden, strict=True):
        assert {name for name in before if before[name] != after.get(name)} <= hiding
        assert (after["keys"], after["body"], after["born_host"]) == (["***", "***"], "***", "***")
        assert after["properties"] == dict.fromkeys(before["properties"], "***")


ID, LONG_ID, HOST = "7F000001000018B4AAC2000000000001", "0A" * 28, "192.0.2.7:10911"


@pytest.mark.parametrize(
    ("what", "left"),
    [("keys", {HOST}), ("hosts", set()), ("bodies", {ID, LONG_ID, HOST}), ("properties", set())],
)
def test_ids_and_hosts_below_other_names(what: str, left: set[str], tmp_path: Path) -> None:
    """As a flipped bit in a name leaves them: their form is seen. What has another form stays."""
    others = {"trace": ID.lower(), "version": "1.2.3", "number": "4" * 31}
    properties = {"UNIQ_TEY": ID, "id": LONG_ID, "__BORNHOSS": HOST, **others}
    store = LogBuilder().add_all([{"properties": properties}]).write(tmp_path / "store")
    chosen = ["--columns", ",".join(["properties", *(f"properties.{name}" for name in properties)])]
    (line,) = lines(store, "--redact", what)
    for options in ([], ["--format", "csv", *chosen], ["--format", "csv", *chosen, "--redact-as", "hash"]):
        out = rmqtool("inspect", store / "commitlog", "--redact", what, *options).out
        assert {value for value in (ID, LONG_ID, HOST) if value in out} == left
    if what != "properties":
        assert {name: line["properties"][name] for name in others} == others


@pytest.mark.parametrize(("value", "what"), [
    ("2001:db8:0:0:0:0:0:17", "hosts"), ("/2001:db8:0:0:0:0:0:17:43210", "hosts"), ("[2001:db8::17]:43210", "hosts"),
    ("::17", "hosts"), ("fe80::%eth0", "hosts"), ("192.0.2.7@4711#1", "hosts"), ("a 192.0.2.7,192.0.2.8", "hosts"),
    (f"orders_{ID}", "keys"), (f"{ID}:3", "hosts"), ("bar?KEYS\x01order-4711", "keys"),
])  # fmt: skip
def test_values_that_hold_an_id_or_a_host(value: str, what: str, tmp_path: Path) -> None:
    """Not only those that are one; times, versions and names in code have another form."""
    others = {"time": "05:12:33", "date": "2026-11-28T05:12:33+08:00", "code": "std::string", "version": "v1.2.3.4"}
    store = LogBuilder().add_all([{"properties": {"other": value, **others}}]).write(tmp_path / "store")
    (plain,), (line,) = lines(store), lines(store, "--redact", what)
    assert plain["properties"] == {"other": value, **others}
    assert line["properties"] == {"other": "***", **others}
    assert value not in rmqtool("inspect", store / "commitlog", "--redact", what).out


def test_properties_with_keys_of_another_name(tmp_path: Path) -> None:
    """The key by which a producer chooses the queue, and that of a request, are keys."""
    properties = {"__SHARDINGKEY": KEY, "CORRELATION_ID": "request-4711"}
    (line,) = lines(LogBuilder().add_all([{"properties": properties}]).write(tmp_path / "store"), "--redact", "keys")
    assert line["properties"] == dict.fromkeys(properties, "***")


@pytest.mark.slow
@pytest.mark.parametrize("how", ["hide", "hash"])
def test_what_a_trace_contradicts(how: str, tmp_path: Path) -> None:
    """Its sentences name keys that the index lacks, and tags codes that are not those of the tag."""
    store = small_store(tmp_path / "store")
    (path,) = (store / "index").iterdir()
    index = bytearray(path.read_bytes())
    first = 40 + 40 * 4  # the units behind header and slots, of 20 bytes, begin with the hash
    for at in range(first, first + 4 * 20, 20):
        index[at] ^= 0x40
    path.write_bytes(index)
    (unit,) = [each for each in listing(store).of_kind("message") if each["physical_offset"] == 0]
    queue = store / "consumequeue" / unit["topic"] / str(unit["queue_id"]) / f"{0:020}"
    data = queue.read_bytes()
    queue.write_bytes(data[:12] + (4711).to_bytes(8, "big") + data[20:])
    ask: list[str | Path] = ["query", store, "--offset", "0", "--trace"]
    secrets = [*unit["keys"], unit["unique_key"], "4711"]
    for shown in ([], ["--json"]):
        plain = rmqtool(*ask, *shown).out
        assert all(secret in plain for secret in secrets)
        for what, hidden in (("keys", secrets[:-1]), ("properties", secrets), ("hosts", secrets[-2:-1])):
            out = rmqtool(*ask, *shown, "--redact", what, "--redact-as", how, "--body", "none").out
            assert not [secret for secret in hidden if secret in out], (what, out)
            assert "queries by that key do not find the message" in out


def test_hashing(store: Path) -> None:
    """One value has one hash in all fields and outputs of a salt; without a salt it is another in each run."""
    options = ["--redact", "keys,bodies", "--redact-as", "hash"]
    first, again = (lines(store, *options, "--redact-salt", "s") for _ in range(2))
    assert first == again
    assert first[0]["keys"] == first[0]["properties"]["KEYS"].split(" ") == first[2]["keys"]
    assert re.fullmatch("[0-9a-f]{16}", first[0]["keys"][0])
    assert len({line["body"] for line in first}) == 3
    assert first[0]["properties"]["TAGS"] == "red"
    asked = rmqtool("query", store, "--offset", "0", "--json", *options, "--redact-salt", "s").lines[0]
    assert {name: asked[name] for name in ("keys", "body", "properties")} == {
        name: first[0][name] for name in ("keys", "body", "properties")
    }
    other, random = lines(store, *options, "--redact-salt", "t"), lines(store, *options)
    assert len({tuple(found[0]["keys"]) for found in (first, other, random, lines(store, *options))}) == 4


@pytest.mark.parametrize("form", ["parquet", "ndjson"])
def test_an_export_says_how_and_is_checked(form: str, store: Path, tmp_path: Path) -> None:
    """The manifest has no salt; a check needs it for rows; a later run must have the same."""
    line: list[str | Path] = ["export", store, "--output", tmp_path / "out", "--format", form, "--engine", "local"]
    redact = ["--redact", "keys,bodies", "--redact-as", "hash"]
    assert rmqtool(*line, *redact, "--redact-salt", "secret-salt").status == Exit.OK
    manifest = (tmp_path / "out" / "_manifest.json").read_text()
    assert "secret-salt" not in manifest
    assert json.loads(manifest)["redact"]["what"] == ["bodies", "keys"]
    check: list[str | Path] = ["export", store, "--check", tmp_path / "out"]
    compared = rmqtool(*check, *redact, "--redact-salt", "secret-salt")
    assert (compared.status, "compared     3 rows of 3" in compared.out) == (Exit.OK, True)
    unsalted = rmqtool(*check)
    assert (unsalted.status, "without --redact-salt" in unsalted.out) == (Exit.OK, True)
    assert "another --redact" in rmqtool(*check, *redact, "--redact-salt", "x").err
    assert "other redact" in rmqtool(*line, *redact, "--mode", "incremental").err


def test_the_side_table_of_damage_has_no_bytes(tmp_path: Path) -> None:
    """They may be those of a key or a body."""
    builder = LogBuilder().add_all([{"body": BODY.encode()}] * 3)
    images = builder.images()
    images[0] = images[0][:30] + b"\xff" + images[0][31:]
    store, output = write_log(tmp_path / "store", images), tmp_path / "out"
    found = rmqtool(
        "export", store, "--output", output, "--engine", "local", "--compression", "none", "--redact", "bodies"
    )
    assert found.status == Exit.LOSSY
    assert list((output / "_damaged").iterdir())
    assert not [path for path in output.rglob("*") if path.is_file() and BODY.encode() in path.read_bytes()]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (["inspect", "{}/commitlog", "--redact", "names"], "not one of keys, properties, bodies, hosts"),
        (["inspect", "{}/commitlog", "--redact", "keys", "--hex"], "stored bytes in hex cannot be redacted"),
        (["inspect", "{}/commitlog", "--redact", "keys", "--columns", "topic,hex"], "in hex cannot be redacted"),
        (["inspect", "{}/commitlog", "--redact-as", "hash"], "--redact-as hash needs --redact"),
        (["inspect", "{}/commitlog", "--redact", "keys", "--redact-salt", "x"], "is for --redact-as hash"),
        (["inspect", "{}", "--redact", "keys"], "for a part of a store only"),
        (["query", "{}", "--offset", "0", "--redact", "bodies", "--save-body", "x"], "what --redact bodies hides"),
        (["query", "{}", "--group", "g", "--redact", "keys"], "--group does not go with --redact"),
        (["export", "{}", "--output", "o", "--redact", "keys", "--key", "k"], "--key names what --redact hides"),
        (["export", "{}", "--output", "o", "--redact", "properties", "--tag", "k"], "--tag names what"),
    ],
)
def test_what_does_not_fit_is_a_usage_error(line: list[str], text: str, store: Path) -> None:
    found = rmqtool(*(word.format(store) for word in line))
    assert (found.status, found.out) == (Exit.USAGE, "")
    assert text in found.err
