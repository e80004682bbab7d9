"""Damage to queues and index files, as crashes, disks and people cause it; each leaves the log alone."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from rmqtool.formats.consume_queue import UNIT_SIZE, build_unit

Damage = Callable[[Path], None]
FILE_SIZE = 600  # of the golden stores' queues: 30 units


def queue_file(root: Path, number: int = 0, start: int = 0) -> Path:
    """A file of a queue of the topic ``orders``, which all golden stores have."""
    return root / "consumequeue" / "orders" / str(number) / f"{start:020d}"


def write(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def all_queues_gone(root: Path) -> None:
    shutil.rmtree(root / "consumequeue")


def one_topic_gone(root: Path) -> None:
    shutil.rmtree(root / "consumequeue" / "orders")


def one_queue_gone(root: Path) -> None:
    shutil.rmtree(root / "consumequeue" / "orders" / "1")


def unit_zeroed(root: Path) -> None:
    write(queue_file(root), 5 * UNIT_SIZE, bytes(UNIT_SIZE))


def unit_points_behind_the_log(root: Path) -> None:
    write(queue_file(root), 5 * UNIT_SIZE, build_unit(1 << 50, 100, 0))


def wrong_tags_code(root: Path) -> None:
    write(queue_file(root), 7 * UNIT_SIZE + 12, b"\x01\x02")


def units_shifted(root: Path) -> None:
    path = queue_file(root)
    data = path.read_bytes()
    write(path, 0, data[UNIT_SIZE:])


def last_units_lost(root: Path) -> None:
    path = last_file(root)
    data = path.read_bytes().rstrip(b"\0")
    write(path, max(0, len(data) - 3 * UNIT_SIZE) // UNIT_SIZE * UNIT_SIZE, bytes(3 * UNIT_SIZE))


def units_behind_the_end(root: Path) -> None:
    path = last_file(root)
    end = -(-len(path.read_bytes().rstrip(b"\0")) // UNIT_SIZE)
    write(path, end * UNIT_SIZE, build_unit(1 << 40, 100, 5))


def file_too_short(root: Path) -> None:
    with queue_file(root).open("r+b") as file:
        file.truncate(137)


def file_of_no_bytes(root: Path) -> None:
    queue_file(root).write_bytes(b"")


def extra_file_of_zeros(root: Path) -> None:
    last = last_file(root)
    last.with_name(f"{int(last.name) + FILE_SIZE:020d}").write_bytes(bytes(FILE_SIZE))


def last_file(root: Path) -> Path:
    return max((root / "consumequeue" / "orders" / "0").iterdir())


def file_off_the_grid(root: Path) -> None:
    path = queue_file(root)
    path.rename(path.with_name(f"{17:020d}"))


QUEUE_DAMAGE: tuple[Damage, ...] = (
    all_queues_gone,
    one_topic_gone,
    one_queue_gone,
    unit_zeroed,
    unit_points_behind_the_log,
    wrong_tags_code,
    units_shifted,
    last_units_lost,
    units_behind_the_end,
    file_too_short,
    file_of_no_bytes,
    extra_file_of_zeros,
    file_off_the_grid,
)


def first_index(root: Path) -> Path:
    return min((root / "index").iterdir())


def index_gone(root: Path) -> None:
    shutil.rmtree(root / "index")


def first_index_file_gone(root: Path) -> None:
    first_index(root).unlink()


def index_header_zeroed(root: Path) -> None:
    write(first_index(root), 0, bytes(40))


def index_slots_zeroed(root: Path) -> None:
    write(first_index(root), 40, bytes(200))


def index_unit_overwritten(root: Path) -> None:
    write(first_index(root), 40 + 200 + 5 * 20, b"\x7f" * 20)


def index_cut(root: Path) -> None:
    with first_index(root).open("r+b") as file:
        file.truncate(300)


INDEX_DAMAGE: tuple[Damage, ...] = (
    index_gone,
    first_index_file_gone,
    index_header_zeroed,
    index_slots_zeroed,
    index_unit_overwritten,
    index_cut,
)
