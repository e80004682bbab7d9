"""The layers of the house: who may import whom, who may print, how long a module may be, what a start may load."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "rmqtool"

# Layer -> modules and packages (with all that is in them) of rmqtool. A module imports from its own layer and below.
LAYERS: Mapping[int, tuple[str, ...]] = {
    0: (
        "formats",
        "errors",
        "base",
        "findings",
        "catalogue",
        "versions",
        "broker_conf",
        "delay_levels",
        "system_topics",
        "times",
        "rules",
    ),
    1: ("files", "parts", "lock", "store", "mapped_files"),
    2: (
        "scan",
        "processes",
        "commit_log",
        "log_statistics",
        "queues",
        "index",
        "offsets",
        "config_json",
        "topics",
        "checkpoint",
        "signs",
        "record_signs",
        "store_findings",
        "locate",
        "filters",
        "rows",
        "places",
        "distributions",
        "dledger_log",
        "looks",
        "index_search",
        "log_bytes",
        "queue_units",
        "queue_times",
        "pointed_records",
        "store_view",
        "ext_units",
        "store_delays",
    ),
    3: (
        "messages",
        "message_dicts",
        "named_stores",
        "splits",
        "split_reader",
        "dispatch",
        "append",
        "recovery",
        "retention",
        "transaction",
    ),
    4: ("overview", "listing", "verify", "rebuild", "clean", "query", "pull", "export", "spark"),
    5: (
        "output",
        "progress",
        "overview_facts",
        "overview_json",
        "overview_next",
        "overview_text",
        "message_text",
        "rendering",
        "trace_text",
        "query_text",
        "rebuild_json",
        "rebuild_text",
        "verify_json",
        "verify_junit",
        "verify_text",
        "export_text",
        "clean_json",
        "clean_text",
        "clean_answer",
        "clean_rows",
    ),
    6: ("commands",),
    7: ("cli", "__main__"),
}
ROOT_LAYER = 0  # rmqtool/__init__.py
JOB_LAYER = 4  # one job each: jobs never import jobs
SHOWING_LAYER = 5  # from here up a module may print and exit
START_LAYER = 6  # from here up a module is loaded by every start
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


def entry_of(name: str) -> tuple[int, str] | None:
    """Layer and entry of LAYERS that a module belongs to; None when it is not listed."""
    top, _, rest = name.partition(".")
    if not rest:
        return ROOT_LAYER, top
    entry = rest.partition(".")[0]
    return next(((layer, entry) for layer, entries in LAYERS.items() if entry in entries), None)


def layer_problems(modules: Mapping[str, Module]) -> Iterator[str]:
    """Modules that the table does not know, and imports that it does not allow."""
    for name, targets in graph_of(modules).items():
        place = entry_of(name)
        if place is None:
            yield f"{name} is in no layer: add it to LAYERS"
            continue
        layer, entry = place
        for target in sorted(targets):
            target_layer, target_entry = entry_of(target) or (ROOT_LAYER, "")
            if target_layer > layer:
                yield f"{name} (layer {layer}) imports {target} (layer {target_layer})"
            elif target_layer == layer == JOB_LAYER and target_entry != entry:
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
    """Printing, exiting, click and rich below the layer that shows."""
    for name, module in modules.items():
        layer, _ = entry_of(name) or (ROOT_LAYER, "")
        if layer >= SHOWING_LAYER:
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
    started = {name for name in modules_under(root) if (entry_of(name) or (ROOT_LAYER, ""))[0] >= START_LAYER}
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


def test_layers_hold(ours: dict[str, Module]) -> None:
    assert list(layer_problems(ours)) == []


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
        ({"nowhere": ""}, "rmqtool.nowhere is in no layer: add it to LAYERS"),
        (
            {"errors": "import rmqtool.store", "store": ""},
            "rmqtool.errors (layer 0) imports rmqtool.store (layer 1)",
        ),
        (
            {"errors": "def late():\n    from rmqtool import store", "store": ""},
            "rmqtool.errors (layer 0) imports rmqtool.store (layer 1)",
        ),
        (
            {"scan__blocks": "from ..verify.checks import every", "verify__checks": ""},
            "rmqtool.scan.blocks (layer 2) imports rmqtool.verify.checks (layer 4)",
        ),
        (
            {"clean": "from rmqtool.verify import checks", "verify__checks": ""},
            "rmqtool.clean imports rmqtool.verify.checks: jobs never import jobs",
        ),
    ],
)
def test_a_wrong_layer_is_found(tmp_path: Path, texts: dict[str, str], problem: str) -> None:
    assert list(layer_problems(tree(tmp_path, **texts))) == [problem]


def test_lower_layers_the_own_layer_and_the_own_package_are_allowed(tmp_path: Path) -> None:
    modules = tree(
        tmp_path,
        formats__crc="from .java import wrap",
        formats__java="",
        errors="",
        findings="from rmqtool.errors import Error",
        verify__checks="from rmqtool import findings",
        verify__run="from .checks import every",
        cli="from rmqtool import verify\nfrom rmqtool.verify.run import run",
    )
    assert list(layer_problems(modules)) == []
    assert cycles_in(graph_of(modules)) == []
    assert graph_of(modules)["rmqtool.cli"] == {"rmqtool.verify", "rmqtool.verify.run"}


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
def test_showing_below_the_output_is_found(tmp_path: Path, text: str) -> None:
    assert len(list(showing_problems(tree(tmp_path, store=text)))) == 1
    assert list(showing_problems(tree(tmp_path, store="", output=text))) == []


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
