"""Bodies: decompressed as the sys flag says, kept as stored where that fails, and never more than fit in memory."""

from __future__ import annotations

import mmap
import random
import subprocess
import sys
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from rmqtool.scan import bodies
from rmqtool.scan.bodies import BodyError, decompress
from rmqtool.scan.columns import record_batches
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.reader import scan_files
from tests.building import LogBuilder
from tests.commands.running import ROOT, environment
from tests.scan.reading import agree, fast, files_of, messages

PLAIN = b"a plain text that is long enough to be compressed " * 20
ZLIB, LZ4, ZSTD = 0x301, 0x101, 0x201


def compressed(plain: bytes, flag: int) -> bytes:
    if flag in (ZLIB, 0x001):
        return zlib.compress(plain)
    codec = {LZ4: "lz4", ZSTD: "zstd"}[flag]
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(plain)
    found: bytes = sink.getvalue().to_pybytes()
    return found


_IN_LITTLE_MEMORY = """
import resource
from rmqtool.scan.bodies import decompress
from tests.scan.test_bodies import LZ4, PLAIN, ZLIB, ZSTD, compressed

unlimited = resource.RLIM_INFINITY
for flag in (ZLIB, LZ4, ZSTD):
    body, found = compressed(PLAIN * 100, flag), set()
    decompress(body, flag)
    for spare in range(0, 8 << 20, 16 << 10):
        now = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + spare, unlimited))
        try:
            decompress(body, flag)
            found.add("whole")
        except Exception as error:
            found.add("memory" if isinstance(error, MemoryError) else repr(error))
        resource.setrlimit(resource.RLIMIT_AS, (unlimited, unlimited))
    print(flag, *sorted(found))
"""

every_type = pytest.mark.parametrize("flag", [0x001, ZLIB, LZ4, ZSTD])


@every_type
@pytest.mark.parametrize("plain", [PLAIN, b"x", b""])
def test_every_type_is_decompressed(flag: int, plain: bytes) -> None:
    """The body as the producer gave it, however short."""
    assert decompress(compressed(plain, flag), flag) == plain


def test_the_type_means_nothing_without_the_compressed_bit() -> None:
    """Bits that only a compressed body has are not looked at."""
    assert decompress(PLAIN, 0x700) == PLAIN


