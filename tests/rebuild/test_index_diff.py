"""Index files that say what the log says stay, however they are cut; those that say anything else do not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rmqtool.formats.index_file import HEADER_DTYPE, HEADER_SIZE, UNIT_DTYPE, unit_position
from rmqtool.store.index_files import geometry_of, list_index_files
from rmqtool.store.store import open_store
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.golden import stores
from tests.rebuild.plans import INDEX, plan

TRIMMED = [name for name in stores.names() if name.endswith("-trimmed")]
BEHIND = ("5.3.3-killed", "5.5.1-killed")  # the kill left their index after the log


def actions(name: str, root: Path) -> set[str]:
    return {file.action for file in plan(name, root, INDEX).index}


@pytest.mark.parametrize("name", TRIMMED)
def test_units_of_deleted_messages_are_no_fault(golden_store: GoldenStore, name: str) -> None:
    """Retention has left some of them; a rebuild would write other files, which say no more."""
    root = golden_store(name)

    assert min(file.begin_physical_offset for file in list_index_files(open_store(root))) < first_offset(root)
    assert actions(name, root) == {"keep"}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", stores.names())
def test_sound_stores_keep_their_index(golden_store: GoldenStore, name: str) -> None:
    assert actions(name, golden_store(name)) <= ({"create", "remove"} if name in BEHIND else {"keep"})


def first_offset(root: Path) -> int:
    return open_store(root).commit_log().files[0].start_offset


@pytest.mark.parametrize("field", HEADER_DTYPE.names or ())
def test_a_wrong_header(unpacked: GoldenStore, tmp_path: Path, field: str) -> None:
    name = TRIMMED[-1]
    root = copied(unpacked(name), tmp_path / "store")
    last = list_index_files(open_store(root))[-1]
    change(last.path, place_of(HEADER_DTYPE, field))

    assert "create" in actions(name, root)


@pytest.mark.parametrize("field", UNIT_DTYPE.names or ())
def test_a_wrong_unit(unpacked: GoldenStore, tmp_path: Path, field: str) -> None:
    name = TRIMMED[-1]
    root = copied(unpacked(name), tmp_path / "store")
    last = list_index_files(open_store(root))[-1]
    place = unit_position(geometry_of(last).slots, last.keys) + place_of(UNIT_DTYPE, field)
    change(last.path, place + UNIT_DTYPE[field].itemsize - 1)

    assert "create" in actions(name, root)


def test_a_wrong_slot(unpacked: GoldenStore, tmp_path: Path) -> None:
    name = TRIMMED[-1]
    root = copied(unpacked(name), tmp_path / "store")
    change(list_index_files(open_store(root))[-1].path, HEADER_SIZE + 3)

    assert "create" in actions(name, root)


def test_a_missing_file(unpacked: GoldenStore, tmp_path: Path) -> None:
    name = TRIMMED[-1]
    root = copied(unpacked(name), tmp_path / "store")
    list_index_files(open_store(root))[-1].path.unlink()

    assert "create" in actions(name, root)


def place_of(dtype: np.dtype[np.void], field: str) -> int:
    """Where a field begins in a structure, bytes."""
    assert dtype.fields is not None
    return dtype.fields[field][1]


def change(path: Path, position: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        before = file.read(1)
        file.seek(position)
        file.write(bytes([before[0] ^ 1]))
