"""Where the log of a copy ends, and what becomes of what follows."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtool.copy import log_end
from rmqtool.copy.log_end import LogEnd, end_log
from rmqtool.formats.file_name import file_name
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.recovery import RecoveryRules
from rmqtool.rules.versions import NEWEST
from tests.building import LOG, LogBuilder
from tests.copies import copied

RULES = RecoveryRules.of(NEWEST, BrokerConf())
SIZE = 4096


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log of two files, of which the second has room for more."""
    monkeypatch.setattr(log_end, "_MOMENT", 0)
    builder = LogBuilder(file_size=SIZE)
    builder.add_all([{"body": bytes([65 + number]) * 300} for number in range(12)])
    return builder.write(tmp_path / "source") / LOG


@pytest.fixture
def copy(source: Path, tmp_path: Path) -> Path:
    return copied(source, tmp_path / "copy")


def end_of(copy: Path, source: Path, *, live: bool = False) -> LogEnd:
    def again(name: str) -> None:
        (copy / name).write_bytes((source / name).read_bytes())

    return end_log(copy, lambda name: source / name, RULES, again=again if live else None)


def test_a_whole_log_stays(source: Path, copy: Path) -> None:
    """And what is made in advance goes."""
    whole = end_of(copied(source, copy.with_name("whole")), source)
    (copy / file_name(2 * SIZE)).write_bytes(bytes(SIZE))
    assert end_of(copy, source) == whole
    assert whole.start == 0 < whole.last_record < whole.end < 2 * SIZE
    assert whole.walk
    assert whole.walk.end == whole.end - SIZE
    assert sorted(path.name for path in copy.iterdir()) == [file_name(0), file_name(SIZE)]
    assert [path.read_bytes() for path in sorted(copy.iterdir())] == [
        path.read_bytes() for path in sorted(source.iterdir())
    ]


def test_a_last_record_that_the_store_has_otherwise_a_moment_later_goes(source: Path, copy: Path) -> None:
    """It was being written: its body was whole, what follows in it perhaps not."""
    whole = end_of(copied(source, copy.with_name("whole")), source, live=True)
    last = source / file_name(SIZE)
    data = bytearray(last.read_bytes())
    data[whole.end - SIZE - 1] ^= 1
    last.write_bytes(data)
    found = end_of(copy, source, live=True)
    assert found.end == whole.last_record
    assert found.last_record < whole.last_record
    assert found.walk is None
    assert not (copy / last.name).read_bytes()[found.end - SIZE :].strip(b"\0")


def test_what_was_read_while_it_was_written_is_read_again(source: Path, copy: Path) -> None:
    """Where sound records follow one that is not whole, the file is copied again; a damaged one is left as it is."""
    whole = end_of(copied(source, copy.with_name("whole")), source)
    last = copy / file_name(SIZE)
    data = bytearray(last.read_bytes())
    data[200] ^= 1
    last.write_bytes(data)
    damaged = end_of(copied(copy, copy.with_name("damaged")), source)
    assert damaged.is_damaged
    assert (copy.with_name("damaged") / last.name).read_bytes() == data
    assert end_of(copy, source, live=True) == whole


def test_a_log_without_a_record_keeps_its_place(tmp_path: Path, source: Path) -> None:
    """The next record comes where the empty file says; at 0 none is needed."""
    log = tmp_path / "empty"
    log.mkdir()
    (log / file_name(3 * SIZE)).write_bytes(bytes(SIZE))
    assert end_of(log, source) == LogEnd(3 * SIZE, 3 * SIZE)
    assert (log / file_name(3 * SIZE)).exists()
    (log / file_name(3 * SIZE)).rename(log / file_name(0))
    assert end_of(log, source) == LogEnd(0, 0)
    assert not list(log.iterdir())
