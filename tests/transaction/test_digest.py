"""Digests: the same for the same bytes, with holes or without, in whatever pieces they are read."""

from __future__ import annotations

import os
from hashlib import blake2b
from pathlib import Path
from tempfile import NamedTemporaryFile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.base.files import InputFile
from rmqtool.transaction.system import SYSTEM, file_digest, manifest_of

BLOCK = 4096


def by_the_book(data: bytes) -> str:
    """What docs/undo.md says, block by block."""
    digest = blake2b(len(data).to_bytes(8, "big"), digest_size=16)
    going_on = False
    for position in range(0, len(data), BLOCK):
        block = data[position : position + BLOCK]
        if any(block) and not going_on:
            digest.update(position.to_bytes(8, "big"))
        going_on = any(block)
        digest.update(block if going_on else b"")
    return digest.hexdigest()


def digest_of(path: Path) -> str:
    with InputFile(path) as file:
        return file_digest(file)


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 40)), max_size=8), st.integers(0, BLOCK - 1), st.booleans())
@pytest.mark.slow
def test_digest_is_what_the_docs_say(parts: list[tuple[bool, int]], rest: int, filled: bool) -> None:
    data = b"".join((b"x" if full else b"\0") * (BLOCK * count) for full, count in parts)
    data += (b"y" if filled else b"\0") * rest
    with NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        assert digest_of(Path(file.name)) == by_the_book(data)


@pytest.mark.slow
def test_holes_do_not_count(tmp_path: Path) -> None:
    sparse, dense = tmp_path / "sparse", tmp_path / "dense"
    data = bytearray(6_000_000)
    with sparse.open("wb") as file:
        for position in (0, 20_000, 3_000_001, 5_999_999):
            data[position] = 7
            os.pwrite(file.fileno(), b"\7", position)
        file.truncate(len(data))
    dense.write_bytes(data)
    assert digest_of(sparse) == digest_of(dense) == by_the_book(bytes(data))


def test_a_flipped_bit_and_a_moved_block_count(tmp_path: Path) -> None:
    path = tmp_path / "file"
    found = set()
    for data in (b"a" * 10, b"a" * 9 + b"b", b"a" * 11, b"a" * 10 + bytes(1), bytes(BLOCK) + b"a" * 10, b""):
        path.write_bytes(data)
        found.add(digest_of(path))
    assert len(found) == 6


def test_manifests_of_what_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe")
    assert manifest_of(SYSTEM, str(tmp_path / "absent")) is None
    assert manifest_of(SYSTEM, str(tmp_path)) == {
        "entries": {"link": {"other": "link to nowhere"}, "pipe": {"other": "type 10000"}}
    }
