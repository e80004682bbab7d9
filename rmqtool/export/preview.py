"""What a run would do: its plan, with no directory made, no lock taken and no file written."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmqtool.base.errors import UnreadableError
from rmqtool.base.remote_path import RemotePath
from rmqtool.export import output, remote_output
from rmqtool.export.options import ExportOptions, Mode, Target
from rmqtool.export.output import check_mode, check_table, parse_manifest, read_manifest
from rmqtool.export.plan import ExportPlan, plan_export
from rmqtool.export.sink import files_in, read_remote, unwritable
from rmqtool.store.store import NamedStore


@dataclass(frozen=True)
class Preview:
    """The plan of a run into an output that holds `rows` already, None where it holds no export.

    `free` are the bytes that the output's disk has left, None on another machine.
    """

    plan: ExportPlan
    rows: int | None
    free: int | None


def manifest_there(path: Path) -> dict[str, Any] | None:
    """The manifest that a run would find in an output: of a commit that was interrupted it finishes first, or stored.

    Raises UnreadableError.
    """
    return interrupted_manifest(path) or read_manifest(path)


def interrupted_manifest(path: Path) -> dict[str, Any] | None:
    """The manifest of a commit that has begun and not ended; None without one."""
    with suppress(FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError, UnreadableError):
        if isinstance(path, RemotePath):
            journal = read_remote(path / remote_output.JOURNAL)
        else:
            journal = (path / output.JOURNAL).read_bytes()
        return parse_manifest(json.dumps(json.loads(journal)["manifest"]).encode(), path)
    return None


def preview_export(
    stores: Sequence[NamedStore], path: Path, mode: Mode, options: ExportOptions, manifest: dict[str, Any] | None
) -> Preview:
    """Plan a run into an output with this manifest; raises all that the run itself would raise before it writes."""
    check_table(path, options.table)
    try:
        check_mode(path, manifest, mode, is_empty=_is_empty(path))
    except OSError as error:
        raise unwritable(path, error) from error
    plan = plan_export(stores, manifest, mode, options, Target(path, "preview"))
    return Preview(plan, None if manifest is None else manifest["rows"], _free(path))


def _is_empty(path: Path) -> bool:
    """Whether nothing is there but what an interrupted run has left."""
    if isinstance(path, RemotePath):
        return all(remote_output.OURS.fullmatch(name) for name, _ in files_in(path))
    there = _nearest(path)
    names = set(os.listdir(there))  # raises for what is no directory
    return there != path.absolute() or names <= {output.TEMPORARY}


def _free(path: Path) -> int | None:
    if isinstance(path, RemotePath):
        return None
    return shutil.disk_usage(_nearest(path)).free


def _nearest(path: Path) -> Path:
    """The output, or the directory above it that is there."""
    return next(each for each in (path.absolute(), *path.absolute().parents) if os.path.lexists(each))
