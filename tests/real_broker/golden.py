"""Write the golden stores and the example store again: ``python -m tests.real_broker.golden [NAME ...]``."""

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.copies import copied
from tests.golden import stores
from tests.golden.rocksdb import ROCKSDB
from tests.real_broker.harness import VERSIONS, Harness

EXAMPLE = Path(__file__).parents[2] / "examples" / "store"
_EXAMPLE_NAME = "5.3.3-example"
HOW = {
    "clean": "every kind of message that the release stores, then a clean stop",
    "killed": "the messages of `clean`, then SIGKILL while a loop appends more",
    "trimmed": "the messages of `clean`, the release's cleaner over six aged commit log files, then a clean stop",
    "crc32-property": "the messages of `clean` with `enabledAppendPropCRC=true`, then a clean stop",
    "empty": "started and stopped, no message",
    "single": "one message, then a clean stop",
    "shop": "a whole broker with name server, producers and push consumers, then a clean stop",
}
MORE = {
    "more/5.5.0-extras": "consume queue ext, timer wheel with a snapshot, timer log and check, compaction",
    "more/5.3.3-dledger": "a DLedger group of one; its index file is cut after its units, where it is zeros",
    "more/4.9.7-dledger": "a DLedger group of one; its index file is cut after its units, where it is zeros",
    "more/5.5.0-compacted": "a compaction log after the broker's own schedule has compacted it",
    "more/5.3.3-compacted": "a compaction log after the broker's own schedule has compacted it",
    **{
        f"more/{version}-differing": "what releases derive differently: light queues with records of retry and "
        "dead letter topics, tags and keys that hold the byte 0x01"
        for version in ("4.7.1", "4.9.7", "5.3.3", "5.5.0")
    },
    "more/5.1.4-rocksdb": "a shop with topics, groups and offsets in RocksDB, each in its own database",
    **{
        f"more/{version}-rocksdb": "a shop with queues, topics, groups and offsets in RocksDB"
        for version in ("5.2.0", "5.3.3", "5.4.0", "5.5.0", "5.5.1")
    },
    "more/5.3.3-rocksdb-twice": "a shop with its queues in files and in RocksDB",
    "more/5.4.0-rocksdb-twice": "a shop with its queues in files and in RocksDB",
    "more/5.5.0-rocksdb-twice": "a shop with its queues in files and in RocksDB, light queues only there",
    "more/5.5.1-rocksdb-selected": "a shop with its queues in files, and of no topic in RocksDB as well",
    "more/5.3.3-rocksdb-second-config": "a shop with queue files, and `configManagerVersion=v2`",
    "more/5.5.0-rocksdb-second-config": "a shop with queues in RocksDB, and `configManagerVersion=v2`",
    "more/5.5.0-rocksdb-single": "a shop with queues in a directory of their own, and one database for the config",
    "more/5.5.0-rocksdb-side": "a shop with index, timers, half messages and POP records in RocksDB",
    **{
        f"more/{version}-traced": "a whole broker with `traceTopicEnable=true`, and clients with message trace on"
        for version in ("4.7.1", "5.5.0")
    },
    **{
        f"more/{version}-tiered": "240 messages in two queues, all of them in the tier (in files, at `tiered/`) as well"
        for version in ("5.1.4", "5.3.3", "5.5.1")
    },
    "more/5.3.3-converted": "one message in a plain log, then a DLedger group of one: both logs are read",
}
"""Stores of other layouts, each with what it holds; no oracle reads them back, but for those of ROCKSDB."""

_CONVERTED = ("single", "dledger")  # scenarios, one after the other in the same store
TIERED = 240  # messages
_KEPT_OF_INDEX = 16 << 10  # of 160 MiB, bytes
NAMES = (
    *(f"{version}-{scenario}" for version in VERSIONS for scenario in ("clean", "killed", "trimmed", "shop")),
    *(f"{version}-crc32-property" for version in ("5.3.3", "5.5.0", "5.5.1")),
    "5.3.3-empty",
    "5.3.3-single",
)


def make(name: str) -> None:
    """Write one golden store and its oracle."""
    version, _, scenario = name.partition("-")
    harness = Harness(version)
    with TemporaryDirectory(prefix="rmqtool-golden-") as scratch:
        root = Path(scratch, "store")
        root.mkdir()
        facts = {}
        if scenario == "shop":
            facts = {"facts": harness.write_shop(root)}
        else:
            harness.write(root, scenario)
        stores.save(name, root, {"scenario": scenario, "how": HOW[scenario], **facts, **harness.oracle(root)})


def make_more(name: str) -> None:
    """Write one store of another layout."""
    version, _, scenario = name.removeprefix("more/").partition("-")
    with TemporaryDirectory(prefix="rmqtool-golden-") as scratch:
        root = Path(scratch, "store")
        root.mkdir()
        if name in ROCKSDB:
            stores.save(name, root, {"version": version, "scenario": scenario, "how": MORE[name],
                                     **_written_by_shop(Harness(version), root, ROCKSDB[name])})  # fmt: skip
            return
        if scenario == "traced":
            facts = Harness(version).write_traced(root)
            stores.save(name, root, {"version": version, "scenario": scenario, "how": MORE[name], "facts": facts})
            return
        if scenario == "tiered":
            Harness(version).write_tiered(root, root / "tiered", TIERED)
            stores.save(name, root, {"version": version, "scenario": scenario, "how": MORE[name]})
            return
        for part in _CONVERTED if scenario == "converted" else (scenario,):
            Harness(version).write(root, part)
        for index in root.glob("dledger-*/index/*"):
            os.truncate(index, _KEPT_OF_INDEX)
        stores.save(name, root, {"version": version, "scenario": scenario, "how": MORE[name]})


def _written_by_shop(harness: Harness, root: Path, settings: dict[str, str]) -> dict[str, Any]:
    """Have a whole broker write a store; what its users have then."""
    facts = harness.write_shop(root, settings)
    with TemporaryDirectory(prefix="rmqtool-golden-") as scratch:
        copy = copied(root, Path(scratch, "store"))
        (survey,) = harness.survey([(copy, ())], settings)
    return {"facts": facts, "settings": settings, "survey": survey}


def make_example() -> None:
    """Write the example store in place of the present one."""
    shutil.rmtree(EXAMPLE, ignore_errors=True)
    EXAMPLE.mkdir(parents=True)
    version, _, scenario = _EXAMPLE_NAME.partition("-")
    Harness(version).write(EXAMPLE, scenario)


def main(arguments: Sequence[str]) -> int:
    """Make the stores named, or all."""
    known = [*NAMES, *MORE, _EXAMPLE_NAME]
    unknown = sorted(set(arguments) - set(known))
    if unknown:
        print(f"no such store: {', '.join(unknown)}; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    for name in arguments or known:
        print(name, flush=True)
        if name == _EXAMPLE_NAME:
            make_example()
        elif name in MORE:
            make_more(name)
        else:
            make(name)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
