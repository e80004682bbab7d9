"""Files opened for reading: data and holes, the page cache, the rate limit, errors."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from rmqtool.base.errors import UnreadableError, WrongKindError
from rmqtool.base.files import InputFile, RateLimit, ReadPolicy, list_directory, read_all
from tests.building import write_sparse
from tests.unchanged import snapshot, unchanged

MIB = 1 << 20


@pytest.fixture(params=["sparse", "dense", "no SEEK_DATA"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How zeros are kept, and whether the file system can tell."""
    if request.param == "no SEEK_DATA":

        def refuse(*_: int) -> int:
            raise OSError(errno.EINVAL, "not here")

        monkeypatch.setattr(os, "lseek", refuse)
    return str(request.param)


def write(path: Path, form: str, pieces: dict[int, bytes], size: int) -> Path:
    write_sparse(path, pieces, size)
    if form == "dense":
        path.write_bytes(path.read_bytes())
    return path


@pytest.mark.parametrize("data_at", [0, 1, 4095, 4096, MIB - 1, MIB, 3 * MIB + 5, 5 * MIB - 1])
def test_next_data_finds_the_first_byte(tmp_path: Path, form: str, data_at: int) -> None:
    """From anywhere before it, after it, and with an end before it."""
    size = 5 * MIB
    path = write(tmp_path / "file", form, {data_at: b"\1"}, size)
    with InputFile(path) as file:
        assert file.next_data(0, size) == data_at
        assert file.next_data(data_at, size) == data_at
        assert file.next_data(data_at + 1, size) == size
        assert file.next_data(0, data_at) == data_at
        assert file.next_data(0, data_at // 2) == data_at // 2
        assert file.data_end(0) == data_at + 1
        assert file.data_end(data_at) == data_at + 1
        assert file.data_end(min(size, data_at + 1)) == data_at + 1
        assert file.data_end(size) == size


def test_a_file_of_zeros_has_no_data(tmp_path: Path, form: str) -> None:
    """Zeros and holes are the same, and an empty file has neither."""
    for size in (0, 1, 3 * MIB):
        with InputFile(write(tmp_path / "file", form, {}, size)) as file:
            assert file.next_data(0, size) == size
            assert file.data_end(0) == 0


def test_data_between_zeros(tmp_path: Path, form: str) -> None:
    """Each byte that is not zero is found in turn."""
    places = [5, 6, 5000, MIB, MIB + 4097, 4 * MIB]
    path = write(tmp_path / "file", form, dict.fromkeys(places, b"\xff"), 6 * MIB)
    with InputFile(path) as file:
        found = [file.next_data(0, file.size)]
        while found[-1] < file.size:
            found.append(file.next_data(found[-1] + 1, file.size))
        assert found == [*places, file.size]
        assert file.data_end(0) == places[-1] + 1


def test_reads_end_with_the_file(tmp_path: Path) -> None:
    """Small and large reads give what is there, and nothing past the end."""
    data = os.urandom(200_000)
    (tmp_path / "file").write_bytes(data)
    with unchanged(tmp_path), InputFile(tmp_path / "file") as file:
        for position, size in (
            (0, 10),
            (0, 200_000),
            (0, 1 << 22),
            (100_000, 150_000),
            (199_999, 9),
            (200_000, 100_000),
        ):
            assert file.read(position, size) == data[position : position + size]
            target = bytearray(size)
            count = file.read_into(memoryview(target), position)
            assert target[:count] == data[position : position + size]
            assert not any(target[count:])


class PageCache:
    """What a kernel would hold: reads without waiting give only `held` bytes of each call."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, held: int, refusal: int | None = None) -> None:
        self.held = held
        self.refusal = refusal
        self.dropped: list[tuple[int, int]] = []
        self._preadv = os.preadv
        monkeypatch.setattr(os, "preadv", self.preadv)
        monkeypatch.setattr(os, "posix_fadvise", self.advise)

    def preadv(self, descriptor: int, buffers: list[memoryview], position: int, flags: int = 0) -> int:
        if flags:
            if self.refusal:
                raise OSError(self.refusal, os.strerror(self.refusal))
            buffers = [buffers[0][: self.held]]
        return self._preadv(descriptor, buffers, position)

    def advise(self, _: int, position: int, size: int, advice: int) -> None:
        if advice == os.POSIX_FADV_DONTNEED:
            self.dropped.append((position, size))


@pytest.fixture
def big(tmp_path: Path) -> Iterator[InputFile]:
    (tmp_path / "file").write_bytes(os.urandom(3 * 65536))
    with unchanged(tmp_path), InputFile(tmp_path / "file", ReadPolicy(drop_page_cache=True)) as file:
        yield file


@pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="this system can't tell what its page cache holds")
@pytest.mark.parametrize(
    ("held", "refusal", "dropped"),
    [
        (65536, None, []),
        (4096, None, [(100 + 4096, 65536 - 4096)]),
        (0, errno.EAGAIN, [(100, 65536)]),
        (0, errno.EOPNOTSUPP, []),
    ],
)
def test_only_pages_that_were_not_cached_are_dropped(
    big: InputFile,
    monkeypatch: pytest.MonkeyPatch,
    held: int,
    refusal: int | None,
    dropped: list[tuple[int, int]],
) -> None:
    """What the broker had in the cache stays there; where the system can't tell, nothing is dropped."""
    cache = PageCache(monkeypatch, held, refusal)
    target = bytearray(65536)
    assert big.read_into(memoryview(target), 100) == 65536
    assert cache.dropped == dropped
    assert target == big.read(100, 65536)


@pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="this system can't tell what its page cache holds")
def test_every_large_read_spares_the_cache(big: InputFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search through damage or zeros leaves the cache as a scan does."""
    cache = PageCache(monkeypatch, 0, errno.EAGAIN)
    big.read(0, 2 * 65536)
    assert cache.dropped == [(0, 2 * 65536)]


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="this system takes no advice")
def test_read_ahead_is_switched_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages that the kernel reads ahead would be taken for the broker's."""
    advice = []
    monkeypatch.setattr(os, "posix_fadvise", lambda *arguments: advice.append(arguments[1:]))
    (tmp_path / "file").touch()
    with InputFile(tmp_path / "file", ReadPolicy(drop_page_cache=True)):
        assert advice == [(0, 0, os.POSIX_FADV_RANDOM)]


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="this system takes no advice")
def test_the_cache_is_used_where_no_broker_needs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a broker to spare, the kernel reads ahead and keeps pages, so that the next command is faster."""
    advice = []
    monkeypatch.setattr(os, "posix_fadvise", lambda *arguments: advice.append(arguments[1:]))
    (tmp_path / "file").write_bytes(bytes(3 * 65536))
    with InputFile(tmp_path / "file") as file:
        file.read(0, 3 * 65536)
    assert not advice


class Advised:
    """What the kernel is asked to fetch, as positions from and to; `held` bytes of a read are in its page cache."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, held: int = 0) -> None:
        self.ranges: list[tuple[int, int]] = []
        self.came = threading.Condition()
        PageCache(monkeypatch, held)
        monkeypatch.setattr(os, "posix_fadvise", self.advise)

    def advise(self, _: int, position: int, size: int, advice: int) -> None:
        assert advice == os.POSIX_FADV_WILLNEED
        with self.came:
            self.ranges.append((position, position + size))
            self.came.notify()

    def wait_for(self, end: int) -> None:
        with self.came:
            assert self.came.wait_for(lambda: self.ranges and self.ranges[-1][1] >= end, timeout=60)


