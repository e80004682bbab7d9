"""The log in parts gives what one pass over it gives, and several processes exactly what one gives."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.parallel import WorkerPool
from rmqtool.findings.report import Report
from rmqtool.formats.message import MAGIC_CODE_V1
from rmqtool.show.verify_reports import outcome_json
from rmqtool.store.commit_log import WORTH_A_PROCESS
from rmqtool.store.splits import log_parts
from rmqtool.store.store import open_store
from rmqtool.verify.log_pass import workers_for
from rmqtool.verify.outcome import Outcome, outcome_of
from rmqtool.verify.part_result import PartBoundary, PartMerger, PartResult
from rmqtool.verify.task import LogPart, VerifyRequest
from rmqtool.verify.verification import Verification
from tests.building import START_TIME
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.golden import stores
from tests.sampling import one_in
from tests.unchanged import unchanged
from tests.verify.damages import DAMAGES, log_file, overwrite
from tests.verify.small_store import FILE_SIZE, StoreBuilder, small_log, small_store
from tests.verify.verifying import facts, verify

WHOLE = 1 << 40
SIZES = (350, 700)
"""Of the last parts, bytes: several in each file of the small store."""

LOG = small_log()
LAST_START = (len(LOG.files) - 1) * FILE_SIZE


def document(outcome: Outcome) -> str:
    """All that is told, as text."""
    findings = [str(finding) for finding in outcome.findings]
    return json.dumps([outcome_json(outcome), findings], indent=1, default=str)


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small store, to be copied."""
    return small_store(tmp_path_factory.mktemp("healthy") / "store")


@pytest.fixture
def store(healthy: Path, tmp_path: Path) -> Path:
    return copied(healthy, tmp_path / "store")


@pytest.mark.one_in(6)
@pytest.mark.slow
@pytest.mark.parametrize("name", DAMAGES)
def test_damages(name: str, store: Path) -> None:
    """Each damage of the catalogue is told alike."""
    DAMAGES[name].apply(store)
    assert facts(verify(store, part_size=SIZES[0])) == facts(verify(store, part_size=WHOLE))


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", stores.samples())
def test_golden_stores(name: str, golden_store: GoldenStore) -> None:
    """Healthy and killed stores are told alike."""
    store = golden_store(name)
    whole = facts(verify(store, part_size=WHOLE))
    assert facts(verify(store, part_size=4096)) == whole


def zeros(store: Path, start: int, size: int) -> None:
    """Lose what lies there."""
    damage(store, start, bytes(size))


def noise(store: Path, start: int, size: int) -> None:
    """Write something else there."""
    damage(store, start, random.Random(start).randbytes(size))


