"""The end of a log lost from every offset of its last 64 KiB on: the torn record is told at its exact offset.

``python -m tests.verify.cuts`` tries all offsets, each in both ways in which an end is lost, and prints the counts.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, NamedTuple

from rmqtool.formats.file_name import file_name
from rmqtool.rules.broker_conf import BrokerConf
from tests.verify.shares import counts_of_all
from tests.verify.small_store import finish, small_log
from tests.verify.verifying import verify

FILE_SIZE = 1 << 17
RECORDS = 340
DEPTH = 1 << 16
"""How far before the end of the log it is cut, bytes."""
_GEOMETRY = (400, 4000)

Way = Literal["zeroed", "truncated"]
"""Zeros from the cut on, as of pages that never reached the disk; or a file that ends there, as of a copy."""

WAYS: tuple[Way, ...] = ("zeroed", "truncated")


class Cut(NamedTuple):
    """What a verification of a cut log tells, and what it should tell."""

    torn: list[int | None]
    expected: list[int]
    codes: set[str]
    loses_messages: bool

    @property
    def is_exact(self) -> bool:
        """Whether the torn record is told at its offset, none between two records, and queues that are ahead."""
        return self.torn == self.expected and (not self.loses_messages or "consumequeue.ahead" in self.codes)


class CutStore:
    """A store of one commit log file whose end can be lost again and again, each time from further before."""

    def __init__(self, root: Path) -> None:
        log = small_log(RECORDS, FILE_SIZE)
        self.root = finish(log.write(root), geometry=_GEOMETRY)
        (root / "abort").touch()
        self.offsets = log.offsets
        self.end = log.end
        self._data = bytes(log.files[0])
        self._last_properties = self._data.rindex(b"KEYS\1")  # a record that lacks only some of these is kept
        self._file = root / "commitlog" / file_name(0)
        self._conf = BrokerConf({"mappedFileSizeCommitLog": str(FILE_SIZE)})

    @property
    def places(self) -> range:
        """Every offset to cut at, the last one first."""
        return range(self.end - 1, self.end - DEPTH - 1, -1)

    def cut(self, at: int, way: Way) -> Cut:
        """Lose the log from a physical offset on, and verify what is left."""
        with self._file.open("r+b") as file:
            file.truncate(at)
            if way == "zeroed":
                file.truncate(FILE_SIZE)
        outcome = verify(self.root, conf=self._conf)
        found = [finding for finding in outcome.findings if finding.code == "commitlog.torn"]
        codes = {finding.code for finding in outcome.findings}
        return Cut([finding.offset for finding in found], self._expected(at), codes, at < self._last_properties)

    def restore(self) -> None:
        """Put the whole log back."""
        self._file.write_bytes(self._data.ljust(FILE_SIZE, b"\0"))

    def _expected(self, at: int) -> list[int]:
        """Where the torn record begins; nothing for a cut between two records, or when only zeros are left of it."""
        start = self.offsets[bisect_right(self.offsets, at) - 1]
        return [start] if self._data[start:at].strip(b"\0") else []


def _try_share(first: int, step: int) -> Counter[tuple[Way, bool]]:
    """Cut at one of `step` places, from the `first` on; how often the answer was exact, by the way of the loss."""
    counts: Counter[tuple[Way, bool]] = Counter()
    with TemporaryDirectory() as directory:
        store = CutStore(Path(directory) / "store")
        for way in WAYS:
            for at in store.places[first::step]:
                cut = store.cut(at, way)
                counts[way, cut.is_exact] += 1
                if not cut.is_exact:
                    sys.stderr.write(f"{way} at {at}: torn {cut.torn}, expected {cut.expected}; {sorted(cut.codes)}\n")
            store.restore()
    return counts


def main() -> int:
    """Try all cuts; 1 when one is not told exactly."""
    counts = counts_of_all(_try_share, __doc__, "offsets")
    for way in WAYS:
        sys.stdout.write(f"{way:<10} {counts[way, True]:>6} told exactly {counts[way, False]:>6} otherwise\n")
    return int(any(not exact for _, exact in counts))


if __name__ == "__main__":
    sys.exit(main())
