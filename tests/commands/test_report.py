"""`rmqtool report`: a page that is HTML, loads nothing, says what verify says, and hides what it is told to hide."""

from __future__ import annotations

import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from rmqtool.base.errors import Exit
from tests.building import START_TIME, LogBuilder
from tests.commands.running import Result, errors_of, listing, rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.report.growing_store import growing_store
from tests.unchanged import unchanged
from tests.verify.damages import DAMAGES
from tests.verify.small_store import small_store
from tests.verify.tiered_damages import FIRST, UNITS, expire

_VOID = {"meta", "br", "rect", "line", "polyline"}
NOW = "2023-11-19T01:00:00Z"


class Page(HTMLParser):
    """A page as a browser takes it: elements that end in the order in which they began, texts, attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.texts: list[str] = []
        self.classes: set[str] = set()
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(name, value or "") for name, value in attrs]
        self.classes |= {word for name, value in attrs if name == "class" for word in (value or "").split()}
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in _VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.texts.append(data)

    @property
    def text(self) -> str:
        """All that is read aloud."""
        return " ".join(self.texts)


def written(store: Path, output: Path, *options: str | Path) -> tuple[Result, Page]:
    """A report of a store that stays untouched."""
    with unchanged(store):
        result = rmqtool("report", store, "-o", output, "--now", NOW, "--time-zone", "+00:00", *options)
    return result, Page(output.read_text(encoding="utf-8"))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return growing_store(tmp_path / "store", files=8)


@pytest.mark.slow
def test_a_store_that_grows(store: Path, tmp_path: Path) -> None:
    """Verdict, sizes, groups, times; every picture has a name, and nothing comes from elsewhere."""
    result, page = written(store, tmp_path / "report.html")
    assert result.status == Exit.OK
    assert "; verdict of the store: clean\n" in result.out
    assert "file://" in result.err
    for said in ("Verdict: clean", "8 files of 32.0 KiB", "2023-11-14 22:13 +00:00 to 2023-11-16 01:07 +00:00",
                 "At 2023-11-19 04:00 +00:00, the next hour of deleteWhen: The next", "groups lose"):  # fmt: skip
        assert said in page.text
    assert {"t0", "t8", "good", "kept", "goes", "behind", "now", "level", "lanes"} <= page.classes
    assert "reporting, orders: loses " in page.text
    pictures = (tmp_path / "report.html").read_text(encoding="utf-8").count("<svg")
    named = sum(name in ("aria-label", "aria-hidden") for name, _ in page.attributes)
    assert named >= pictures > 10
    loading = [pair for pair in page.attributes if pair[0] in ("src", "href", "onclick") or "http" in pair[1]]
    leading = [value[1:] for name, value in loading if name == "href" and value.startswith("#")]
    assert len(loading) == len(leading) >= 6
    assert {*leading} <= {value for name, value in page.attributes if name == "id"}
    assert not re.search(r"<script|<link|@import|url\(", (tmp_path / "report.html").read_text(encoding="utf-8"))


@pytest.mark.slow
def test_a_damaged_store(store: Path, tmp_path: Path) -> None:
    """The plan is that of verify, step by step, and the page is written whatever is wrong."""
    DAMAGES["body"].apply(store)
    result, page = written(store, tmp_path / "report.html", "--json")
    assert result.status == Exit.FINDINGS
    document = result.document
    assert errors_of("report", document) == []
    assert document["result"]["verdict"] == "corrupt"
    assert document["result"]["bytes"] == (tmp_path / "report.html").stat().st_size
    verified = rmqtool("verify", store, "--json").document
    assert document["result"]["errors"] == sum(each["severity"] == "error" for each in verified["findings"])
    for step in verified["result"]["plan"]["steps"]:
        assert step["text"] in page.text
        assert all(change in page.text for change in step["changes"])
        assert (step["command"] or "") in page.text
    assert {each["code"] for each in verified["findings"] if each["severity"] != "info"} <= set(page.texts)
    assert "bad" in page.classes
    (extent,) = verified["result"]["bad_extents"]
    offset, size = extent["physical_offset"], extent["size"]
    assert f"{offset} {offset + size} {size} damaged" in page.text


def test_a_tier(golden_store: GoldenStore, tmp_path: Path) -> None:
    """Its queues, what only it has, and what consumers lose; without its place why it is not read."""
    store = copied(golden_store("more/5.3.3-tiered"), tmp_path / "store")
    expire(store)
    (store / UNITS / FIRST).unlink()
    _, page = written(store, tmp_path / "report.html", "--tiered-path", store / "tiered")
    assert "Tiered storage" in page.texts
    assert "2 queues in 54.0 KiB; only the tier has 105 messages." in page.texts
    assert "Consumers do not get 50 messages after a start." in page.texts
    assert "Not read: broker.conf does not say" in written(store, tmp_path / "report.html")[1].text


def test_an_empty_store(tmp_path: Path) -> None:
    """There is little to see, and that is said."""
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    result, page = written(tmp_path / "store", tmp_path / "report.html")
    assert result.status == Exit.LOSSY
    assert "There is no commit log file." in page.text
    assert "There are no committed offsets of groups, or they cannot be read." in page.text


@pytest.mark.slow
def test_the_life_of_a_message(golden_store: GoldenStore, tmp_path: Path) -> None:
    """By its unique key; that a message is not there is told, too."""
    store = golden_store("5.1.4-shop")
    found = rmqtool("query", store, "--topic", "payments", "--queue", "0", "--queue-offset", "3", "--json").document
    _, page = written(store, tmp_path / "report.html", "--trace", found["unique_key"])
    assert f"payments {found['unique_key']}" in page.text
    assert any(": stored in payments queue 0 offset 3 (record at" in text for text in page.texts)
    assert "lanes" in page.classes
    assert any(": billing has passed payments queue 0 offset 3 (" in text for text in page.texts)
    (lines,) = (text for text in page.texts if text.startswith("history  "))
    assert lines.count("\n") > 5
    assert "\\x0a" not in page.text
    missing, page = written(store, tmp_path / "none.html", "--trace", "7F0000010000FFFFFFFFFFFFFFFFFFFF")
    assert missing.status == Exit.FINDINGS
    assert "7F0000010000FFFFFFFFFFFFFFFFFFFF: " in page.text
    assert "--scan looks at every message" in page.text


@pytest.mark.slow
def test_what_is_redacted_is_nowhere(golden_store: GoldenStore, tmp_path: Path) -> None:
    """Neither values of properties and bodies nor hosts, whatever part of the page quotes them."""
    store = golden_store("5.1.4-shop")
    messages = listing(store).of_kind("message")
    told = next(each for each in messages if each["topic"] == "orders" and each["keys"])
    command = ["--trace", told["unique_key"]]
    plain = written(store, tmp_path / "plain.html", *command)[1]
    page = written(store, tmp_path / "report.html", *command, "--redact", "keys,properties,bodies,hosts")[1]
    secrets = {told["unique_key"], told["born_host"], told["store_host"], *told["keys"], *told["properties"].values()}
    secrets = {secret for secret in secrets if len(secret) > 5}
    assert any(secret in plain.text for secret in secrets)
    assert [secret for secret in secrets if secret in page.text] == []
    assert "127.0.0.1" not in page.text


def test_where_it_may_not_be_written(store: Path, tmp_path: Path) -> None:
    """Not into the store; where it cannot be, the file is named before anything is read; an old page stays."""
    inside = rmqtool("report", store, "-o", store / "report.html")
    assert inside.status == Exit.USAGE
    assert "outside of it" in inside.err
    (conf := tmp_path / "fifo").write_text("brokerName=a")
    assert "--broker-conf" in rmqtool("report", store, "-o", conf, "--broker-conf", conf).err
    conf.unlink()
    conf.symlink_to(conf)
    assert rmqtool("report", store, "-o", conf).status == Exit.USAGE
    conf.unlink()
    assert rmqtool("report", store, "-o", "/dev/stdout").status == Exit.USAGE
    os.mkfifo(tmp_path / "fifo")
    fifo = rmqtool("report", store, "-o", tmp_path / "fifo")
    assert fifo.status == Exit.USAGE
    assert "not a file" in fifo.err
    nowhere = rmqtool("report", store, "-o", tmp_path / "nowhere" / "report.html")
    assert nowhere.status == Exit.FAILED
    assert f"{tmp_path / 'nowhere' / 'report.html'}: cannot be written: no such file" in nowhere.err
    page = tmp_path / "report.html"
    page.write_text("yesterday's")
    gone = rmqtool("report", tmp_path / "gone", "-o", page)
    assert gone.status in (Exit.FAILED, Exit.NOT_A_STORE)
    assert page.read_text() == "yesterday's"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fifo", "report.html", "store"]


@pytest.mark.slow
def test_names_are_no_markup(tmp_path: Path) -> None:
    """A topic's name is stored text, which anybody may have written."""
    store = small_store(tmp_path / "store")
    name = "<b onclick='x'>&\u202e"
    table = {"offsetTable": {f"orders@{name}": {"0": 1}}}
    (store / "config" / "consumerOffset.json").write_text(json.dumps(table), encoding="utf-8")
    _, page = written(store, tmp_path / "report.html")
    assert "<b onclick='x'>&\\u202e" in page.text
    assert not [pair for pair in page.attributes if pair[0] == "onclick"]


@pytest.mark.slow
@pytest.mark.parametrize("stamp", [-(2**63), 2**63 - 1, 0])
def test_times_of_nonsense(stamp: int, tmp_path: Path) -> None:
    """One wild time spoils no page."""
    builder = LogBuilder(file_size=4096)
    builder.add(store_timestamp=stamp)
    builder.add(store_timestamp=START_TIME)
    result, page = written(builder.write(tmp_path / "store"), tmp_path / "report.html")
    assert result.status in (Exit.FINDINGS, Exit.LOSSY)
    assert "Growth" in page.text