needs_advice = pytest.mark.skipif(
    not hasattr(os, "posix_fadvise") or not hasattr(os, "RWF_NOWAIT"), reason="this system takes no advice"
)


@needs_advice
def test_what_follows_is_fetched_while_a_block_is_computed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file that is not in the page cache 16 MiB after each block are asked for, once, up to its end."""
    size, ahead = 40 * MIB, 16 * MIB
    with (tmp_path / "file").open("wb") as file:
        file.truncate(size)
    advised = Advised(monkeypatch)
    block, threads = memoryview(bytearray(MIB)), threading.active_count()
    with InputFile(tmp_path / "file") as opened:
        for position in range(0, size, MIB):
            opened.read_into(block, position)
            advised.wait_for(min(position + MIB + ahead, size))
    assert advised.ranges[0] == (MIB, MIB + ahead)
    assert all(before[1] == after[0] for before, after in pairwise(advised.ranges))
    assert threading.active_count() == threads


@needs_advice
@pytest.mark.parametrize("policy", [ReadPolicy(RateLimit(1 << 40)), ReadPolicy()])
def test_nothing_is_fetched_that_is_there_or_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: ReadPolicy
) -> None:
    """A limited reader gets no more than it asks for, and what the page cache has is not asked for again."""
    (tmp_path / "file").write_bytes(bytes(3 * MIB))
    advised, threads = Advised(monkeypatch, held=0 if policy.rate_limit else MIB), threading.active_count()
    with InputFile(tmp_path / "file", policy) as opened:
        for position in range(3):
            opened.read_into(memoryview(bytearray(MIB)), position * MIB)
        assert threading.active_count() == threads
    assert not advised.ranges


@needs_advice
def test_without_another_thread_it_reads_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system allows no more threads, nothing is fetched ahead."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    (tmp_path / "file").write_bytes(b"x" * MIB)
    Advised(monkeypatch)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    target = bytearray(MIB)
    with InputFile(tmp_path / "file") as opened:
        assert opened.read_into(memoryview(target), 0) == MIB
    assert target == b"x" * MIB


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.longest = 1000.0, 0.0
        monkeypatch.setattr("rmqtool.base.files.time", self)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.longest = max(self.longest, seconds)
        self.now += seconds


def test_the_rate_limit_holds_on_average(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads, large ones of a search included, take no less time than the rate says; a pause earns a second at most."""
    clock = Clock(monkeypatch)
    (tmp_path / "file").write_bytes(bytes(MIB))
    limit = RateLimit(MIB)
    with InputFile(tmp_path / "file", ReadPolicy(limit)) as file:
        for _ in range(10):
            file.read_into(memoryview(bytearray(MIB)), 0)
            file.read(0, MIB)
        assert clock.now == pytest.approx(1020, abs=1.1)
        clock.now += 3600
        begin = clock.now
        for _ in range(5):
            file.read(0, MIB)
        assert clock.now - begin >= 4 - 1e-6


