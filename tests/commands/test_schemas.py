"""Every output of every golden store is what the published schemas say, and text says the same as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from rmqtool.base.errors import RmqtoolError
from tests.commands.running import SCHEMAS, errors_of, inspect, listing, rmqtool, validator
from tests.commands.schema_pages import pages
from tests.conftest import GoldenStore
from tests.golden import stores

SCHEMA_NAMES = ("inspect-store", "listing", "bundle", "clean", "pending", "report", "salvage", "convert")


@pytest.fixture(params=stores.samples())
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def numbers_of(text: str, label: str) -> list[int]:
    """The numbers in the first line that holds `label`, those in words aside."""
    line = next(line for line in text.splitlines() if label in line)
    return [int(number) for number in re.findall(r"(?<![\w.])\d+(?![\w.])", line)]


@pytest.mark.slow
@pytest.mark.one_in(3)
def test_overviews_of_golden_stores(name: str, golden_store: GoldenStore) -> None:
    """Both overviews are valid, and differ in nothing but what the scan adds."""
    store = golden_store(name)
    plain, scanned = inspect(store, "--json").document, inspect(store, "--json", "--scan").document
    assert plain["exit"]["code"] == scanned["exit"]["code"] == 0
    scan = scanned["result"].pop("scan")
    assert scanned["result"]["commit_log"].pop("messages") == scan["messages"]
    assert plain["result"]["commit_log"].pop("messages") is None
    counted = [(queue.pop("messages"), queue.pop("bytes")) for queue in scanned["result"]["queues"]]
    assert scanned == plain
    assert max(counted, default=(0, 0)) <= (scan["messages"], scan["bytes"])


@pytest.mark.slow
def test_listings_of_golden_stores(name: str, golden_store: GoldenStore) -> None:
    """A listing is valid, and adds up to what the scan counts."""
    store = golden_store(name)
    found = listing(store, every=8)
    scan = inspect(store, "--json", "--scan").document["result"]["scan"]
    messages, blanks = found.of_kind("message"), found.of_kind("blank")
    assert found.status == 0
    assert found.of_kind("damage") == []
    assert len(messages) == scan["messages"]
    assert sum(message["message_size"] for message in messages) == scan["bytes"]
    assert sum(message["body_size"] for message in messages) == scan["body_bytes"]
    assert {"count": len(blanks), "bytes": sum(blank["size"] for blank in blanks)} == scan["blanks"]
    totals: dict[str, int] = {}
    for message in messages:
        totals[message["topic"]] = totals.get(message["topic"], 0) + 1
    assert {topic["topic"]: topic["messages"] for topic in scan["topics"]} == totals


@pytest.mark.slow
@pytest.mark.one_in(3)
def test_text_says_what_json_says(name: str, golden_store: GoldenStore) -> None:
    """Offsets, counts, each queue, each index file and each lag are the same in both."""
    store = golden_store(name)
    text = inspect(store, "--scan", "-v").out
    result = inspect(store, "--json", "--scan").document["result"]
    log = result["commit_log"]
    if log["files"]:
        assert numbers_of(text, "commit log")[0] == log["files"]
        assert numbers_of(text, "commit log")[-2:] == [log["min_offset"], log["max_offset"]]
    assert numbers_of(text, "scanned")[0] == result["scan"]["messages"]
    rows = [line.split() for line in text.splitlines()]
    for queue in result["queues"]:
        numbers = [queue[field] for field in ("queue_id", "min_offset", "max_offset", "files", "messages")]
        row = [str(number) for number in numbers]
        assert any(cells[0] == queue["topic"][: len(cells[0])] and cells[1:6] == row for cells in rows if cells)
    for file in result["index"]:
        assert [file["file"].removeprefix("index/"), str(file["keys"])] in [cells[:2] for cells in rows]
    for item in result["consumers"]:
        lag = ["no", "queue"] if item["lag"] is None else [str(item["lag"])]
        cells = [item["group"], item["topic"], str(item["queue_id"]), str(item["committed_offset"]), *lag]
        assert cells in rows


@pytest.mark.slow
def test_text_sums_by_topic(golden_store: GoldenStore) -> None:
    """Without -v a topic is one line with the sums of its queues, and a lag is that of all queues of a topic."""
    store = golden_store("5.5.0-trimmed")
    rows = [line.split() for line in inspect(store, "--scan").out.splitlines()]
    result = inspect(store, "--json", "--scan").document["result"]
    topics = {topic["topic"]: topic["messages"] for topic in result["scan"]["topics"]}
    for name in ("orders", "payments", "bulk-inner", "early"):
        queues = [queue for queue in result["queues"] if queue["topic"] == name]
        in_queues = sum(queue["max_offset"] - queue["min_offset"] for queue in queues)
        numbers = [len(queues), in_queues, sum(queue["files"] for queue in queues), topics.get(name, 0)]
        assert [name, *map(str, numbers)] in [cells[:5] for cells in rows]
    for group in ("behind", "beyond"):
        items = [item for item in result["consumers"] if (item["group"], item["topic"]) == (group, "orders")]
        sums = [str(sum(item["lag"] for item in items if item["lag"] > 0))]
        for place, words in (("beyond", "beyond the end"), ("below", "below the minimum")):
            count = sum(item["out_of_range"] == place for item in items)
            sums += [f"{count} {words}"] if count else []
        assert [group, "orders", str(len(items)), *", ".join(sums).split()] in rows


@pytest.mark.slow
def test_text_of_messages_says_what_json_says(golden_store: GoldenStore) -> None:
    """One head line for each message, with its place and its queue."""
    store = golden_store("5.3.3-clean")
    heads = [line for line in inspect(store, part="commitlog").out.splitlines() if line.startswith("message ")]
    messages = listing(store).of_kind("message")
    assert len(heads) == len(messages)
    for head, message in zip(heads, messages, strict=True):
        place = f"{message['topic']} queue {message['queue_id']} offset {message['queue_offset']}"
        assert head.startswith(f"message  {message['physical_offset']}  {place}  ")
        assert head.endswith(message["store_time"])


@pytest.mark.parametrize(
    "arguments",
    [
        ["inspect", "/does/not/exist", "--json"],
        ["inspect", "/", "--json"],
        ["inspect", "--json"],
        ["inspect", "/", "--json", "--no-such-option"],
        ["--json", "no-such-command"],
        ["--json"],
    ],
)
def test_error_documents(arguments: list[str]) -> None:
    """An error is a valid document with a message and without a result, and standard error stays empty."""
    found = rmqtool(*arguments)
    assert found.document["result"] is None
    assert found.document["error"]["message"]
    assert found.document["exit"]["code"] == found.status != 0
    assert found.err == ""


@pytest.mark.slow
def test_schemas_are_those_of_the_program() -> None:
    """What is published is what `make pages` writes."""
    old = [path.name for path, text in pages().items() if path.read_text(encoding="utf-8") != text]
    assert old == [], "python -m tests.commands.schema_pages"


@pytest.mark.parametrize("schema", SCHEMA_NAMES)
def test_schemas_explain_every_field(schema: str) -> None:
    """Each is a valid schema, and says of every name what it means."""
    content = json.loads((SCHEMAS / f"{schema}.schema.json").read_text(encoding="utf-8"))
    validator(schema).check_schema(content)
    unexplained = [
        path
        for path, found in properties_of(content)
        if not ({"description", "title", "const", "$ref"} & found.keys()) or found.get("description") == ""
    ]
    assert unexplained == []
    assert [name for name, found in content["$defs"].items() if not found.get("title")] == []
    objects = [found for found in walk(content) if found.get("type") == "object" and "properties" in found]
    assert [found["title"] for found in objects if found.get("additionalProperties") is not False] in (
        [],
        ["One line of rmqtool inspect --json below a store"],
    )


def walk(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        yield schema
        for value in schema.values():
            yield from walk(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from walk(value)


def properties_of(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for found in walk(schema):
        if "title" in found and "properties" in found:
            yield from ((f"{found['title']}: {name}", value) for name, value in found["properties"].items())


def test_every_kind_of_error_has_its_place() -> None:
    """In each schema, whatever a command may meet."""
    kinds = {each.kind for each in errors_below(RmqtoolError)} | {"java", "spark", "peer", "refused"}
    for file in SCHEMAS.glob("*.schema.json"):
        enums = [set(each.get("enum", ())) for each in walk(json.loads(file.read_text(encoding="utf-8")))]
        assert kinds in enums, file.name


def errors_below(error: type[RmqtoolError]) -> Iterator[type[RmqtoolError]]:
    yield error
    for each in error.__subclasses__():
        yield from errors_below(each)


def test_schemas_refuse_what_is_not_theirs(golden_store: GoldenStore) -> None:
    """A name too many, a name too few and a number as text are refused, in the document and in a line."""
    document = inspect(golden_store("5.3.3-single"), "--json", "--scan").document
    message = listing(golden_store("5.3.3-single")).lines[0]
    assert errors_of("inspect-store", document) == errors_of("listing", message) == []
    for part in (
        document,
        document["result"],
        *(document["result"][name] for name in ("broker", "commit_log", "scan")),
    ):
        part["surplus"] = 1
        assert errors_of("inspect-store", document)
        del part["surplus"]
    for name in message.keys() - {"body"}:
        assert errors_of("listing", {key: value for key, value in message.items() if key != name}), name
    assert errors_of("listing", {**message, "surplus": 1})
    assert errors_of("listing", {**message, "physical_offset": "0"})
    assert errors_of("listing", {**message, "body": None})
    assert errors_of("listing", {**message, "body_base64": ""})
    assert errors_of("inspect-store", {**document, "error": None})
    assert errors_of("inspect-store", {**document, "result": None})


def test_a_message_is_the_same_in_query_and_in_a_listing() -> None:
    """The schema of query has every field of a listing's message, as it stands there, and what query adds."""
    listed, found = validator("listing").schema["$defs"]["message"], validator("query").schema["$defs"]["message"]
    added = found["properties"].keys() - listed["properties"].keys()
    assert added == {"key_matches", "place", "places"}
    assert found["properties"]["message_id"]["type"] == ["string", "null"]  # of what is not in the commit log
    same = listed["properties"].keys() - {"message_id"}
    assert {name: found["properties"][name] for name in same} == {name: listed["properties"][name] for name in same}
    assert found["required"] == listed["required"]
