"""Spark's daemon of Python workers on this machine, begun with the pyspark that is installed.

Spark puts zips of pyspark's sources first, and each of its processes would compile them again: half a second, where
the same modules lie compiled in the installation that started Spark.
"""

from __future__ import annotations

import importlib.util
import os
import sys


def prefer_installed() -> None:
    """Pass over Spark's own zips and jars, where the installed pyspark is the one that Spark was started from."""
    home = os.environ.get("SPARK_HOME", "")
    before = list(sys.path)
    sys.path[:] = [path for path in before if not (path.startswith(home) and path.endswith((".zip", ".jar")))]
    installed = importlib.util.find_spec("pyspark")
    if installed is None or os.path.realpath(installed.origin or "") != os.path.realpath(
        os.path.join(home, "__init__.py")
    ):
        sys.path[:] = before


if __name__ == "__main__":
    prefer_installed()
    from pyspark.daemon import manager

    manager()
