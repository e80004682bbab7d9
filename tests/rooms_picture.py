"""The picture of the rooms in docs/architecture.md, drawn from the imports: ``python -m tests.rooms_picture``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tests.rooms import ROOMS, ROOT, graph_of, modules_under, room_of

PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "```mermaid\n", "```\n"


def room_imports() -> dict[str, set[str]]:
    """Room -> the rooms from which it imports."""
    found: dict[str, set[str]] = {room: set() for room in ROOMS}
    for name, targets in graph_of(modules_under(ROOT)).items():
        if room := room_of(name):
            found[room] |= {below for target in targets if (below := room_of(target)) and below != room}
    return found


def without_detours(imports: Mapping[str, set[str]]) -> Iterator[tuple[str, str]]:
    """The arrows of a graph without cycles, but for those that a longer way makes needless."""
    reach: dict[str, set[str]] = {}

    def below(room: str) -> set[str]:
        if room not in reach:
            reach[room] = imports[room].union(*map(below, imports[room]))
        return reach[room]

    for room, targets in imports.items():
        further: set[str] = set().union(*map(below, targets))
        yield from ((room, target) for target in sorted(targets - further))


def picture() -> str:
    """The picture as Mermaid text."""
    imports = room_imports()
    arrows = "".join(f"    {room} --> {target}\n" for room, target in without_detours(imports))
    return f"{BEGIN}flowchart TD\n{arrows}{END}"


def table() -> str:
    """The rooms, top down, each with its sentence."""
    rows = "".join(f"| `{room}` | {what} |\n" for room, what in ROOMS.items())
    return f"| package | what is in it |\n|---|---|\n{rows}"


def with_picture(page: str) -> str:
    """The page with the picture and the table as they are now."""
    head, _, rest = page.partition(BEGIN)
    between, _, rest = rest.partition(END)[2].partition("| package |")
    rows = rest.split("\n\n", 1)
    return f"{head}{picture()}{between}{table()}\n{rows[1]}"


if __name__ == "__main__":
    PAGE.write_text(with_picture(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
