"""DLedger logs that are converted or salvaged: their files, and their messages, which move."""

from __future__ import annotations

from pathlib import Path

from rmqtool.salvage.conversion import write_saved
from rmqtool.salvage.inputs import list_inputs
from rmqtool.salvage.plan import SalvagePlan, make_plan
from rmqtool.store.store import open_store
from tests.dledger_building import NODE
from tests.salvage.damaged_logs import CONF, records_of, walked
from tests.verify.small_store import StoreBuilder

OFFSET = slice(28, 36)  # of the physical offset in a message


def moved(record: bytes) -> bytes:
    """A message without its physical offset."""
    return record[: OFFSET.start] + record[OFFSET.stop :]


def messages(log: StoreBuilder) -> list[bytes]:
    """All messages of a log in order."""
    return [moved(record) for record in records_of(log).values()]


def file_at(store: Path, start: int) -> Path:
    """The file of a node's entries that begins at an offset."""
    return store / NODE / "data" / f"{start:020d}"


def overwrite(path: Path, start: int, end: int) -> None:
    """Damage a file between two positions."""
    data = bytearray(path.read_bytes())
    data[start:end] = b"\xa5" * (end - start)
    path.write_bytes(data)


def salvaged(new: Path, *stores: Path, raw: tuple[Path, ...] = ()) -> tuple[SalvagePlan, list[bytes]]:
    """Plan, write the new log, and read it as a broker does: messages without their physical offset."""
    plan = make_plan(list_inputs([open_store(store) for store in stores], raw), CONF, frozenset(["orders"]))
    assert plan.layout.is_moved
    if plan.records:
        assert write_saved(plan, new).messages == plan.records
    return plan, [moved(record) for _, record in sorted(walked(new).items())] if plan.records else []
