"""The table of losses in docs/verify.md: ``python -m tests.verify.losses_page`` writes it, a test keeps it true."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.verify import losses_recorded as recorded
from tests.verify.losses import DIRECTORIES, DIRECTORY_OPERATIONS, FILE_OPERATIONS, FILES
from tests.verify.losses_facts import judged
from tests.verify.losses_together import UNSEEN, joint_losses

PAGE = Path(__file__).parents[2] / "docs" / "verify.md"
HEADING = "## What may be lost, and what verify says"
_NEXT = "\n## "

Verdicts = Mapping[str, Mapping[str, str]]
"""By store and row."""


def section(verdicts: Verdicts, lost: recorded.Lost) -> str:
    """The whole section, with its heading."""
    return "\n".join([HEADING, "", *_head(), *_tables(verdicts, lost)])


def _head() -> Iterator[str]:
    releases = " and ".join(recorded.STORES)
    yield f"Stores of whole brokers, {releases}, lost each kind of file in every way, and the real broker was started"
    yield "on the rest. If its users then had less than before (messages, keys, topics, groups, committed offsets,"
    yield "delays, timers, or no start at all), the verdict is in **bold**. A dash: the store has no such file, or"
    yield "nothing would change. Two verdicts are those of the two releases. A reason is given if nothing in the store"
    yield "can show the loss. `make table` writes this; a test keeps it true."
    yield ""


def _tables(verdicts: Verdicts, lost: recorded.Lost) -> Iterator[str]:
    for kinds, operations in ((FILES, FILE_OPERATIONS), (DIRECTORIES, DIRECTORY_OPERATIONS)):
        yield f"| | {' | '.join(operations)} |"
        yield "|---" * (len(operations) + 1) + "|"
        for kind in kinds:
            cells = [_cell(f"{kind}: {operation}", verdicts, lost) for operation in operations]
            if set(cells) != {"-"}:
                yield f"| {kind} | {' | '.join(cells)} |"
        yield ""
    yield "| together, or in a table | |"
    yield "|---|---|"
    for loss in joint_losses():
        if (cell := _cell(loss.name, verdicts, lost)) != "-":
            reason = f" ({UNSEEN[loss.name]})" if loss.name in UNSEEN else ""
            yield f"| {loss.name} | {cell}{reason} |"
    yield ""


def _cell(row: str, verdicts: Verdicts, lost: recorded.Lost) -> str:
    found = []
    for store in recorded.STORES:
        verdict = verdicts[store].get(row)
        if verdict is not None:
            found.append(f"**{verdict}**" if lost[store][row] else verdict)
    return " / ".join(dict.fromkeys(found)) or "-"


def verdicts_of(store: str, rows: list[str], scratch: Path) -> dict[str, str]:
    """What verify says of each row."""
    undamaged, older = recorded.unpack(store, scratch)
    found = {}
    for row in rows:
        with TemporaryDirectory(dir=scratch) as directory:
            root = Path(directory, "store")
            recorded.make(row, undamaged, older, root)
            found[row] = judged(root)[0]
    return found


def present() -> str:
    """The section as it stands in the page."""
    _, heading, rest = PAGE.read_text(encoding="utf-8").partition(HEADING)
    return heading + rest.partition(_NEXT)[0]


def written(lost: recorded.Lost) -> dict[str, dict[str, str]]:
    """The verdicts that stand in the page, by store and row."""
    cells = _cells()
    found: dict[str, dict[str, str]] = {store: {} for store in recorded.STORES}
    for row, cell in cells.items():
        stores = [store for store in recorded.STORES if row in lost[store]]
        verdicts = cell.partition(" (")[0].split(" / ")
        for store, verdict in zip(stores, verdicts * len(stores), strict=False):
            found[store][row] = verdict.strip("*")
    return found


def _cells() -> dict[str, str]:
    """By row, without those where nothing would change."""
    found: dict[str, str] = {}
    operations: list[str] = []
    for line in present().splitlines():
        first, *cells = line.removeprefix("| ").removesuffix(" |").split(" | ")
        if line.startswith("| | "):
            operations = line.removeprefix("| | ").removesuffix(" |").split(" | ")
        elif line.startswith("| together"):
            operations = []
        elif line.startswith("| "):
            rows = [f"{first}: {operation}" for operation in operations] or [first]
            found.update(zip(rows, cells, strict=True))
    return {row: cell for row, cell in found.items() if cell != "-"}


def write(text: str) -> None:
    """Put the section in the place of the present one, or before the last."""
    page = PAGE.read_text(encoding="utf-8")
    before, heading, rest = page.partition(HEADING)
    if not heading:
        place = page.rindex(_NEXT) + 1
        before, rest = page[:place], _NEXT + page[place:].removeprefix("## ")
    _, following, rest = rest.partition(_NEXT)
    PAGE.write_text(f"{before}{text}{following}{rest}", encoding="utf-8")


def main() -> None:
    """Verify every row, and write the section."""
    lost = recorded.load()
    with TemporaryDirectory(prefix="rmqtool-losses-") as directory:
        verdicts = {}
        for store in recorded.STORES:
            scratch = Path(directory, store)
            scratch.mkdir()
            verdicts[store] = verdicts_of(store, list(lost[store]), scratch)
    write(section(verdicts, lost))


if __name__ == "__main__":
    main()
