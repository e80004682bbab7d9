"""The rooms of the house: who may import whom, who may print, how long a module may be, what a start may load."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = pytest.mark.budget(1)  # most tests parse the whole package

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "rmqtool"

# The rooms of the house, top down, and what each is for: a module imports from its own room and from those below it.
ROOMS: Mapping[str, str] = {
    "__main__": "the program",
    "cli": "errors become exit statuses",
    "commands": "options in, one job called, the answer shown",
    "show": "everything anyone sees",
    "inspect": "what a store, or a path in it, holds",
    "verify": "log, queues and index compared both ways",
    "rebuild": "derived files anew",
    "clean": "the next deletions, and who loses by them",
    "query": "find and explain one message",
    "export": "messages to Parquet",
    "spark": "only what is Spark",
    "transaction": "the only writer to a store",
    "broker": "what each release does with a store; never writes",
    "store": "a store directory as objects",
    "scan": "log bytes to columns to rows",
    "rules": "what changed in which release, what broker.conf sets",
    "findings": "a finding, its page, its report",
    "base": "nothing of RocketMQ in it",
    "formats": "bytes to values and back",
}
ORDER = tuple(ROOMS)
JOBS = {"inspect", "verify", "rebuild", "clean", "query", "export"}  # jobs never import jobs
STARTING = {"__main__", "cli", "commands"}  # loaded by every start
SHOWING = {*STARTING, "show"}  # may print and exit
FORMATS_IMPORTS = sys.stdlib_module_names | {"construct", "numpy"}
SHOWING_IMPORTS = {"click", "rich"}  # only above the jobs
SHOWING_CALLS = {
    *("print", "input", "exit", "quit", "SystemExit", "os._exit", "sys.exit"),
    *("sys.stdout.write", "sys.stderr.write", "sys.stdout.buffer.write", "sys.stderr.buffer.write"),
}
HEAVY_IMPORTS = ("pyarrow", "pyspark")
MAX_LINES = 350


class Module(NamedTuple):
    """One source file: dotted name, whether it is a package's ``__init__.py``, text."""

    name: str
    is_package: bool
    text: str


def modules_under(root: Path) -> dict[str, Module]:
    """Every module of the package below `root`, by dotted name, symlinked folders included."""
    modules = {}
    for folder, _, files in os.walk(root / PACKAGE, followlinks=True):
        for file in files:
            if not file.endswith(".py"):
                continue
            path = Path(folder, file)
            parts = path.relative_to(root).with_suffix("").parts
            is_package = parts[-1] == "__init__"
            name = ".".join(parts[:-1] if is_package else parts)
            modules[name] = Module(name, is_package, path.read_text(encoding="utf-8"))
    return modules


