"""How objects show themselves in Python and in notebooks, and the notebook of the examples."""

from __future__ import annotations

import ast
import json
import os
import warnings
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import rmqtool
from rmqtool.library.messages import Messages
from tests.verify.damages import DAMAGES
from tests.verify.small_store import StoreBuilder, finish, small_store

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples/store"
NOTEBOOK = ROOT / "examples/notebook.ipynb"


class Cells(HTMLParser):
    """The texts of a piece of HTML, all of whose elements are closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def cells(shown: Any) -> list[str]:
    """The texts that an object shows in a notebook."""
    return Cells(shown._repr_html_()).texts


def test_the_names_of_the_package() -> None:
    """They are there before they are loaded."""
    assert [name for name in dir(rmqtool) if not name.startswith("__")] == ["open"]


def test_a_store() -> None:
    """Its path in Python, what is in it in a notebook."""
    store = rmqtool.open(EXAMPLE)
    assert repr(store) == f"rmqtool.open({str(EXAMPLE)!r})"
    assert {"topics", "queues", "11", "64.0 KiB in 1 file"} <= {*cells(store)}
    assert repr(store.queue("orders", 0)) == "Queue('orders', 0, offsets 0 to 20)"


def test_messages() -> None:
    """The filters, and the first ten."""
    messages = rmqtool.open(EXAMPLE).messages(topic="orders", queue_id=1)
    assert repr(messages) == f"Messages({str(EXAMPLE)!r}, topics=('orders',), queue_ids=(1,))"
    shown = cells(messages)
    assert shown.count("orders") == 10
    assert "the first 10 of them" in shown
    assert "no message matches" in cells(rmqtool.open(EXAMPLE).messages(topic="orders", tag="none"))


def test_a_preview_reads_no_large_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says how far it has read."""
    monkeypatch.setattr("rmqtool.library.messages._PREVIEW_BYTES", 1000)
    assert "5 messages up to physical offset 1000; count() reads all" in cells(rmqtool.open(EXAMPLE).messages())[-1:]


def test_a_message() -> None:
    """Where it is; of a long body the beginning."""
    messages = rmqtool.open(EXAMPLE).messages(topic="orders")
    message = messages.first()
    assert message is not None
    assert repr(message).startswith("Message(topic='orders', queue_id=1, queue_offset=0, physical_offset=0, ")
    assert {"unique_key", str(message.unique_key), "body"} <= {*cells(message)}
    found = rmqtool.open(EXAMPLE).find(key="ORD-1010")
    assert cells(found)[0] == "3 messages"
    assert "no message has the key none" in cells(rmqtool.open(EXAMPLE).find(key="none"))[-1]


@pytest.mark.slow
def test_a_verification(tmp_path: Path) -> None:
    """Verdict, findings, and the commands of the plan."""
    assert repr(rmqtool.open(EXAMPLE).verify()) == "<Verified clean: nothing wrong>"
    store = small_store(tmp_path / "store")
    DAMAGES["hole"].apply(store)
    verified = rmqtool.open(store).verify()
    assert repr(verified) == "<Verified corrupt: 1 error>"
    shown = cells(verified)
    assert {"consumequeue.hole", f"rmqtool repair {store}"} <= {*shown}


def test_what_is_stored_is_harmless(tmp_path: Path) -> None:
    """Neither HTML nor control characters get through."""
    builder = StoreBuilder()
    builder.put("orders", body=b"<script>alert(1)</script>\x1b[31m" + b"x" * 1000)
    store = rmqtool.open(finish(builder.write(tmp_path / "store"), ("orders",)))
    for shown in (store.messages(), store.messages().first()):
        text = shown._repr_html_()  # type: ignore[union-attr]
        assert "<script>" not in text
        assert "\x1b" not in text
        assert len(text) < 6000
    assert len(repr(store.messages().first())) < 600


def test_an_unknown_topic_is_told_each_time() -> None:
    """By messages and by verify, also when a cell runs again."""
    store = rmqtool.open(EXAMPLE)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("default")
        for _ in range(2):
            assert store.messages(topic="ordrs").count() == 0
        store.verify(topic="ordrs", only="checkpoint")
    assert [str(each.message) for each in told] == ["there is no topic ordrs (did you mean orders?)"] * 3


@pytest.mark.slow
def test_polars() -> None:
    """The same rows as those of Arrow."""
    messages: Messages = rmqtool.open(EXAMPLE).messages(topic="orders")
    frame = messages.to_polars(["queue_id", "tags"])
    assert frame.shape == (80, 2)
    assert frame.rows() == [tuple(row.values()) for row in messages.to_arrow(["queue_id", "tags"]).to_pylist()]


@pytest.mark.slow
def test_the_notebook_of_the_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each cell runs, and what stands at its end shows itself; it is kept without what it printed."""
    monkeypatch.chdir(ROOT)
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert notebook["nbformat"] == 4
    names: dict[str, Any] = {}
    shown = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                shown.append(run("".join(cell["source"]), names))
            assert bool(told) == ("ordrs" in "".join(cell["source"]))
    tables = [each for each in shown if hasattr(each, "_repr_html_")]
    assert len(tables) >= 5
    assert all(cells(each) for each in tables)


def run(source: str, names: dict[str, Any]) -> Any:
    """Run a cell; the value of its last expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, os.devnull, "exec"), names)
    return eval(compile(ast.Expression(last.value), os.devnull, "eval"), names) if isinstance(last, ast.Expr) else None
