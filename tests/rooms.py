"""The rooms of the house, the modules of the package, and who imports whom."""

from __future__ import annotations

import ast
import gc
import os
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "rmqtool"

# The rooms of the house, top down, and what each is for: a module imports from its own room and from those below it.
ROOMS: Mapping[str, str] = {
    "__main__": "the program",
    "cli": "errors become exit statuses",
    "commands": "parse options, call one job, show the result",
    "show": "all output",
    "library": "what Python programs import",
    "spark": "code that needs Spark",
    "sql": "stores as tables for SQL statements",
    "report": "one page about a store, from the results of the jobs",
    "cut": "cutting off a log in place, and everything derived from it",
    "copy": "a complete copy of a store, even while a broker writes to it",
    "inspect": "the contents of a store, or of a path in it",
    "verify": "log, queues and index compared both ways",
    "repair": "one plan for all findings, and all changes that are not rebuilds",
    "rebuild": "rebuilds consume queues and index from the log",
    "salvage": "copies verifiable messages to a new store",
    "clean": "the next deletions, and who loses unread messages",
    "query": "finds and explains a message",
    "pending": "what a stopped broker still has to deliver",
    "export": "messages to Parquet, CSV and NDJSON",
    "diff": "two stores side by side",
    "replay": "sends messages to a live cluster; the only package that uses the network",
    "transaction": "the only writer to a store",
    "clients": "what producers and consumers get from a store, and what they lose",
    "broker": "what each release does with a store; never writes",
    "store": "a store directory as objects",
    "scan": "log bytes to columns to rows",
    "rules": "what changed in which release, what broker.conf sets",
    "findings": "a finding, its page, its report",
    "base": "independent of RocketMQ",
    "formats": "bytes to values and back",
}


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


@cache
def nodes_of(text: str) -> tuple[ast.AST, ...]:
    """A module, and all that is in it; kept, since to parse the package takes seconds.

    Twice as many when the garbage collector goes through all of it again and again.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return tuple(ast.walk(ast.parse(text)))
    finally:
        if was_enabled:
            gc.enable()


@cache
def imports_of(module: Module) -> tuple[str, ...]:
    """Every dotted name that a module imports, wherever the import stands; ``from a import b`` gives ``a.b``."""
    return tuple(_imports_of(module))


def _imports_of(module: Module) -> Iterator[str]:
    for node in nodes_of(module.text):
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


def tree(root: Path, **texts: str) -> dict[str, Module]:
    """Write modules below `root`, ``a__b="..."`` as ``rmqtool/a/b.py``, and read them back."""
    for name, text in texts.items():
        path = root.joinpath(PACKAGE, *name.split("__")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        (path.parent / "__init__.py").touch()
        path.write_text(text)
    return modules_under(root)
