"""Consume queues: which there are."""

from __future__ import annotations

import os
from pathlib import Path

from rmqtool.base.tolerant import ReadErrors
from rmqtool.store.consume_queues import list_queues
from rmqtool.store.store import open_store
from tests.unchanged import unchanged


def names_of(store: Path) -> list[tuple[str, str, int]]:
    with unchanged(store):
        return [(queue.kind, queue.topic, queue.queue_id) for queue in list_queues(open_store(store))]


def test_queues_are_listed_by_topic_and_number(tmp_path: Path) -> None:
    """Numbers are ordered as numbers, simple queues come before batch queues, and a queue may have no file."""
    for path in ("consumequeue/b/0", "consumequeue/a/10", "consumequeue/a/9", "batchconsumequeue/a/1"):
        (tmp_path / path).mkdir(parents=True)
    assert names_of(tmp_path) == [("simple", "a", 9), ("simple", "a", 10), ("simple", "b", 0), ("batch", "a", 1)]


def test_what_is_no_queue_is_passed_over(tmp_path: Path) -> None:
    """Names that are no number, files among the topics and files among the queues are skipped, as the broker does."""
    (tmp_path / "consumequeue" / "topic").mkdir(parents=True)
    (tmp_path / "consumequeue" / "file").touch()
    (tmp_path / "consumequeue" / "topic" / "3").touch()
    for name in ("x", "-1", "1x", "٣", "99999999999", "7"):
        (tmp_path / "consumequeue" / "topic" / name).mkdir()
    assert names_of(tmp_path) == [("simple", "topic", 7)]


def test_topic_names_are_kept(tmp_path: Path) -> None:
    """Any directory name is a topic: retries, light queues, and bytes that are no UTF-8."""
    topics = [b"%LMQ%a@b", b"%RETRY%g", b"\xff"]
    for topic in topics:
        os.makedirs(os.fsencode(tmp_path / "consumequeue") + b"/" + topic + b"/0")
    assert [os.fsencode(topic) for _, topic, _ in names_of(tmp_path)] == topics


def test_an_entry_that_cannot_be_read_hides_no_other(tmp_path: Path) -> None:
    """Links with impossible targets, among the topics and among the queues of one: each is an error of its own."""
    for name in ("a/0", "a/2", "c/0"):
        (tmp_path / "consumequeue" / name).mkdir(parents=True)
    for name in ("a/1", "b", "bb"):
        (tmp_path / "consumequeue" / name).symlink_to("x" * 256)
    unread = ReadErrors()
    queues = [(queue.topic, queue.queue_id) for queue in list_queues(open_store(tmp_path), unread.scope)]
    assert queues == [("a", 0), ("a", 2), ("c", 0)]
    files = [str(tmp_path / "consumequeue" / name) for name in ("b", "bb", "a/1")]
    assert sorted(str(error.file) for error in unread.errors) == sorted(files)
