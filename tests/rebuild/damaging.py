"""Damage to queues and index files, as crashes, disks and people cause it; each leaves the log alone.

All faults of the catalogue that a rebuild fixes: F30 to F38 and F41 to F43 of queues, F44 to F46 of the index.
"""

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


def entry_zeroed(root: Path) -> None:
    write(queue_file(root), 5 * UNIT_SIZE, bytes(UNIT_SIZE))


def entry_points_past_the_log(root: Path) -> None:
    write(queue_file(root), 5 * UNIT_SIZE, build_unit(1 << 50, 100, 0))


def wrong_tags_code(root: Path) -> None:
    write(queue_file(root), 7 * UNIT_SIZE + 12, b"\x01\x02")


def entries_shifted(root: Path) -> None:
    path = queue_file(root)
    data = path.read_bytes()
    write(path, 0, data[UNIT_SIZE:])


def last_entries_lost(root: Path) -> None:
    path = last_file(root)
    data = path.read_bytes().rstrip(b"\0")
    write(path, max(0, len(data) - 3 * UNIT_SIZE) // UNIT_SIZE * UNIT_SIZE, bytes(3 * UNIT_SIZE))


def entries_past_the_end(root: Path) -> None:
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


def file_at_a_wrong_offset(root: Path) -> None:
    path = queue_file(root)
    path.rename(path.with_name(f"{17:020d}"))


def entry_of_another_queue(root: Path) -> None:
    write(queue_file(root), 5 * UNIT_SIZE, queue_file(root, 1).read_bytes()[5 * UNIT_SIZE : 6 * UNIT_SIZE])


def wrong_size(root: Path) -> None:
    write(queue_file(root), 5 * UNIT_SIZE + 8, b"\0\0\0\x63")


def delivery_time_lost(root: Path) -> None:
    """The tags code of a delayed message is its tag's, as 4.9.2 to 4.9.8 leave it."""
    queue = min((root / "consumequeue" / "SCHEDULE_TOPIC_XXXX").iterdir())
    write(min(queue.iterdir()), 12, bytes(8))


def middle_file_gone(root: Path) -> None:
    queue_file(root, start=FILE_SIZE).unlink()


def pre_blank_in_the_middle(root: Path) -> None:
    write(queue_file(root, start=FILE_SIZE), 3 * UNIT_SIZE, build_unit(0, 0x7FFFFFFF, 0))


def light_queue_gone(root: Path) -> None:
    shutil.rmtree(root / "consumequeue" / "%LMQ%device-1")


def light_queue_overwritten(root: Path) -> None:
    write(min((root / "consumequeue" / "%LMQ%device-2" / "0").iterdir()), 0, build_unit(1, 100, 0))


def batch_file(root: Path) -> Path:
    return min((root / "batchconsumequeue").glob("*/*/*"))


def batch_queues_gone(root: Path) -> None:
    shutil.rmtree(root / "batchconsumequeue")


def batch_of_no_messages(root: Path) -> None:
    write(batch_file(root), 36, bytes(2))


def batch_base_negative(root: Path) -> None:
    write(batch_file(root), 28, b"\xff")


def batch_base_gap(root: Path) -> None:
    write(batch_file(root), 35, b"\x63")


QUEUE_DAMAGE: tuple[Damage, ...] = (
    entry_of_another_queue,
    wrong_size,
    delivery_time_lost,
    middle_file_gone,
    pre_blank_in_the_middle,
    light_queue_gone,
    light_queue_overwritten,
    batch_queues_gone,
    batch_of_no_messages,
    batch_base_negative,
    batch_base_gap,
    all_queues_gone,
    one_topic_gone,
    one_queue_gone,
    entry_zeroed,
    entry_points_past_the_log,
    wrong_tags_code,
    entries_shifted,
    last_entries_lost,
    entries_past_the_end,
    file_too_short,
    file_of_no_bytes,
    extra_file_of_zeros,
    file_at_a_wrong_offset,
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


def index_entry_overwritten(root: Path) -> None:
    write(first_index(root), 40 + 200 + 5 * 20, b"\x7f" * 20)


def index_cut(root: Path) -> None:
    with first_index(root).open("r+b") as file:
        file.truncate(300)


def index_chain_in_a_circle(root: Path) -> None:
    write(first_index(root), 40 + 200 + 5 * 20 + 16, (5).to_bytes(4, "big"))


def index_hash_of_another_key(root: Path) -> None:
    write(first_index(root), 40 + 200 + 5 * 20, b"\0\0\0\x63")


def index_points_past_the_log(root: Path) -> None:
    write(first_index(root), 40 + 200 + 5 * 20 + 4, (1 << 50).to_bytes(8, "big"))


def index_of_other_times(root: Path) -> None:
    write(first_index(root), 0, (1).to_bytes(8, "big"))


def index_counts_too_much(root: Path) -> None:
    write(max((root / "index").iterdir()), 36, (900).to_bytes(4, "big"))


def index_counts_too_little(root: Path) -> None:
    write(max((root / "index").iterdir()), 36, (5).to_bytes(4, "big"))


def index_file_of_the_future(root: Path) -> None:
    first_index(root).rename(root / "index" / "29990101000000000")


INDEX_DAMAGE: tuple[Damage, ...] = (
    index_chain_in_a_circle,
    index_hash_of_another_key,
    index_points_past_the_log,
    index_of_other_times,
    index_counts_too_much,
    index_counts_too_little,
    index_file_of_the_future,
    index_gone,
    first_index_file_gone,
    index_header_zeroed,
    index_slots_zeroed,
    index_entry_overwritten,
    index_cut,
)
