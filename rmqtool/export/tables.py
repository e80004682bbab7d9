"""Tables that an output may be, too: Delta Lake (package deltalake) and Iceberg (pyiceberg); they follow the manifest.

A commit of a table adds the files that only the manifest names, and removes those that only the table has: done again
it changes nothing. It is a step of the commit of the export, which an interruption leaves to the next run.

New columns of a Delta table are a version of their own, before that of the files that have them. An Iceberg table has
absolute paths, in the catalog of pyiceberg's settings; where files are gone, all are replaced in one transaction.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pyarrow as pa

from rmqtool.base.errors import RmqtoolError, UnsupportedError, UsageError
from rmqtool.base.new_files import sync
from rmqtool.base.remote_path import RemotePath
from rmqtool.export.options import ICEBERG, watermarks

_SCHEMES = ("s3", "s3a")
_DELTA_LOG = "_delta_log"
_STATISTICS = "physical_offset"


def check_delta(output: Path) -> None:
    """Raise UnsupportedError without the package, UsageError for a place that it does not know."""
    if find_spec("deltalake") is None:
        hint = "pip install 'rmqtool[delta]'"
        raise UnsupportedError("--table delta needs the package deltalake", hint=hint)
    if isinstance(output, RemotePath) and output.scheme not in _SCHEMES:
        message = "a Delta table is written on this machine and on s3:// only"
        raise UsageError(message, file=output, hint="export without --table, and register the files there")


def follow_delta(output: Path, manifest: dict[str, Any], schema: pa.Schema) -> None:
    """Make the table at `output` hold the files of a manifest, whose columns are `schema`; raises RmqtoolError."""
    from deltalake.exceptions import DeltaError

    check_delta(output)
    try:
        _follow_delta(output, manifest, schema)
        if not isinstance(output, RemotePath):
            _sync_below(output / _DELTA_LOG)
    except (DeltaError, OSError) as error:
        message = f"the Delta table cannot be written: {' '.join(str(error).split())}"
        hint = "the export is complete; the next run into it updates the table"
        raise RmqtoolError(message, file=output, hint=hint) from error


def drop_torn_version(output: Path) -> None:
    """Remove the newest version of a Delta table if a power failure has left its name and not its content.

    Nobody can read the table then, nor write to it.
    """
    newest = max((output / _DELTA_LOG).glob("[0-9]*.json"), default=None)
    if newest is None:
        return
    with suppress(ValueError):
        if [json.loads(line) for line in newest.read_text(encoding="utf-8").splitlines()]:
            return
    newest.unlink()


def _sync_below(folder: Path) -> None:
    """Have the files of a folder on the disk, and their names: who commits to a table leaves that to the system."""
    for path in (*folder.iterdir(), folder, folder.parent):
        sync(path)


def _follow_delta(output: Path, manifest: dict[str, Any], schema: pa.Schema) -> None:
    from deltalake import CommitProperties, DeltaTable, Schema
    from deltalake.transaction import RemoveAction, create_table_with_add_actions

    uri, options = _place(output)
    wanted = {file["path"]: file for file in manifest["files"]}
    columns: Any = Schema.from_arrow(schema)
    properties = CommitProperties(custom_metadata={"rmqtool": json.dumps(watermarks(manifest))})
    if not DeltaTable.is_deltatable(uri, storage_options=options):
        added = [_added(file, schema) for file in wanted.values()]
        create_table_with_add_actions(
            uri, columns, added, mode="error", storage_options=options, commit_properties=properties
        )
        return
    table = DeltaTable(uri, storage_options=options)
    there = _files_of_delta(table)
    added = [_added(file, schema) for path, file in wanted.items() if path not in there]
    if wanted.keys() >= there.keys():
        _add_columns(table, columns, None if added else properties)  # how far it reaches comes with the rows
    if table.schema() != columns:  # of an export that replaces one with other columns
        every = [_added(file, schema) for file in wanted.values()]
        table.create_write_transaction(every, "overwrite", columns, commit_properties=properties)
        return
    now = int(time.time() * 1000)
    gone = [RemoveAction(path, True, now, size, {}) for path, size in there.items() if path not in wanted]
    if added or gone:
        table.create_write_transaction([*added, *gone], "append", columns, commit_properties=properties)


def _add_columns(table: Any, columns: Any, properties: Any) -> None:
    """Add the last ones of `columns` to a table that has the others."""
    there = len(table.schema().fields)
    if table.schema().fields == columns.fields[:there] and columns.fields[there:]:
        table.alter.add_columns(columns.fields[there:], commit_properties=properties)
        table.update_incremental()


def _files_of_delta(table: Any) -> dict[str, int]:
    """The files of a table, with their sizes in bytes, by paths below it."""
    actions = pa.table(table.get_add_actions())
    return dict(
        zip(map(unquote, actions.column("path").to_pylist()), actions.column("size_bytes").to_pylist(), strict=True)
    )


def _added(file: dict[str, Any], schema: pa.Schema) -> Any:
    from deltalake.transaction import AddAction

    statistics: dict[str, Any] = {"numRecords": file["rows"]}
    if _STATISTICS in schema.names and file["rows"]:
        statistics["minValues"] = {_STATISTICS: file["physical_offset_first"]}
        statistics["maxValues"] = {_STATISTICS: file["physical_offset_last"]}
        statistics["nullCount"] = {_STATISTICS: 0}
    return AddAction(file["path"], file["bytes"], {}, int(time.time() * 1000), True, json.dumps(statistics))


def _place(output: Path) -> tuple[str, dict[str, str] | None]:
    """The URI of an output, and the options that deltalake needs beside its environment."""
    if not isinstance(output, RemotePath):
        return str(output.absolute()), None
    place, _, query = output.authority.partition("?")
    user, _, bucket = place.rpartition("@")
    given = {name: values[-1] for name, values in parse_qs(query).items()}
    options = {}
    if user:
        options["AWS_ACCESS_KEY_ID"], _, options["AWS_SECRET_ACCESS_KEY"] = user.partition(":")
    if "region" in given:
        options["AWS_REGION"] = given["region"]
    if "endpoint_override" in given:
        scheme = given.get("scheme", "https")
        options["AWS_ENDPOINT_URL"] = f"{scheme}://{given['endpoint_override'].rpartition('://')[2]}"
        options["AWS_ALLOW_HTTP"] = str(scheme == "http").lower()
    return f"s3://{bucket}/{output.key}", options


def check_iceberg(output: Path, name: str) -> None:
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
            _files_of_iceberg(catalog.load_table(name), output, name)


def follow_iceberg(output: Path, name: str, manifest: dict[str, Any], schema: pa.Schema) -> None:
    """Make the table `name` hold the files of a manifest, whose columns are `schema`; raises RmqtoolError."""
    with _told(output, name):
        _follow_iceberg(output, name, manifest, schema)


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
        hint = "the export is complete; the next run into it updates the table"
        raise RmqtoolError(message, file=output, hint=hint) from error


def _root(output: Path) -> str:
    """How paths of an output's files begin in a table."""
    return f"{output}/" if isinstance(output, RemotePath) else f"{output.absolute()}/"


