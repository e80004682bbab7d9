"""Many queues: each costs few system calls, and what is listed once is what each part would find."""

from __future__ import annotations

import gc
import shutil
import tracemalloc
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from rmqtool.base import files as files_module
from rmqtool.base.files import InputFile
from rmqtool.findings.finding import Finding
from rmqtool.inspect.overview import Overview, overview_of
from rmqtool.store.rocksdb import Databases
from rmqtool.store.rocksdb_queues import QueueDatabase
from rmqtool.store.splits import log_parts
from rmqtool.store.store import open_store
from rmqtool.verify.task import VerifyRequest
from rmqtool.verify.verification import Verification
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.verify.small_store import StoreBuilder, finish
from tests.verify.verifying import verify

TOPICS = tuple(f"topic-{number}" for number in range(40))
QUEUE = f"consumequeue/{TOPICS[3]}/0"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of 40 queues, of three messages each."""
    builder = StoreBuilder(file_size=8192)
    for number in range(3 * len(TOPICS)):
        builder.put(TOPICS[number % len(TOPICS)], body=b"body")
    store = builder.write(tmp_path_factory.mktemp("many") / "store")
    return finish(store, TOPICS)


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Path:
    return copied(made, tmp_path / "store")


@pytest.mark.slow
def test_each_queue_is_opened_and_listed_a_few_times(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for its units, once for all that needs its end, however many releases may start."""
    opened: Counter[str] = Counter()
    listed: Counter[str] = Counter()
    open_file, list_directory = InputFile.__init__, files_module.list_directory

    def opening(file: InputFile, path: Path | str, *rest: object) -> None:
        opened[Path(path).parent.parent.name] += 1
        open_file(file, path, *rest)  # type: ignore[arg-type]

    def listing(path: Path | str) -> object:
        listed[Path(path).parent.name] += 1
        return list_directory(path)

    monkeypatch.setattr("rmqtool.base.files._MAX_OPEN", 8)  # fewer than queues
    monkeypatch.setattr(InputFile, "__init__", opening)
    monkeypatch.setattr("rmqtool.base.mapped_files.list_directory", listing)
    outcome = verify(store)
    assert outcome.verdict == "clean"
    assert {opened[topic] for topic in TOPICS} == {2}
    assert {listed[topic] for topic in TOPICS} == {1}


def overview(store: Path) -> Overview:
    return overview_of(open_store(store))


def verification(store: Path) -> Verification:
    """The whole of it, without what a test holds to see that nothing changes."""
    found = Verification(open_store(store), VerifyRequest())
    found.run(lambda size: None)
    assert found.complete
    return found


@pytest.mark.one_in(2)
@pytest.mark.slow
@pytest.mark.parametrize(("look", "most"), [(overview, 1.0), (verification, 1.6)])
def test_memory_for_each_queue(tmp_path: Path, look: Callable[[Path], object], most: float) -> None:
    """KiB that stay for each queue, at most, with a quarter of room for what caches hold; each has one message."""
    stores = {}
    for count in (200, 600):  # more than files are kept open
        topics = tuple(f"topic-{number}" for number in range(count))
        builder = StoreBuilder(file_size=1 << 18)
        for topic in topics:
            builder.put(topic, body=b"body")
        stores[count] = finish(builder.write(tmp_path / str(count)), topics)
    look(stores[200])  # what is loaded once is no memory of queues
    few, many = (memory_of(look, store) for store in stores.values())
    assert (many - few) / (600 - 200) / 1024 < most


@pytest.mark.slow
def test_the_ends_of_queues_in_rocksdb_are_held_once(
    golden_store: GoldenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The listing, the check of the parts and that of the queues read one database."""
    opened: list[Path] = []
    open_database = QueueDatabase.__init__

    def opening(database: QueueDatabase, path: Path, databases: Databases | None = None) -> None:
        opened.append(path)
        open_database(database, path, databases)

    monkeypatch.setattr(QueueDatabase, "__init__", opening)
    assert verify(golden_store("more/5.5.0-rocksdb")).complete
    assert len(opened) == 1


def memory_of(look: Callable[[Path], object], store: Path) -> int:
    """The memory that the result holds, bytes."""
    tracemalloc.start()
    try:
        result = look(store)
        gc.collect()
        held = tracemalloc.get_traced_memory()[0]
        del result
        return held
    finally:
        tracemalloc.stop()


def put_file(queue: Path) -> None:
    shutil.rmtree(queue)
    queue.write_bytes(b"x")


def remove_files(queue: Path) -> None:
    for file in list(queue.iterdir()):
        file.unlink()


def put_directory(queue: Path) -> None:
    for file in list(queue.iterdir()):
        file.unlink()
        file.mkdir()


DAMAGES: dict[str, Callable[[Path], object]] = {
    "healthy": lambda queue: None,
    "no directory": shutil.rmtree,
    "no file": remove_files,
    "a file in the place of the directory": put_file,
    "a directory in the place of the file": put_directory,
    "another number of the same value": lambda queue: queue.rename(queue.with_name("00")),
    "both numbers": lambda queue: copied(queue, queue.with_name("00")),
    "not to be read": lambda queue: queue.chmod(0),
    "halved": lambda queue: [file.write_bytes(file.read_bytes()[:30]) for file in queue.iterdir()],
}


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_what_is_listed_once_is_what_each_part_finds(
    store: Path, damage: Callable[[Path], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The findings are those of a verification whose parts look for the files of each queue themselves."""
    queue = store / QUEUE
    damage(queue)
    try:
        found = shown(verify(store).findings)
        monkeypatch.setattr(Verification, "_listed_queues", lambda verification: None)
        assert found == shown(verify(store).findings)
    finally:
        if queue.is_dir():
            queue.chmod(0o755)


def shown(findings: Sequence[Finding]) -> list[str]:
    return [repr(each) for each in findings]


@pytest.mark.slow
def test_parts_of_a_log_of_many_queues_are_larger(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part compares each queue, so there are fewer parts; a sample still takes small ones."""
    sizes: list[int] = []
    cut = log_parts

    def cutting(*arguments: Any, **options: Any) -> Any:
        sizes.append(arguments[2])
        return cut(*arguments, **options)

    monkeypatch.setattr("rmqtool.verify.log_pass.log_parts", cutting)
    monkeypatch.setattr("rmqtool.verify.log_pass._LOG_PER_QUEUE", 4096)
    monkeypatch.setattr("rmqtool.verify.log_pass.PART_SIZE", 1024)  # which nobody has asked for
    assert verify(store, part_size=1024).verdict == "clean"
    assert verify(store, part_size=1 << 20).verdict == "clean"
    verify(store, part_size=1024, sample=0.5)
    assert sizes == [40 * 4096, 1 << 20, 1024]
