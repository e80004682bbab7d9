"""What becomes of each fault, in docs/faults.md: ``python -m tests.real_broker.repairs --catalogue --record``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.repair.checked_repair import GOES_ON, Repair
from tests.repair.known_faults import ACCEPTED, Row, rows

PAGE = Path(__file__).parents[2] / "docs" / "faults.md"
_LONGEST = 90
_HEAD = """\
# What becomes of each fault

Each fault of the catalogue ([findings.md](findings.md)) was made on a separate store. `rmqtool repair` carried out the
plan that `rmqtool verify` prints, and a broker of the release was started on the damaged and on the repaired store. No
repair made a readable message disappear from a queue, every second repair had nothing to do, and undo restored every
byte. Rows without the name of a store use small stores with every record format; the other stores were written by real
brokers. A fault is named by its finding code; some codes have no number. Faults that are in no file (another process, a
full disk, an unreadable file) were present during the repair.

The last two columns list where users of the broker have less than before the damage, or something else. *all*: nothing
is missing; *refuses*: the broker does not start; *not asked*: no broker has been started for this row yet.
`make repairs` checks these columns, and a test checks the others.
"""


class Line(NamedTuple):
    """One row of the table."""

    fault: str
    what: str
    release: str
    repair: str
    verdict: str
    damaged: str
    repaired: str

    @property
    def text(self) -> str:
        """As it stands in the page."""
        return f"| {' | '.join(self)} |"


_TITLES = Line("fault", "what", "release", "repair", "then verify says", "damaged", "repaired")


def line_of(row: Row, repair: Repair, before: Mapping[str, str], after: Mapping[str, str]) -> Line:
    """What came of a row."""
    reason = f" ({ACCEPTED[row.name]})" if row.name in ACCEPTED else ""
    return Line(row.fault or "-", row.name, row.version, *answer_of(repair), _users(before), _users(after) + reason)


def answer_of(repair: Repair) -> tuple[str, str]:
    """What a repair does, and what verify says of the store after it."""
    result = repair.result
    if result is None:
        error = repair.said[-1].get("error") or {}
        return "nothing", f"{error.get('kind', error)}: the repair stops"
    planned = [change for step in repair.planned["steps"] for change in step["changes"]]
    more = ["then the rest"] if GOES_ON in planned else []
    texts = [text for text in [*planned, *(change["what"] for change in result["changes"])] if text != GOES_ON]
    done = [*dict.fromkeys(map(_short, texts)), *more]
    serious = sorted({each["code"] for each in repair.said[-1]["findings"] if each["severity"] != "info"})
    return "; ".join(done) or "nothing", ", ".join([str(result["verdict"]), *serious])


def _short(text: str) -> str:
    """Without what stands in brackets or after a semicolon, which may be a path or a number of this store."""
    first = text.partition("; ")[0].partition(" (")[0].partition(": it ")[0]
    return first if len(first) <= _LONGEST else f"{first[:_LONGEST]}..."


def _users(lacks: Mapping[str, str]) -> str:
    return "refuses" if "start" in lacks else ", ".join(lacks) or "all"


def page(lines: Iterable[Line]) -> str:
    """The whole page, in the order of the rows."""
    by_name = {line.what: line for line in lines}
    ordered = [by_name[row.name] for row in rows() if row.name in by_name]
    table = [_TITLES.text, "|---" * len(_TITLES) + "|", *(line.text for line in ordered)]
    return "\n".join([_HEAD, *table, ""])


def written() -> Iterator[Line]:
    """The lines that stand in the page."""
    for text in PAGE.read_text(encoding="utf-8").splitlines() if PAGE.exists() else ():
        cells = text.removeprefix("| ").removesuffix(" |").split(" | ")
        if text.startswith("| ") and tuple(cells) != _TITLES:
            yield Line(*cells)


def record(lines: Iterable[Line]) -> None:
    """Put lines in the place of those that stand there of the same rows."""
    PAGE.write_text(page([*written(), *lines]), encoding="utf-8")
