"""The new log is the same whether it is written through the page cache or past it."""

from __future__ import annotations

import random
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from rmqtool.base.files import InputFile
from rmqtool.base.new_files import DirectCopy
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.salvage import write_log as module
from rmqtool.salvage.write_log import write_log
from tests.building import LOG, LogBuilder
from tests.salvage.damaged_logs import plan_of
from tests.unchanged import tree, unchanged

FILE_SIZE = 1 << 20


@pytest.mark.budget(2)
@pytest.mark.parametrize("shifted", [0, 4096, 77])
def test_past_the_page_cache(monkeypatch: pytest.MonkeyPatch, shifted: int) -> None:
    """Whole pages go past it, also from other places of a file, if these are pages apart."""
    copied: list[int] = []
    original = DirectCopy.copy

    def counted(self: DirectCopy, source: InputFile, position: int, size: int, to: int) -> int:
        copied.append(original(self, source, position, size, to))
        return copied[-1]

    monkeypatch.setattr(DirectCopy, "copy", counted)
    with TemporaryDirectory(dir="/var/tmp") as directory:
        place = Path(directory)
        store = damaged_store(place / "store", shifted)
        plan = plan_of(store, conf=BrokerConf({"mappedFileSizeCommitLog": str(FILE_SIZE)}), topics=("TestTopic",))
        with unchanged(store):
            for is_direct in (False, True):
                monkeypatch.setattr(module, "exceeds_page_cache", lambda size, answer=is_direct: answer)
                write_log(plan, place / str(is_direct))
        assert plan.size > 2 * FILE_SIZE
        assert tree(place / "True") == tree(place / "False")
        times = [[path.stat().st_mtime_ns for path in sorted((place / name).iterdir())] for name in ("True", "False")]
        assert times[0] == times[1]
    if sum(copied) == 0:
        pytest.skip("this file system has no direct input and output")
    assert (sum(copied) > 3 * FILE_SIZE // 2) is (shifted != 77)


def damaged_store(store: Path, shifted: int) -> Path:
    """A log of three files: the first begins later than its name says, the second has two damaged places."""
    chance = random.Random(3)
    log = LogBuilder(file_size=FILE_SIZE)
    while len(log.images()) < 3 or log.end % FILE_SIZE < FILE_SIZE // 2:
        log.add(body=chance.randbytes(chance.randrange(1, 60_000)))
    log.write(store)
    first, second, _ = sorted((store / LOG).iterdir())
    if shifted:
        first.write_bytes(bytes(shifted) + first.read_bytes()[:-shifted])
    data = bytearray(second.read_bytes())
    for position in (100_000, 700_001):
        data[position : position + 3000] = bytes(3000)
    second.write_bytes(data)
    return store