@every_type
def test_a_body_that_was_cut_is_an_error(flag: int) -> None:
    """At every byte: a part of the stream is no body, unless only what stands after all of the text is missing."""
    whole = compressed(PLAIN, flag)
    for size in range(1, len(whole)):
        assert is_error(whole[:size], flag) or decompress(whole[:size], flag) == PLAIN
    assert is_error(whole[: len(whole) // 2], flag)


@every_type
def test_an_error_keeps_no_memory(flag: int) -> None:
    """A log full of wrong bodies does not eat the address space: a hundred of them take less than two may."""
    cut = compressed(PLAIN, flag)[:20]
    assert is_error(cut, flag)
    before = _address_space()
    assert all(is_error(cut, flag) for _ in range(100))
    assert _address_space() - before < 2 * bodies.MAX_BODY_SIZE


def _address_space() -> int:
    """Bytes of virtual memory that this process has."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * mmap.PAGESIZE


@every_type
def test_a_changed_body_is_an_error_or_another_body(flag: int) -> None:
    """Flipped bits never raise anything but a BodyError."""
    whole = bytearray(compressed(PLAIN, flag))
    generator = random.Random(flag)
    for _ in range(300):
        place = generator.randrange(len(whole))
        whole[place] ^= 1 << generator.randrange(8)
        is_error(bytes(whole), flag)
        is_error(generator.randbytes(generator.randrange(64)), flag)


def test_a_body_is_what_zlib_makes_of_it() -> None:
    """Whatever is changed, cut off or put behind: the same body, or the same error, as zlib alone gives."""
    generator = random.Random(8)
    outcomes = set()
    for number in range(2000):
        changed = bytearray(zlib.compress(PLAIN * generator.randrange(4), generator.randrange(10)))
        if number % 4:
            changed[generator.randrange(len(changed))] ^= 1 << generator.randrange(8)
        body = bytes(changed[: generator.randrange(len(changed))] if number % 7 == 0 else changed + bytes(number % 3))
        theirs = result_of(_by_zlib, body)
        assert result_of(partial(decompress, sys_flag=ZLIB), body) == theirs
        outcomes.add(type(theirs))
    assert outcomes == {bytes, str}


def result_of(inflate: Callable[[bytes], bytes], body: bytes) -> bytes | str:
    try:
        return inflate(body)
    except (BodyError, zlib.error) as error:
        return str(error)


def _by_zlib(body: bytes) -> bytes:
    inflater = zlib.decompressobj()
    plain = inflater.decompress(body)
    if not inflater.eof:
        raise BodyError("truncated zlib stream")
    return plain


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the limit of the address space is Linux's")
def test_too_little_memory_is_no_damage() -> None:
    """However little there is: a sound body is read, or it is said that there was no memory."""
    small = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1", "MALLOC_TOP_PAD_": "0",
             "MALLOC_MMAP_THRESHOLD_": "4096", "MALLOC_TRIM_THRESHOLD_": "0"}  # fmt: skip
    done = subprocess.run([sys.executable, "-c", _IN_LITTLE_MEMORY], check=False, cwd=ROOT, env=environment(**small),
                          capture_output=True, text=True)  # fmt: skip
    assert (done.stdout.splitlines(), done.stderr) == ([f"{flag} memory whole" for flag in (ZLIB, LZ4, ZSTD)], "")


def is_error(body: bytes, flag: int) -> bool:
    try:
        decompress(body, flag)
    except BodyError:
        return True
    return False


@every_type
def test_a_bomb_is_an_error(flag: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A body of a few bytes that becomes more than the limit is refused; at the limit it is not."""
    monkeypatch.setattr(bodies, "MAX_BODY_SIZE", 1 << 16)
    assert len(decompress(compressed(bytes(1 << 16), flag), flag)) == 1 << 16
    with pytest.raises(BodyError, match="more than 65536 bytes"):
        decompress(compressed(bytes((1 << 16) + 1), flag), flag)
    with pytest.raises(BodyError, match="more than 65536 bytes"):
        decompress(compressed(bytes(1 << 24), flag), flag)


@pytest.mark.parametrize("kind", [4, 5, 6, 7])
def test_an_unknown_type_is_an_error(kind: int) -> None:
    """Types that Java refuses are refused."""
    with pytest.raises(BodyError, match="unknown compression type"):
        decompress(PLAIN, kind << 8 | 1)


def test_what_does_not_decompress_stays_as_stored(store: Path) -> None:
    """Cut, changed, of an unknown type, or not compressed at all: the stored bytes are the body."""
    forms = [
        {"body": compressed(PLAIN, ZLIB)[:-8], "sys_flag": ZLIB},
        {"body": compressed(PLAIN, LZ4)[:-20], "sys_flag": LZ4},
        {"body": compressed(PLAIN, ZSTD)[:-20], "sys_flag": ZSTD},
        {"body": PLAIN, "sys_flag": 0x701},
        {"body": PLAIN, "sys_flag": 1},
        {"body": b"", "sys_flag": 1},
    ]
    forms += [{"body": compressed(PLAIN, flag), "sys_flag": flag} for flag in (1, ZLIB, LZ4, ZSTD)]
    found = messages(agree(LogBuilder(1 << 16).add_all(forms).write(store)))
    assert [row["body"] for row in found[:6]] == [form["body"] for form in forms[:6]]
    assert [row["body"] for row in found[6:]] == [PLAIN] * 4
    assert [row["stored_body"] for row in found] == [form["body"] for form in forms]


def test_batches_are_cut_where_bodies_are_large(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run whose bodies do not fit together comes in several batches, each record in one of them."""
    monkeypatch.setattr(bodies, "BATCH_BODY_BYTES", 10_000)
    log = LogBuilder(1 << 16).add_all([{"body": compressed(bytes(4000), ZSTD), "sys_flag": ZSTD}] * 20)
    log.write(store)
    (frames,) = scan_files(files_of(store))
    assert isinstance(frames, RecordRun)
    sizes = [batch.num_rows for batch in record_batches(frames, ("physical_offset", "body"))]
    assert sum(sizes) == 20
    assert max(sizes) == 3
    assert [batch.num_rows for batch in record_batches(frames, ("physical_offset", "stored_body"))] == [20]
    found = messages(fast(store))
    assert [row["physical_offset"] for row in found] == log.offsets
    assert all(row["body"] == bytes(4000) for row in found)
