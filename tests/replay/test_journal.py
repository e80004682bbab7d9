"""The journal: what it remembers, torn at any byte, and what is not its own."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from rmqtool.base.errors import UnreadableError, UnwritableError, UsageError
from rmqtool.replay.journal import Done, Identity, Journal, Outgoing, Ready, Receipt, read_done
from rmqtool.replay.requests import Rewriting
from tests.replay.rows import row

HEADER: dict[str, Any] = {"source": "/store", "name_servers": ["h:1"], "topics": {}, "to_retry_topics": False}


def ready(offset: int) -> Ready:
    (message,) = Rewriting().messages(row(physical_offset=offset))
    assert isinstance(message, Outgoing)
    return Ready(message, "a", 2)


def known(done: Done, *offsets: int) -> list[bool]:
    return [done.is_done(Identity(offset)) for offset in offsets]


def test_what_it_remembers(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    one, two, three, four = map(ready, (100, 200, 300, 400))
    with Journal(path, HEADER) as journal:
        assert (len(journal.before), journal.before.unknown) == (0, frozenset())
        journal.sending([[one, two], [three]], 5)
        journal.sent(one, Receipt("NEW", 7), 6)
        journal.there(two, "OLD", 6)
        journal.sending([[four]], 7)
        journal.refused(four, 13, "too large", 8)
    with Journal(path, HEADER) as journal:
        reopened = journal.before
    for done in (read_done(path, HEADER), reopened):
        assert known(done, 100, 200, 300, 400, 500) == [True, True, False, False, False]
        assert done.unknown == {Identity(300), Identity(400)}
        assert not done.is_done(Identity(100, 1))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["kind"] for line in lines] == ["replay", "sending", "sending", "sent", "there", "sending", "refused"]
    assert lines[3] == {
        "kind": "sent", "at": 6, "physical_offset": 100, "part": 0, "source_topic": "orders", "source_queue_id": 1,
        "source_queue_offset": 5, "message_id": "ID-100", "unique_key": "7F00000100002A9F0000000000000000",
        "topic": "orders", "broker": "a", "queue_id": 2, "new_message_id": "NEW", "queue_offset": 7, "status": None,
        "how": "sent",
    }  # fmt: skip


@pytest.mark.slow
def test_torn_at_any_byte(tmp_path: Path) -> None:
    """What a cut line would have said is not known: its message is unknown as long as it was being sent."""
    path = tmp_path / "journal"
    with Journal(path, HEADER) as journal:
        journal.sending([[ready(100), ready(200)]], 5)
        journal.sent(ready(100), Receipt("NEW", 7), 6)
    whole = path.read_bytes()
    ends = [number + 1 for number, byte in enumerate(whole) if byte == ord("\n")]
    for size in range(len(whole) + 1):
        for tail in (b"", b"\0" * 50):
            path.write_bytes(whole[:size] + tail)
            journal = Journal(path, HEADER)
            journal.close()
            lines = sum(end <= size for end in ends)
            assert len(journal.before) == (lines == 3)
            assert journal.before.unknown == [{*()}, {*()}, {Identity(100), Identity(200)}, {Identity(200)}][lines]
            assert path.read_bytes() == (whole[: ends[lines - 1]] if lines else whole[: ends[0]])


def test_reading_does_not_mend(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    assert len(read_done(path, HEADER)) == 0
    assert not path.exists()
    Journal(path, HEADER).close()
    path.write_bytes(path.read_bytes() + b'{"kind"')
    before = path.read_bytes(), path.stat().st_mtime_ns
    read_done(path, HEADER)
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before


@pytest.mark.parametrize(
    "line", [b"nonsense\n", b"[]\n", b'{"kind":"sent"}\n', b'{"kind":"sending","messages":[7]}\n', b"\xff\n"]
)
def test_damage_in_the_middle(tmp_path: Path, line: bytes) -> None:
    """Without the line it is not known which messages were sent: nothing is, and nothing of the file is cut."""
    path = tmp_path / "journal"
    Journal(path, HEADER).close()
    data = path.read_bytes() + line + b'{"kind":"sending","messages":[]}\n'
    path.write_bytes(data)
    for open_it in (Journal, read_done):
        with pytest.raises(UnreadableError, match="line 2 is damaged"):
            open_it(path, HEADER)
    assert path.read_bytes() == data


@pytest.mark.parametrize(
    "data", [b"important", b"important\n", b"{}\n", b'{"kind":"replay","schema":"rmqtool.replay-journal/2"}\n']
)
def test_another_file_is_left_alone(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "other.txt"
    path.write_bytes(data)
    with pytest.raises(UsageError, match="not the journal"):
        Journal(path, HEADER)
    assert path.read_bytes() == data


@pytest.mark.parametrize(
    "change", [{"source": "/other"}, {"name_servers": ["h:2"]}, {"topics": {"a": "b"}}, {"to_retry_topics": True}]
)
def test_a_journal_of_another_replay(tmp_path: Path, change: dict[str, Any]) -> None:
    path = tmp_path / "journal"
    Journal(path, HEADER).close()
    with pytest.raises(UsageError, match="of another replay"):
        Journal(path, {**HEADER, **change})


def test_one_replay_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with Journal(path, HEADER), pytest.raises(UsageError, match="another replay writes"):
        Journal(path, HEADER)
    Journal(path, HEADER).close()


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be remembered is not sent."""

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with Journal(tmp_path / "journal", HEADER) as journal:
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(UnwritableError, match="no space left"):
            journal.sending([[ready(100)]], 5)
        monkeypatch.undo()
    with pytest.raises(UnwritableError):
        Journal(tmp_path / "nowhere" / "journal", HEADER)


def test_what_is_no_file(tmp_path: Path) -> None:
    """A device may have no end."""
    for path in (tmp_path, Path("/dev/zero")):
        with pytest.raises(UsageError, match="not the journal"):
            Journal(path, HEADER)
