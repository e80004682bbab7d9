"""Findings of ``export --check``: what was exported is not what the log says."""

from __future__ import annotations

from rmqtool.findings.entry import Entry

_EFFECT = "none: the store is not concerned"
_VERSIONS = (("all", "know nothing of exports."),)
_REPAIR = "Export again into another directory, check that, and put it in place of this one."

EXPORTS = (
    Entry(
        code="export.file",
        severity="error",
        title="An exported file is not the one that was written",
        what="It is gone, damaged, of another size or number of rows, or in no manifest.",
        how="It was deleted, cut by a copy, written by another program; or two exports went to one directory.",
        says={
            "unreadable": "cannot be read: {why}",
            "size": "{rows} rows in {bytes} bytes, where the manifest has {expected_rows} rows in {expected_bytes} "
            "bytes",
            "crc": "the CRC-32 of its bytes is {crc}, where the manifest has {expected_crc}",
            "extra": "not in the manifest: readers of the directory read it too",
        },
        effect=_EFFECT,
        versions=_VERSIONS,
        repair=_REPAIR,
    ),
    Entry(
        code="export.sums",
        severity="error",
        title="The manifest's sums are not those of the log",
        what="A queue has another number of rows, or other first or last offsets, than the log; or a total is wrong.",
        how="The log was changed since the export, or the manifest was.",
        says={
            "total": "{found} {name} in all, where the files in it have {expected}",
            "queue": "{differences}",
            "no-queue": "{rows:message} in the log, none in the manifest",
        },
        parts={
            "differences": "{name} {expected}, in the log {found}",
        },
        effect=_EFFECT,
        versions=_VERSIONS,
        repair=_REPAIR,
    ),
    Entry(
        code="export.missing",
        severity="error",
        title="Messages of the log are not in the export",
        what="The log holds messages that no exported row is of.",
        how="The files or the log were changed since the export, or files of several exports lie together.",
        says="{count:message of the log is|messages of the log are} not in the export; physical offsets {offsets!l}[ "
        "and {more} more]",
        effect=_EFFECT,
        versions=_VERSIONS,
        repair=_REPAIR,
    ),
    Entry(
        code="export.extra",
        severity="error",
        title="Rows are in the export and not in the log",
        what="No message of the log stands where these rows say.",
        how="The files or the log were changed since the export, or files of several exports lie together.",
        says="{count:row is|rows are} in the export and not in the log; physical offsets {offsets!l}[ and {more} more]",
        effect=_EFFECT,
        versions=_VERSIONS,
        repair=_REPAIR,
    ),
    Entry(
        code="export.doubled",
        severity="error",
        title="Messages are in the export more than once",
        what="Several rows have one physical offset.",
        how="The files or the log were changed since the export, or files of several exports lie together.",
        says="{count:message is|messages are} in the export more than once; physical offsets {offsets!l}[ and {more} "
        "more]",
        effect=_EFFECT,
        versions=_VERSIONS,
        repair=_REPAIR,
    ),
    Entry(
        code="export.differs",
        severity="error",
        title="Rows hold something else than the log",
        what="A column has another value than the log gives.",
        how="The files or the log were changed since the export, or files of several exports lie together.",
        says="{count:row has|rows have} another {column} than the log; physical offsets {offsets!l}[ and {more} more]",
        effect=_EFFECT,
        versions=_VERSIONS,
        repair=_REPAIR,
    ),
)