def test_a_signal_is_heard_while_a_rate_limit_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that comes just before a sleep is heard after it: so none is long, however low the rate."""
    clock = Clock(monkeypatch)
    (tmp_path / "file").write_bytes(bytes(MIB))
    with InputFile(tmp_path / "file", ReadPolicy(RateLimit(MIB // 60))) as file:
        file.read(0, MIB)
    assert clock.now == pytest.approx(1060, abs=1.1)
    assert clock.longest <= 0.5


def test_opening_refuses_what_is_no_file(tmp_path: Path) -> None:
    """A pipe does not block, a directory is named as one, and what is not there is unreadable."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(WrongKindError, match="not a regular file"):
        InputFile(tmp_path / "pipe")
    with pytest.raises(WrongKindError, match="a directory"):
        InputFile(tmp_path)
    with pytest.raises(UnreadableError, match="no such file"):
        InputFile(tmp_path / "nothing")


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    """Closing twice is harmless, and refusing closes."""
    before = set(os.listdir("/dev/fd"))
    file = InputFile(write_sparse(tmp_path / "file", {}, 10))
    file.close()
    file.close()
    with pytest.raises(WrongKindError):
        InputFile(tmp_path)
    assert set(os.listdir("/dev/fd")) == before


def test_an_error_names_file_and_offset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bad sector is told with its place and what to do."""
    path = write_sparse(tmp_path / "file", {}, MIB)

    def fail(*_: object) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    with InputFile(path) as file:
        monkeypatch.setattr(os, "pread", fail)
        monkeypatch.setattr(os, "preadv", fail)
        for size in (10, MIB):
            with pytest.raises(UnreadableError) as caught:
                file.read(4096, size)
            assert (caught.value.file, caught.value.offset) == (str(path), 4096)
            assert "ddrescue" in (caught.value.hint or "")


def test_small_files_and_listings(tmp_path: Path) -> None:
    """A limit cuts, a listing is sorted, and a directory that is not there is empty."""
    (tmp_path / "b").write_bytes(b"12345")
    (tmp_path / "a").touch()
    assert read_all(tmp_path / "b", 3) == b"123"
    assert read_all(tmp_path / "b", 1 << 20) == b"12345"
    assert [entry.name for entry in list_directory(tmp_path)] == ["a", "b"]
    assert list_directory(tmp_path / "nothing") == []
    with pytest.raises(UnreadableError):
        list_directory(tmp_path / "a")


def test_the_snapshot_sees_changes(tmp_path: Path) -> None:
    """The helper that guards all readers fails for a byte, a time, a mode, a new file and one that is gone."""
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    before = snapshot(tmp_path)
    assert snapshot(tmp_path) == before
    status = path.stat()
    for change in (
        lambda: path.write_bytes(b"12346"),
        lambda: os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1)),
        lambda: path.chmod(0o600),
        (tmp_path / "new").touch,
        path.unlink,
    ):
        with pytest.raises(AssertionError), unchanged(tmp_path):
            change()
