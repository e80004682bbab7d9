"""Archives of Java's shared classes: a JVM that takes its classes from one starts by a third faster.

An archive is good for one program of Java and one class path; with another, a JVM starts as it would without.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from tests.real_broker.tools import tool

_QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")


def archive_of(folder: Path, classes: str) -> Path:
    """Where the archive of a class path stands, or would, in a folder of the cache."""
    java = os.path.realpath(tool("java"))
    made_of = f"{java} {os.stat(java).st_mtime_ns} {classes}"
    return folder / f"classes-{hashlib.sha256(made_of.encode()).hexdigest()[:16]}.jsa"


def taking(archive: Path) -> list[str]:
    """Options of a JVM that takes its classes from the archive."""
    return [f"-XX:SharedArchiveFile={archive}", *_QUIET]


def making(archive: Path) -> list[str]:
    """Options of a JVM that writes the archive when it ends by itself."""
    return [f"-XX:ArchiveClassesAtExit={archive}", *_QUIET]
