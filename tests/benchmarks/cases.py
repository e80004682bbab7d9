"""What is measured: the base, what has to keep up with it, and the programs that users wait for."""

from __future__ import annotations

import os
import tempfile
import zlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rmqtool.base.mapped_files import list_mapped_files
from rmqtool.inspect.locate import Location, locate
from rmqtool.inspect.options import ListingOptions
from rmqtool.inspect.registry import list_location
from rmqtool.rebuild.apply import write_output
from rmqtool.rebuild.options import Part, RebuildOptions
from rmqtool.rebuild.source import open_source
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.versions import Version
from rmqtool.scan.columns import COLUMNS, record_batches
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.message_rows import MessageShape
from rmqtool.scan.reader import scan_files
from rmqtool.scan.rows import Rows, csv_lines, json_lines
from rmqtool.store.message_reader import EXPORT_COLUMNS
from rmqtool.store.store import open_store
from rmqtool.verify.outcome import outcome_of
from rmqtool.verify.task import VerifyRequest
from rmqtool.verify.verification import Verification
from tests.benchmarks.damage import make_damaged_log
from tests.benchmarks.derived import make_derived
from tests.benchmarks.logs import log_files
from tests.benchmarks.measure import Case, Program
from tests.benchmarks.tiers import read_log, read_tier

BLOCK_SIZE = 4 << 20

FIXED_AND_TOPIC = (
    *("topic", "queue_id", "queue_offset", "physical_offset", "message_size", "born_timestamp", "store_timestamp"),
    *("flag", "sys_flag", "reconsume_times", "body_crc", "prepared_transaction_offset", "body_size"),
)
ALL_COLUMNS = tuple(name for name in COLUMNS if not name.startswith("stored_"))
ALL_BUT_BODY = tuple(name for name in ALL_COLUMNS if name != "body")
VERIFICATION = ("body_crc_ok",)
REBUILD_VERSION = Version(5, 3, 3)


def read_with_crc(store: Path, _output: Path) -> int:
    """Read the whole commit log in blocks into one buffer, with the standard library's CRC-32 of every byte."""
    buffer = memoryview(bytearray(BLOCK_SIZE))
    crc = 0
    for file in log_files(store):
        descriptor = os.open(file, os.O_RDONLY)
        try:
            position = 0
            while size := os.preadv(descriptor, [buffer], position):
                crc = zlib.crc32(buffer[:size], crc)
                position += size
        finally:
            os.close(descriptor)
    return crc


def read_columns(names: Sequence[str], store: Path, _output: Path) -> int:
    """Scan the whole commit log, with some columns of every message as Arrow record batches; count the messages."""
    files = list_mapped_files(store / "commitlog").files
    return sum(
        len(batch)
        for event in scan_files(files)
        if isinstance(event, RecordRun)
        for batch in record_batches(event, names)
    )


def read_damaged(names: Sequence[str], store: Path, output: Path) -> int:
    """Do the same with the damaged copy of the log, which the first run makes."""
    return read_columns(names, make_damaged_log(store), output)


def list_messages(columns: Sequence[str], csv: bool, store: Path, output: Path) -> int:
    """List all messages of the log as CSV or as JSON lines into a file, as inspect does; count them."""
    place = locate(store / "commitlog", None, BrokerConf())
    if not isinstance(place, Location):
        raise TypeError("no commit log")
    options = ListingOptions(shape=MessageShape.of("none", columns))
    count = 0
    with (output / "listing").open("wb") as file:
        for rows in list_location(place, options):
            if isinstance(rows, Rows) and rows.counted:
                file.write(csv_lines(rows.batch, columns) if csv else json_lines(rows.batch, rows.optional))
                count += len(rows)
    return count


def rebuild(parts: Sequence[Part], store: Path, output: Path, version: Version = REBUILD_VERSION, jobs: int = 1) -> int:
    """Write consume queues, or index files too, below `output`; count the messages in the queues."""
    source = open_source(open_store(store), RebuildOptions(frozenset(parts), version=version, jobs=jobs))
    plan = write_output(source, Path(tempfile.mkdtemp(dir=output)))
    return sum(queue.units for queue in plan.queues)


def verify_derived(store: Path, _output: Path) -> int:
    """Verify log, queues and index, both ways; the first run derives them."""
    verification = Verification(open_store(make_derived(store)), VerifyRequest())
    verification.run(lambda size: None)
    outcome = outcome_of(verification)
    if outcome.verdict != "clean":
        raise ValueError(f"a healthy store is {outcome.verdict}: {outcome.findings[:3]}")
    return outcome.total.totals.messages


BASE = Case("base: read + zlib.crc32", read_with_crc)

