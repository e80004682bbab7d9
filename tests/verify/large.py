"""A store with very many queues and index units, verified in a process that may open few files; its peak of memory.

``python -m tests.verify.large`` makes 40,000 queues and 20 million index units, and takes some minutes.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from tests.building import START_TIME
from tests.deriving import derive
from tests.verify.small_store import QUEUE_FILE_SIZE, StoreBuilder

QUEUES = 40_000
UNITS = 20_000_000
MOST_MEMORY = 512 << 20
"""What `verify` may take for a store of any size, bytes."""
MOST_FILES = 256
"""What it may have open at once."""
_KEYS = 500  # of a message; with them its properties stay below 32 KiB
_FILE_SIZE = 1 << 26

# The process limits itself: descriptors at once, memory as it is told at the end.
_VERIFY = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, ({files}, {files}))
from rmqtool.cli import run
status = run(sys.argv[1:])
print(open("/proc/self/status").read(), file=sys.stderr)
sys.exit(status)
"""


class Measured(NamedTuple):
    """What a verification took and said; `peak` in bytes."""

    peak: int
    document: dict[str, Any]


def make_large(store: Path, queues: int = QUEUES, units: int = UNITS) -> Path:
    """A log whose messages go to so many queues, one after the other, and have so many keys together."""
    builder = StoreBuilder(file_size=_FILE_SIZE)
    messages = max(queues, units // _KEYS)
    keys = units // messages
    for number in range(messages):
        names = " ".join(f"{number:x}.{key}" for key in range(keys))
        queue = number % queues
        builder.put(f"topic-{queue // 8}", queue % 8, store_timestamp=START_TIME + number, properties={"KEYS": names})
    return derive(builder.write(store), QUEUE_FILE_SIZE, (units // 4, units + 1))


def measure(store: Path, *options: str) -> Measured:
    """Verify in a process of its own."""
    command = [sys.executable, "-c", _VERIFY.format(files=MOST_FILES), "verify", str(store), "--json", "-q", *options]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"VmHWM:\s+(\d+) kB", result.stderr)
    assert found, result.stderr
    return Measured(int(found[1]) << 10, json.loads(result.stdout))


def main() -> int:
    """Make the store, verify it and print what it took; 1 when that is more than allowed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queues", type=int, default=QUEUES)
    parser.add_argument("--units", type=int, default=UNITS)
    options = parser.parse_args()
    with TemporaryDirectory() as directory:
        store = make_large(Path(directory) / "store", options.queues, options.units)
        peak, document = measure(store)
    found = {check["code"]: check["checked"] for check in document["result"]["checks"]}
    sys.stdout.write(
        f"{options.queues} queues, {found.get('index.missing', 0)} index units: {document['result']['verdict']}, "
        f"peak {peak >> 20} MiB\n"
    )
    return int(peak > MOST_MEMORY or document["result"]["verdict"] != "clean")


if __name__ == "__main__":
    sys.exit(main())