def _files_of_iceberg(table: Any, output: Path, name: str) -> set[str]:
    """The paths of a table's files; raises UsageError where they are those of another output."""
    there = {task.file.file_path for task in table.scan().plan_files()}
    if any(not path.startswith(_root(output)) for path in there):
        raise UsageError(f"the Iceberg table {name} holds files of another output", file=output)
    return there


def _follow_iceberg(output: Path, name: str, manifest: dict[str, Any], schema: pa.Schema) -> None:
    from pyiceberg.catalog import load_catalog
    from pyiceberg.expressions import AlwaysTrue

    from rmqtool.export.synced_files import SCHEMES, SyncedFiles

    catalog = load_catalog()
    if urlsplit(catalog.properties.get("warehouse", "")).scheme in SCHEMES:
        catalog.properties.setdefault("py-io-impl", f"{SyncedFiles.__module__}.{SyncedFiles.__qualname__}")
    catalog.create_namespace_if_not_exists(name.rpartition(".")[0])
    table = catalog.create_table_if_not_exists(name, schema=schema)
    there = _files_of_iceberg(table, output, name)
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
    url = catalog.engine.url if hasattr(catalog, "engine") else None
    if url and url.get_backend_name() == "sqlite" and url.database:
        sync(Path(url.database).absolute().parent)  # its journal, which would undo the commit, is gone
