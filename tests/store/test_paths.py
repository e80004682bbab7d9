"""What names say: every place in a store, and names that say nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rmqtool.commands import inspect
from rmqtool.store.paths import KINDS, Named, is_config_name, named_by

FILE = "00000000000000000000"
ROOT = Path("/data/store")


@pytest.mark.parametrize(
    ("part", "kind", "topic", "queue_id"),
    [
        ("consumequeue/", "consumequeue", None, None),
        ("consumequeue/orders/", "consumequeue", "orders", None),
        ("consumequeue/orders/3/", "consumequeue", "orders", 3),
        (f"consumequeue/orders/3/{FILE}", "consumequeue", "orders", 3),
        (f"consumequeue/%RETRY%g/0/{FILE}", "consumequeue", "%RETRY%g", 0),
        ("consumequeue/index/0/", "consumequeue", "index", 0),
        ("consumequeue/commitlog/", "consumequeue", "commitlog", None),
        ("consumequeue/consumequeue/0/", "consumequeue", "consumequeue", 0),
        (f"batchconsumequeue/bulk/0/{FILE}", "batchconsumequeue", "bulk", 0),
        (f"consumequeue_ext/orders/1/{FILE}", "consumequeue-ext", "orders", 1),
        ("compaction/compactionLog/", "compaction", None, None),
        (f"compaction/compactionLog/state/0/{FILE}", "compaction", "state", 0),
        (f"compaction/compactionLog/state/0/compacting/{FILE}", "compaction", "state", 0),
        (f"compaction/compactionCq/state/0/{FILE}", "compaction-queue", "state", 0),
        ("compaction/compactionCq/state/0/replicating/", "compaction-queue", "state", 0),
        ("compaction/position-checkpoint", "config", None, None),
        ("commitlog/", "commitlog", None, None),
        (f"commitlog/{FILE}", "commitlog", None, None),
        ("index/", "index", None, None),
        ("index/20261121113330090", "index", None, None),
        ("checkpoint", "checkpoint", None, None),
        ("abort", "abort", None, None),
        ("abort.bak", "abort", None, None),
        ("lock", "lock", None, None),
        ("timerwheel", "timerwheel", None, None),
        ("timerwheel.3120", "timerwheel", None, None),
        ("timerlog/", "timerlog", None, None),
        (f"timerlog/{FILE}", "timerlog", None, None),
        ("config/", "config", None, None),
        ("config/topics.json", "config", None, None),
        ("config/topics.json.bak", "config", None, None),
        ("config/timercheck", "timercheck", None, None),
        ("config/timermetrics", "config", None, None),
        ("dledger-n0/", "dledger", None, None),
        ("dledger-n0/data/", "dledger", None, None),
        (f"dledger-n0/data/{FILE}", "dledger", None, None),
        ("dledger-n0/index/", "dledger-index", None, None),
        (f"dledger-n0/index/{FILE}", "dledger-index", None, None),
        ("dledger-n0/checkpoint", "text", None, None),
        ("dledger-n0/currterm", "text", None, None),
        ("epochFileCheckpoint", "text", None, None),
        ("brokerIdentity", "text", None, None),
    ],
)
def test_places(part: str, kind: str, topic: str | None, queue_id: int | None) -> None:
    """Each place has its kind; the store above it is found."""
    assert named_by(ROOT / part, is_directory=part.endswith("/")) == Named(kind, ROOT, topic, queue_id)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "part",
    [
        "", "notes", "commitlog/readme", "index/readme", "config/notes.txt", "consumequeue/orders/3/readme",
        "consumequeue/orders/x/", f"consumequeue/orders/{FILE}", "consumequeue/orders/0/deeper/", "timerwheel.tmp",
        "timerwheel.1.tmp", "dledger-n0/other/",
    ],
)  # fmt: skip
def test_names_that_say_nothing(part: str) -> None:
    """Neither a topic's own files nor strangers are taken for something."""
    assert named_by(ROOT / part, is_directory=part.endswith("/") or not part) is None


def test_a_link_and_a_dot_lead_to_what_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not told by its own name is told by what it leads to."""
    queue = tmp_path / "store" / "consumequeue" / "orders" / "2"
    queue.mkdir(parents=True)
    (tmp_path / "link").symlink_to(queue)
    expected = Named("consumequeue", tmp_path / "store", "orders", 2)
    assert named_by(tmp_path / "link", is_directory=True) == expected
    monkeypatch.chdir(queue)
    assert named_by(Path("."), is_directory=True) == expected
    assert named_by(Path(os.pardir), is_directory=True) == Named("consumequeue", tmp_path / "store", "orders")


def test_config_names() -> None:
    """JSON files with and without their extension; not what others put there."""
    assert [is_config_name(name) for name in ("topics.json", "a.json.bak", "timermetrics", "timermetrics.bak")] == [
        True
    ] * 4
    assert [is_config_name(name) for name in ("timercheck", "broker.conf", ".json", "x")] == [False] * 4


def test_the_help_names_every_kind() -> None:
    """`inspect --as` has its own list, for it is there before anything is loaded."""
    assert inspect._KINDS == KINDS
