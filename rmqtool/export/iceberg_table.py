"""The files of an export as an Iceberg table, by the package pyiceberg: the table follows the manifest.

A commit of the table adds the files that only the manifest names, by their absolute paths, and new columns; where files
are gone, it replaces all of them in one transaction. Done again it changes nothing. The catalog is that of pyiceberg's
settings.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa

from rmqtool.base.errors import RmqtoolError, UnsupportedError, UsageError
from rmqtool.base.remote_path import RemotePath
from rmqtool.export.options import ICEBERG, watermarks


def check_possible(output: Path, name: str) -> None:
    """Raise UnsupportedError without the package, UsageError for no name, or one of another output's table."""
    if find_spec("pyiceberg") is None:
        hint = "pip install 'rmqtool[iceberg]'"
        raise UnsupportedError("--table iceberg needs the package pyiceberg", hint=hint)
    if not all(name.split(".")) or "." not in name:
        raise UsageError(f"--table {ICEBERG}{name}: no NAMESPACE.TABLE", hint=f"--table {ICEBERG}lake.messages")
    with _told(output, name):
        from pyiceberg.catalog import load_catalog

        catalog = load_catalog()
        if catalog.table_exists(name):
            _files_of(catalog.load_table(name), output, name)


def follow_manifest(output: Path, name: str, manifest: dict[str, Any], schema: pa.Schema) -> None:
    """Make the table `name` hold the files of a manifest, whose columns are `schema`; raises RmqtoolError."""
    with _told(output, name):
        _follow(output, name, manifest, schema)


@contextmanager
def _told(output: Path, name: str) -> Iterator[None]:
    """Turn what a catalog or a file system raises, which may be anything, into an RmqtoolError."""
    logging.getLogger("pyiceberg").setLevel(logging.ERROR)  # it warns of each column without statistics
    try:
        yield
    except RmqtoolError:
        raise
    except Exception as error:
        message = f"the Iceberg table {name} cannot be read or written: {' '.join(str(error).split())}"
        hint = "what is exported is whole; the next run into it brings the table up to date"
        raise RmqtoolError(message, file=output, hint=hint) from error


def _root(output: Path) -> str:
    """How paths of an output's files begin in a table."""
    return f"{output}/" if isinstance(output, RemotePath) else f"{output.absolute()}/"


def _files_of(table: Any, output: Path, name: str) -> set[str]:
    """The paths of a table's files; raises UsageError where they are those of another output."""
    there = {task.file.file_path for task in table.scan().plan_files()}
    if any(not path.startswith(_root(output)) for path in there):
        raise UsageError(f"the Iceberg table {name} holds files of another output", file=output)
    return there


def _follow(output: Path, name: str, manifest: dict[str, Any], schema: pa.Schema) -> None:
    from pyiceberg.catalog import load_catalog
    from pyiceberg.expressions import AlwaysTrue

    catalog = load_catalog()
    catalog.create_namespace_if_not_exists(name.rpartition(".")[0])
    table = catalog.create_table_if_not_exists(name, schema=schema)
    there = _files_of(table, output, name)
    wanted = [_root(output) + file["path"] for file in manifest["files"]]
    gone, added = there - set(wanted), [path for path in wanted if path not in there]
    names = {field.name for field in table.schema().fields}
    properties = {"rmqtool": json.dumps(watermarks(manifest))}
    if not gone and not added and names == set(schema.names):
        return
    with table.transaction() as transaction:
        if gone:
            transaction.delete(AlwaysTrue())
        if names != set(schema.names):  # none is deleted but of a table that is replaced
            with transaction.update_schema(allow_incompatible_changes=True) as update:
                for column in names - set(schema.names):
                    update.delete_column(column)
                update.union_by_name(schema)
        files = wanted if gone else added
        if files:
            transaction.add_files(files, snapshot_properties=properties, check_duplicate_files=not gone)