def damage(store: Path, start: int, data: bytes) -> None:
    """Overwrite some bytes of one file of the log."""
    base = start // FILE_SIZE * FILE_SIZE
    name = log_file(store, base // FILE_SIZE).relative_to(store).as_posix()
    overwrite(store, name, start - base, data[: base + FILE_SIZE - start])


def tear(store: Path, start: int, size: int) -> None:
    """Lose the end of the log."""
    zeros(store, start, FILE_SIZE)
    noise(store, start, size % 40)


def bury(store: Path, start: int, size: int) -> None:
    """Lose a few bytes of the last file, after which old records stand."""
    zeros(store, start, min(size, 100))
    path = log_file(store, -1)
    data = bytearray(path.read_bytes())
    magic_code = MAGIC_CODE_V1.to_bytes(4, "big", signed=True)
    found = data.find(magic_code, start - LAST_START)
    while found >= 0:
        data[found + 52 : found + 60] = (START_TIME - 1).to_bytes(8, "big")
        found = data.find(magic_code, found + 4)
    path.write_bytes(data)


@pytest.mark.one_in(10)
@pytest.mark.slow
@pytest.mark.parametrize("apply", [zeros, noise, tear, bury])
@pytest.mark.parametrize("size", [4, 200, 1700])
@pytest.mark.parametrize("shift", [-30, 0])
@pytest.mark.parametrize("number", [1, 7])
def test_damage_at_borders(
    apply: Callable[[Path, int, int], None], number: int, shift: int, size: int, healthy: Path, tmp_path: Path
) -> None:
    """Before, after and across the borders of parts: the same counts, extents and start."""
    borders = [
        start
        for part_size in SIZES
        for start, _ in log_parts(open_store(healthy).commit_log().files, least=part_size)[1:]
    ]
    if apply in (tear, bury):
        borders = [border for border in borders if border > LAST_START]
    store = copied(healthy, tmp_path / "store")
    apply(store, borders[number % len(borders)] + shift, size)
    whole = facts(verify(store, part_size=WHOLE))[0]
    for part_size in SIZES:
        assert facts(verify(store, part_size=part_size))[0] == whole


@pytest.mark.slow
@pytest.mark.parametrize("jump", [-5, 5])
def test_queue_offsets_that_jump_at_a_border(jump: int, tmp_path: Path) -> None:
    """They are told wherever the parts meet."""
    log = StoreBuilder(file_size=FILE_SIZE)
    for number in range(12):
        log.put("orders", queue_offset=number + 10 + jump * (number >= 6), store_timestamp=START_TIME)
    store = log.write(tmp_path / "store")
    expected = "commitlog.queue-offset-gap" if jump > 0 else "commitlog.queue-offset-restart"
    for size in one_in(3, range(50, 700, 25), str(jump)):
        findings = verify(store, part_size=size).findings
        assert [(f.offset, f.queue_offset) for f in findings if f.code == expected] == [(log.offsets[6], 16 + jump)]


@pytest.mark.slow
def test_times_that_step_back_at_a_border(tmp_path: Path) -> None:
    """The largest step of the whole log is told, wherever the parts meet."""
    log = StoreBuilder(file_size=FILE_SIZE)
    for seconds in (0, 500, 300, 100, 450, 600, 250, 700):
        log.put("orders", store_timestamp=START_TIME + 1000 * seconds)
    store = log.write(tmp_path / "store")
    for size in one_in(3, range(50, 700, 25), "times"):
        [found] = [f for f in verify(store, part_size=size).findings if f.code == "commitlog.time-order"]
        assert (found.offset, found.message.split()[1]) == (log.offsets[3], "400")


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["", "body", "zeros", "torn", "hole", "slot", "index count", "missing file"])
def test_processes(name: str, store: Path) -> None:
    """Several processes tell byte for byte what one tells; here the others do most of the work."""
    if name:
        DAMAGES[name].apply(store)
    one = document(verify(store, part_size=350))
    with WorkerPool[PartResult](1) as pool, unchanged(store):
        [worker] = pool.workers
        assert worker.steps.poll(30)

        def slow(_size: int) -> None:
            time.sleep(0.02)  # only this process tells of so few bytes

        verification = Verification(open_store(store), VerifyRequest(part_size=350, jobs=2))
        verification.run(slow, pool)
    assert document(outcome_of(verification)) == one


def test_a_process_that_dies(store: Path) -> None:
    """It is told, and nothing is taken for complete."""
    with WorkerPool[PartResult](1) as pool:
        [worker] = pool.workers
        assert worker.steps.poll(30)

        def progress(size: int) -> None:
            worker.process.kill()
            worker.process.join()

        verification = Verification(open_store(store), VerifyRequest(part_size=350, jobs=2))
        with pytest.raises(RmqtoolError, match="a worker process died"):
            verification.run(progress, pool)
    assert not verification.complete


def test_how_many_processes(tmp_path: Path) -> None:
    """As many as the log is worth, and none for one job."""
    (tmp_path / "commitlog").mkdir()
    with (tmp_path / "commitlog" / f"{0:020}").open("wb") as file:
        file.truncate(8 * WORTH_A_PROCESS)
    with workers_for(tmp_path, 4) as pool:  # nothing but a hole
        assert not pool.workers
    with workers_for(tmp_path / "none", 4) as pool:
        assert not pool.workers


def result_from(first: int | None, end: int | None) -> PartResult:
    """The result of a part that met what begins at `first` and ends at `end`."""
    return PartResult(Report(), log_end=end, boundary=PartBoundary(first, end))


def merge(merger: PartMerger, number: int, result: PartResult) -> list[tuple[int, int]]:
    """Add a result; the parts that were checked again."""
    again = []
    merger.add(number, result)
    while (part := merger.merge()) is not None:
        again.append((part.start, part.stop))
        merger.replace(part, result_from(part.start, part.stop))
    return again


def test_parts_that_do_not_meet() -> None:
    """They are checked again as one; when that happens too often, all that is left is one part."""
    parts = [LogPart(start, start + 10) for start in range(0, 100, 10)]
    merger = PartMerger(parts, result_from(None, None))
    again = []
    for number in (1, 0, 3, 2, 5, 4, 9, 8, 7, 6):
        start = 10 * number
        again += merge(merger, number, result_from(start + (number in (2, 4, 6, 8)), start + 10))
    assert again == [(10, 30), (30, 50), (50, 70), (70, 100)]
    assert merger.total().log_end == 100


def test_a_part_in_which_nothing_begins() -> None:
    """What begins before goes through it."""
    merger = PartMerger([LogPart(0, 10), LogPart(10, 20), LogPart(20, 30)], result_from(None, None))
    again = []
    for number, result in enumerate((result_from(0, 22), result_from(None, None), result_from(23, 30))):
        again += merge(merger, number, result)
    assert again == [(0, 30)]
