"""The rooms of the house: who may import whom, who may print, how long a module may be, what a start may load."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.rooms import PACKAGE, ROOMS, ROOT, Module, graph_of, imports_of, modules_under, nodes_of, room_of, tree

pytestmark = pytest.mark.budget(1)  # most tests parse the whole package

ORDER = tuple(ROOMS)
# Jobs never import jobs.
JOBS = {"inspect", "verify", "repair", "rebuild", "salvage", "clean", "query", "pending", "export", "diff", "replay"}
NETWORK = "replay"  # the only room that knows one
FILE_SYSTEMS = f"{PACKAGE}.base.filesystems"  # asks whether another machine answers, before a library waits for it
NETWORK_IMPORTS = {"asyncio", "ftplib", "http", "smtplib", "socket", "socketserver", "ssl", "xmlrpc"}
NETWORK_MODULES = ("urllib.request", "pyarrow.flight")
MAY_IMPORT_NETWORK = re.compile(rf"{PACKAGE}\.(replay|(commands|show)\.replay(_\w+)?)(\..*)?")
STARTING = {"__main__", "cli", "commands"}  # loaded by every start
SHOWING = {*STARTING, "show"}  # may print and exit
FORMATS_IMPORTS = sys.stdlib_module_names | {"construct", "numpy"}
SHOWING_IMPORTS = {"click", "rich"}  # only above the jobs
SHOWING_CALLS = {
    *("print", "input", "exit", "quit", "SystemExit", "os._exit", "sys.exit"),
    *("sys.stdout.write", "sys.stderr.write", "sys.stdout.buffer.write", "sys.stderr.buffer.write"),
}
HEAVY_IMPORTS = ("pyarrow", "pyspark")
MAX_LINES = 600


def room_problems(modules: Mapping[str, Module]) -> Iterator[str]:
    """Modules that are in no room, imports that run up, and jobs that import jobs."""
    for name, targets in graph_of(modules).items():
        room = room_of(name)
        if room is None:
            yield f"{name} is in no room: add it to ROOMS"
            continue
        for target in sorted(targets):
            below = room_of(target)
            if not below or below == room or (room, below) == ("", "library"):  # `rmqtool.open` imports it when called
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
        for node in nodes_of(module.text):
            used = node.func if isinstance(node, ast.Call) else node.exc if isinstance(node, ast.Raise) else None
            if used is not None and ast.unparse(used) in SHOWING_CALLS:
                yield f"{name}:{used.lineno} has {ast.unparse(used)}"


def network_problems(modules: Mapping[str, Module]) -> Iterator[str]:
    """Networks outside of the room that knows one, and imports of that room by others than its command."""
    room = f"{PACKAGE}.{NETWORK}"
    for name, module in modules.items():
        for imported in imports_of(module):
            is_network = imported.partition(".")[0] in NETWORK_IMPORTS or imported.startswith(NETWORK_MODULES)
            if is_network and room_of(name) != NETWORK and name != FILE_SYSTEMS:
                yield f"{name} imports {imported}"
            if f"{imported}.".startswith(f"{room}.") and not MAY_IMPORT_NETWORK.fullmatch(name):
                yield f"{name} imports {imported}"


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


def test_one_room_knows_a_network(ours: dict[str, Module]) -> None:
    assert list(network_problems(ours)) == []


def test_no_import_cycles(ours: dict[str, Module]) -> None:
    assert cycles_in(graph_of(ours)) == []


def test_no_module_is_too_long(ours: dict[str, Module]) -> None:
    assert long_modules(ours) == []


def test_starting_loads_nothing_heavy() -> None:
    assert heavy_after_start(ROOT) == []


def test_no_module_of_tests_is_imported() -> None:
    """What tests share has a module of its own."""
    imported = re.compile(r"^(?:from|import) tests\b.*?\b(test_\w+)", re.MULTILINE)
    for path in (ROOT / "tests").rglob("*.py"):
        assert {*imported.findall(path.read_text(encoding="utf-8"))} <= {path.stem}, path


# The checks, each on a small tree that breaks its rule.


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
            {"scan__block": "from ..verify.task import every", "verify__task": ""},
            "rmqtool.scan.block imports rmqtool.verify.task, which is above it",
        ),
        (
            {"verify__task": "from rmqtool.clean import plan", "clean__plan": ""},
            "rmqtool.verify.task imports rmqtool.clean.plan: jobs never import jobs",
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
        verify__task="from rmqtool.base import files",
        verify__verification="from .task import every",
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


@pytest.mark.parametrize(
    ("texts", "problem"),
    [
        ({"store__paths": "import socket"}, "rmqtool.store.paths imports socket"),
        (
            {"show__report_pictures": "from urllib.request import urlopen"},
            "rmqtool.show.report_pictures imports urllib.request.urlopen",
        ),
        (
            {"commands__export": "from rmqtool.replay import sending"},
            "rmqtool.commands.export imports rmqtool.replay.sending",
        ),
    ],
)
def test_a_network_elsewhere_is_found(tmp_path: Path, texts: dict[str, str], problem: str) -> None:
    assert list(network_problems(tree(tmp_path, **texts))) == [problem]
    fine = tree(
        tmp_path / "fine", replay__connection="import ssl", commands__replay="from rmqtool.replay import connection"
    )
    assert list(network_problems(fine)) == []


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