def imports_of(module: Module) -> Iterator[str]:
    """Every dotted name that a module imports, wherever the import stands; ``from a import b`` gives ``a.b``."""
    for node in ast.walk(ast.parse(module.text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(module, node)
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _absolute(module: Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    package = module.name.split(".") if module.is_package else module.name.split(".")[:-1]
    anchor = package[: len(package) - node.level + 1]
    return ".".join([*anchor, *([node.module] if node.module else [])])


def graph_of(modules: Mapping[str, Module]) -> dict[str, set[str]]:
    """Module -> the modules of the package that it imports."""
    graph: dict[str, set[str]] = {}
    for name, module in modules.items():
        targets = (_module_named(imported, modules) for imported in imports_of(module))
        graph[name] = {target for target in targets if target is not None}
    return graph


def _module_named(imported: str, modules: Mapping[str, Module]) -> str | None:
    """The module that `imported`, a module or a name in one, comes from; None when it is not ours."""
    while imported:
        if imported in modules:
            return imported
        imported = imported.rpartition(".")[0]
    return None


def room_of(name: str) -> str | None:
    """The room of ROOMS that a module belongs to, "" for the package itself; None when it is in no room."""
    room = name.partition(".")[2].partition(".")[0]
    return room if not room or room in ROOMS else None


def room_problems(modules: Mapping[str, Module]) -> Iterator[str]:
    """Modules that are in no room, imports that run up, and jobs that import jobs."""
    for name, targets in graph_of(modules).items():
        room = room_of(name)
        if room is None:
            yield f"{name} is in no room: add it to ROOMS"
            continue
        for target in sorted(targets):
            below = room_of(target)
            if not below or below == room:
                continue
            if not room or ORDER.index(below) < ORDER.index(room):
                yield f"{name} imports {target}, which is above it"
            elif {room, below} <= JOBS:
                yield f"{name} imports {target}: jobs never import jobs"


def formats_problems(modules: Mapping[str, Module]) -> Iterator[str]:
    """Imports inside formats that are not stdlib, construct, numpy or formats itself."""
    prefix = f"{PACKAGE}.formats"
    for name, module in modules.items():
        if f"{name}.".startswith(f"{prefix}."):
            for imported in imports_of(module):
                if not f"{imported}.".startswith(f"{prefix}.") and imported.partition(".")[0] not in FORMATS_IMPORTS:
                    yield f"{name} imports {imported}"


def showing_problems(modules: Mapping[str, Module]) -> Iterator[str]:
    """Printing, exiting, click and rich below the room that shows."""
    for name, module in modules.items():
        if room_of(name) in SHOWING:
            continue
        yield from (
            f"{name} imports {imported}"
            for imported in imports_of(module)
            if imported.partition(".")[0] in SHOWING_IMPORTS or imported in SHOWING_CALLS
        )
        for node in ast.walk(ast.parse(module.text)):
            used = node.func if isinstance(node, ast.Call) else node.exc if isinstance(node, ast.Raise) else None
            if used is not None and ast.unparse(used) in SHOWING_CALLS:
                yield f"{name}:{used.lineno} has {ast.unparse(used)}"


def cycles_in(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Import cycles, each as the path that closes it; one for each edge back that a depth-first walk meets."""
    cycles: list[list[str]] = []
    done: set[str] = set()

    def walk(name: str, path: list[str]) -> None:
        if name in path:
            cycles.append([*path[path.index(name) :], name])
        elif name not in done:
            for target in sorted(graph[name] - {name}):
                walk(target, [*path, name])
            done.add(name)

    for name in sorted(graph):
        walk(name, [])
    return cycles


def long_modules(modules: Mapping[str, Module]) -> list[str]:
    """Modules of more than MAX_LINES lines."""
    lengths = {name: len(module.text.splitlines()) for name, module in modules.items()}
    return [f"{name}: {length} lines" for name, length in lengths.items() if length > MAX_LINES]


def heavy_after_start(root: Path) -> list[str]:
    """The heavy packages that a fresh interpreter has loaded after importing the command line and all commands."""
    started = {name for name in modules_under(root) if room_of(name) in STARTING}
    names = sorted(started - {f"{PACKAGE}.__main__"})
    code = f"import sys, {', '.join(names)}\nprint(*sys.modules.keys() & {set(HEAVY_IMPORTS)!r})"
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.split()


@pytest.fixture(scope="module")
def ours() -> dict[str, Module]:
    """The modules of this checkout."""
    return modules_under(ROOT)


def test_walk_reaches_formats_through_the_symlink(ours: dict[str, Module]) -> None:
    assert {"rmqtool", "rmqtool.cli", "rmqtool.formats.message"} <= ours.keys()


def test_rooms_hold(ours: dict[str, Module]) -> None:
    assert list(room_problems(ours)) == []


def test_formats_need_only_stdlib_numpy_and_construct(ours: dict[str, Module]) -> None:
    assert list(formats_problems(ours)) == []


def test_nothing_below_the_output_prints_or_exits(ours: dict[str, Module]) -> None:
    assert list(showing_problems(ours)) == []


def test_no_import_cycles(ours: dict[str, Module]) -> None:
    assert cycles_in(graph_of(ours)) == []


def test_no_module_is_too_long(ours: dict[str, Module]) -> None:
    assert long_modules(ours) == []


def test_starting_loads_nothing_heavy() -> None:
    assert heavy_after_start(ROOT) == []


# The checks, each on a small tree that breaks its rule.


def tree(root: Path, **texts: str) -> dict[str, Module]:
    """Write modules below `root`, ``a__b="..."`` as ``rmqtool/a/b.py``, and read them back."""
    for name, text in texts.items():
        path = root.joinpath(PACKAGE, *name.split("__")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        (path.parent / "__init__.py").touch()
        path.write_text(text)
    return modules_under(root)


@pytest.mark.parametrize(
    ("texts", "problem"),
    [
        ({"nowhere": ""}, "rmqtool.nowhere is in no room: add it to ROOMS"),
        (
            {"base__errors": "import rmqtool.store.paths", "store__paths": ""},
            "rmqtool.base.errors imports rmqtool.store.paths, which is above it",
        ),
        (
            {"base__errors": "def late():\n    from rmqtool.store import paths", "store__paths": ""},
            "rmqtool.base.errors imports rmqtool.store.paths, which is above it",
        ),
        (
            {"scan__block": "from ..verify.parts import every", "verify__parts": ""},
            "rmqtool.scan.block imports rmqtool.verify.parts, which is above it",
        ),
        (
            {"verify__parts": "from rmqtool.clean import plan", "clean__plan": ""},
            "rmqtool.verify.parts imports rmqtool.clean.plan: jobs never import jobs",
        ),
    ],
)
def test_a_wrong_import_is_found(tmp_path: Path, texts: dict[str, str], problem: str) -> None:
    assert list(room_problems(tree(tmp_path, **texts))) == [problem]


def test_lower_rooms_and_the_own_room_are_allowed(tmp_path: Path) -> None:
    modules = tree(
        tmp_path,
        formats__crc="from .java import wrap",
        formats__java="",
        base__errors="from rmqtool.formats import crc",
        base__files="from rmqtool.base.errors import Error",
        verify__parts="from rmqtool.base import files",
        verify__verification="from .parts import every",
        cli="from rmqtool import verify\nfrom rmqtool.verify.verification import run",
    )
    assert list(room_problems(modules)) == []
    assert cycles_in(graph_of(modules)) == []
    assert graph_of(modules)["rmqtool.cli"] == {"rmqtool.verify", "rmqtool.verify.verification"}


@pytest.mark.parametrize("text", ["import pyarrow.compute", "from click import echo", "from rmqtool import errors"])
def test_a_foreign_import_in_formats_is_found(tmp_path: Path, text: str) -> None:
    modules = tree(tmp_path, formats__crc=f"import zlib, numpy\nfrom construct import Struct\n{text}", errors="")
    assert len(list(formats_problems(modules))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "def f() -> None:\n    print(1)",
        "import sys\nsys.exit(1)",
        "from sys import exit",
        "raise SystemExit",
        "raise SystemExit(2)",
        "import sys\nsys.stderr.write('text')",
        "from click import echo",
        "import rich.table",
    ],
)
def test_showing_below_its_room_is_found(tmp_path: Path, text: str) -> None:
    assert len(list(showing_problems(tree(tmp_path, store=text)))) == 1
    assert list(showing_problems(tree(tmp_path, store="", show=text))) == []


def test_a_cycle_is_found(tmp_path: Path) -> None:
    modules = tree(
        tmp_path,
        errors="from rmqtool import findings",
        findings="from rmqtool.versions import V",
        versions="def late():\n    import rmqtool.errors",
        files="import rmqtool.errors",
    )
    assert cycles_in(graph_of(modules)) == [
        ["rmqtool.errors", "rmqtool.findings", "rmqtool.versions", "rmqtool.errors"],
    ]


def test_a_long_module_is_found(tmp_path: Path) -> None:
    assert long_modules(tree(tmp_path, errors="\n" * MAX_LINES)) == []
    assert long_modules(tree(tmp_path, errors="\n" * (MAX_LINES + 1))) == [f"rmqtool.errors: {MAX_LINES + 1} lines"]


def test_a_heavy_import_at_start_is_found(tmp_path: Path) -> None:
    (tmp_path / "pyarrow.py").touch()
    tree(tmp_path, scan="import pyarrow", cli="", commands__export="def run():\n    from rmqtool import scan")
    assert heavy_after_start(tmp_path) == []
    tree(tmp_path, commands__export="from rmqtool import scan")
    assert heavy_after_start(tmp_path) == ["pyarrow"]


def test_a_package_behind_a_symlink_is_walked(tmp_path: Path) -> None:
    tree(tmp_path, errors="")
    (tmp_path / "formats").mkdir()
    (tmp_path / "formats" / "crc.py").touch()
    (tmp_path / PACKAGE / "formats").symlink_to("../formats")
    assert "rmqtool.formats.crc" in modules_under(tmp_path)