_FIXED = partial(read_columns, FIXED_AND_TOPIC)
_VERIFICATION = partial(read_columns, VERIFICATION)
_ALL_BUT_BODY = partial(read_columns, ALL_BUT_BODY)
_ALL = partial(read_columns, ALL_COLUMNS)
_IDS = partial(list_messages, ("message_id", "unique_key"), True)
_JSON = partial(list_messages, (), False)
_RESYNC = partial(read_damaged, VERIFICATION)
_MESSAGES = partial(read_log, EXPORT_COLUMNS)
_TIERED = partial(read_tier, EXPORT_COLUMNS)
_QUEUES = partial(rebuild, ["queues"])
_QUEUES_AND_INDEX = partial(rebuild, ["queues", "index"])

# The Java store 5.3.3 at its defaults needs five times as much CPU as these ratios (queues and index: 4.5 times).
_REBUILD_PEAK = 512 << 20  # also with 40,000 queues or 20 million keys, bytes

_VERIFY = "verify: log, queues, index"

_INFLATED = 25  # nearly all of it inflates: 13 µs for a body of 6 KiB, whose other columns take 2

CASES = {
    "A": (
        BASE,
        Case("fixed fields and topic", _FIXED, max_ratio=0.8),
        Case("log verification", _VERIFICATION, max_ratio=1.4),
        Case("all columns without bodies", _ALL_BUT_BODY, max_ratio=2.3),
        Case("all columns", _ALL, max_ratio=2.3),
        Case("message ids and unique keys as CSV", _IDS, max_ratio=5.0),
        Case("all fields without bodies as JSON lines", _JSON, min_rate=150_000),
        Case("rebuild of the queues", _QUEUES, max_ratio=2.1, max_peak=_REBUILD_PEAK),
        Case("rebuild of queues and index", _QUEUES_AND_INDEX, max_ratio=3.0, max_peak=_REBUILD_PEAK),
        Case(_VERIFY, verify_derived, max_ratio=3.5, max_peak=512 << 20),
        Case("messages of the log, as for an export", _MESSAGES, max_ratio=3.5),
        Case("messages of a tier, as for an export", _TIERED, max_ratio=4.0),
        Case("resync: 1% damaged records", _RESYNC),
    ),
    "B": (
        BASE,
        Case("fixed fields and topic", _FIXED),
        Case("log verification", _VERIFICATION, min_rate=3_500_000),
        Case("all columns without bodies", _ALL_BUT_BODY, min_rate=1_700_000),
        Case("all columns", _ALL, min_rate=1_700_000),
        Case("all fields without bodies as JSON lines", _JSON, min_rate=150_000),
        Case("rebuild of the queues", _QUEUES, max_ratio=5.0, max_peak=_REBUILD_PEAK),
        Case("rebuild of queues and index", _QUEUES_AND_INDEX, max_ratio=6.9, max_peak=_REBUILD_PEAK),
        Case(_VERIFY, verify_derived, min_rate=1_100_000, max_peak=512 << 20),
        Case("resync: 1% damaged records", _RESYNC),
    ),
    **{
        kind: (BASE, Case(_VERIFY, verify_derived, max_peak=512 << 20), Case("all columns", _ALL))
        for kind in ("B-ipv6", "B-v2", "B-keys", "B-properties", "B-chinese")
    },
    "A-zlib": (
        BASE,
        Case(_VERIFY, verify_derived, max_peak=512 << 20),
        Case("all columns without bodies", _ALL_BUT_BODY),
        Case("all columns, bodies inflated", _ALL, max_ratio=_INFLATED),
    ),
    "A-crc": (BASE, Case(_VERIFY, verify_derived, max_ratio=4, max_peak=512 << 20)),
    "B-crc": (BASE, Case(_VERIFY, verify_derived, max_ratio=9.0, max_peak=512 << 20)),
}
"""By the kind of log; the base comes first, the others are measured against it."""

MAX_BESIDE_PLAIN = 2.5
"""How many times the ratio of the plain kind, A or B, a special kind such as B-ipv6 may have in the same case."""

RMQTOOL = ("-m", "rmqtool")
"""The program as users start it: it hides pandas, and loads some modules late."""

PROGRAMS = (
    Program("python, for comparison", ("-c", "")),
    Program("rmqtool --help", (*RMQTOOL, "--help"), max_seconds=0.1),
    Program("rmqtool completion bash", (*RMQTOOL, "completion", "bash"), max_seconds=0.1),
    Program("rmqtool inspect, one message", (*RMQTOOL, "inspect", "{store}"), max_seconds=0.3),
    Program(
        "rmqtool rebuild-cq --dry-run, the same", (*RMQTOOL, "rebuild-cq", "{store}", "--dry-run"), max_seconds=0.3
    ),
    Program("rmqtool inspect, 100 GiB, 1,000 queues", (*RMQTOOL, "inspect", "{large}"), max_seconds=1.0),
)
