"""Brings this package to Spark's workers, which need its dependencies and nothing else."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import zipfile
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import rmqtool
from rmqtool.base.own_files import own_directory

if TYPE_CHECKING:
    from pyspark import SparkContext

_PACKAGE = Path(rmqtool.__file__).parent


def is_on_this_machine(master: str) -> bool:
    """Whether a master starts its workers here, as children of this process."""
    return master.startswith("local")


def package_zip(directory: str) -> Path:
    """A zip of this package in a directory, `rmqtool.formats` included wherever it stands."""
    path = Path(directory, "rmqtool.zip")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for folder, _, files in os.walk(_PACKAGE, followlinks=True):
            for name in sorted(files):
                if name.endswith(".py"):
                    file = Path(folder, name)
                    archive.write(file, Path(_PACKAGE.name, file.relative_to(_PACKAGE)))
    return path


def ship(context: SparkContext) -> None:
    """Send the package to the executors of a context, once."""
    _ship(context.applicationId, context)


@cache
def _ship(application: str, context: SparkContext) -> None:
    stack = ExitStack()
    atexit.register(stack.close)  # executors that come later fetch it too
    context.addPyFile(str(package_zip(stack.enter_context(own_directory("rmqtool-package-")))))


def other_python(context: SparkContext) -> str | None:
    """The Python of the PATH, where a session on this machine takes it though it is of another environment."""
    if not is_on_this_machine(context.master) or context.getConf().get("spark.pyspark.python"):
        return None
    found = shutil.which("python3") or "python3"
    is_ours = os.path.dirname(found) == os.path.dirname(sys.executable)
    return None if "PYSPARK_PYTHON" in os.environ or is_ours else found


def share_python_path() -> None:
    """Let workers that inherit this process's environment import this very package."""
    parent = str(_PACKAGE.parent)
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if parent not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([parent, *filter(None, paths)])
