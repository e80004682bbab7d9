"""Bytecode of the tests and of what they test, made once before several workers of pytest start.

In a fresh clone each of them would rewrite the assertions of all test modules by itself, which takes ten seconds.
"""

from __future__ import annotations

import os
import sys
from compileall import compile_file
from multiprocessing import get_context
from pathlib import Path

import pytest
from _pytest.assertion import rewrite

_ROOT = Path(__file__).parents[1]
_FEW = 20
"""Modules that workers do as fast by themselves."""


def prepare(config: pytest.Config) -> None:
    """Make what is missing, on all cores; a worker makes by itself what is left out here."""
    paths = sorted(path for name in ("rmqtool", "formats", "tests") for path in (_ROOT / name).rglob("*.py"))
    missing = [path for path in paths if not _bytecode_of(path).exists()]
    if len(missing) < _FEW or sys.dont_write_bytecode or rewrite.assertstate_key not in config.stash:
        return
    cores = os.cpu_count() or 1
    context = get_context("fork")
    makers = [context.Process(target=_make, args=(missing[core::cores], config)) for core in range(cores)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()


def _make(paths: list[Path], config: pytest.Config) -> None:
    for path in paths:
        if _is_rewritten(path):
            source, code = rewrite._rewrite_test(path, config)
            _bytecode_of(path).parent.mkdir(exist_ok=True)
            rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, source, _bytecode_of(path))
        else:
            compile_file(path, quiet=2)


def _is_rewritten(path: Path) -> bool:
    return path.name == "conftest.py" or path.name.startswith("test_")


def _bytecode_of(path: Path) -> Path:
    tail = rewrite.PYC_TAIL if _is_rewritten(path) else f".{sys.implementation.cache_tag}.pyc"
    return path.parent / "__pycache__" / f"{path.stem}{tail}"
