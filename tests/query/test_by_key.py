"""Keys: what the index does not have is said, and where else to look."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtool.query.by_place import Notes
from rmqtool.query.lookup import KeyQuery, by_key, why_not_found
from tests.query.making import StoreMaker


def test_messages_stored_after_the_last_one_indexed(tmp_path: Path) -> None:
    """A broker that was killed had not indexed all: the hint points to the rest of the log."""
    made = StoreMaker()
    made.add(properties={"KEYS": "a"})
    made.add(properties={"KEYS": "b"})
    made.keys.pop()
    view = made.snapshot(tmp_path)
    assert list(by_key(view, KeyQuery("b", ["orders"]), "none", Notes())) == []
    assert f"--scan --from-offset {made.offsets[1]} only at newer ones" in why_not_found(view, ["b"])


def test_an_index_of_the_whole_log(tmp_path: Path) -> None:
    made = StoreMaker()
    made.add(properties={"KEYS": "a"})
    assert "--from-offset" not in why_not_found(made.snapshot(tmp_path), ["b"])


def test_a_log_that_ends_with_a_blank(tmp_path: Path) -> None:
    """The end of a file is not a message."""
    made = StoreMaker(log_file=512)
    made.add(properties={"KEYS": "a"})
    made.log.roll()
    assert "--from-offset" not in why_not_found(made.snapshot(tmp_path), ["b"])


@pytest.mark.parametrize(("key", "said"), [("a b", "separated by spaces"), ("", "must not be empty")])
def test_keys_that_no_message_can_have(tmp_path: Path, key: str, said: str) -> None:
    made = StoreMaker()
    made.add(properties={"KEYS": "a"})
    assert said in why_not_found(made.snapshot(tmp_path), [key])


def test_deleted_messages_are_counted(tmp_path: Path) -> None:
    made = StoreMaker(log_file=4096)
    for _ in range(40):
        made.add(properties={"KEYS": "a"})
    view = made.snapshot(tmp_path)
    min((tmp_path / "commitlog").iterdir()).unlink()
    notes = Notes()
    found = [message["physical_offset"] for message in by_key(view, KeyQuery("a", ["orders"]), "none", notes)]
    assert found == [offset for offset in made.offsets if offset >= 4096]
    deleted = len(made.offsets) - len(found)
    assert f"{deleted} index entries point to messages that have been deleted from the log" in notes.lines
    assert not notes.lossy
