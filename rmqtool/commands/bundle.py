"""`rmqtool bundle STORE -o FILE`: what a support case needs, in one file."""

from __future__ import annotations

import io
import tarfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from rmqtool import __version__
from rmqtool.base.errors import Exit
from rmqtool.base.numbers import byte_size
from rmqtool.commands.options import command, option, size_of_at_least
from rmqtool.commands.report import STATUSES, ReportOptions, Written, look_at, put, status_of
from rmqtool.commands.shared_options import output_option
from rmqtool.findings.finding import Finding
from rmqtool.show.output import Style, document_text, write_document, write_text
from rmqtool.show.shapes import Shape, by

if TYPE_CHECKING:
    from rmqtool.report.facts import StoreReport
    from rmqtool.report.support_files import LeftOut, Member

_TOP = "rmqtool-bundle"
_ABOUT = {
    "report.html": "one page for people: verdict, plan, findings, pictures",
    "verify.json": "rmqtool verify STORE --json",
    "inspect.json": "rmqtool inspect STORE --json",
    "files.tsv": "path, size, bytes on disk, modification time and mode of every file",
    "config/, checkpoint": "as they are",
    "broker.conf": "the settings as the broker reads them; secrets (by their names) are ***",
    "damaged/": "the bytes of damaged ranges of the log, named by physical offset and size",
}


class Missing(Shape):
    """What is not in the bundle."""

    name: str  # Its name in the bundle.
    why: str  # Why it is not there.


class Packed(Written):
    """The file that was written."""

    left_out: list[Missing] = by(lambda _, made: made[2])  # What is not in the bundle.


@dataclass(frozen=True, kw_only=True)
class BundleOptions(ReportOptions):
    """What was asked for."""

    output: Path = output_option(
        "The .tar.gz file; an existing one is replaced.", "FILE", click.Path(path_type=Path, dir_okay=False),
        required=True,
    )  # fmt: skip
    max_damaged: int = option(
        "Take at most this many damaged bytes of the log.",
        callback=size_of_at_least(0),
        default="16MiB",
        metavar="SIZE",
    )


@command(
    "bundle",
    BundleOptions,
    (
        "rmqtool bundle /data/rocketmq/store -o case.tar.gz",
        "rmqtool bundle /data/rocketmq/store -o case.tar.gz --redact keys,hosts",
        "rmqtool bundle /data/rocketmq/store -o case.tar.gz --max-damaged 64MiB",
    ),
    STATUSES,
)
def bundle(style: Style, given: BundleOptions) -> Exit:
    """Pack what a support case needs into one archive.

    A .tar.gz with the page of `rmqtool report`, the JSON of `verify` and `inspect`, a list of all files, the
    configuration without secrets, and the damaged bytes of the log. It does not contain readable messages. Nothing in
    the store is changed.
    """
    facts = look_at(style, given)
    left: list[LeftOut] = []
    members = _members(style, facts, given, left)
    size = put(given.output, lambda file: _pack(file, members, left))
    status = status_of(facts)
    if style.json:
        write_document(style, "bundle", Packed.of(facts, (given.output, size, left)), status=status)
        return status
    write_text(f"{given.output} written ({byte_size(size)}); verdict of the store: {facts.outcome.verdict}\n")
    for each in left:
        write_text(f"not in it: {each.name}: {each.why}\n")
    return status


def _members(style: Style, facts: StoreReport, given: BundleOptions, left: list[LeftOut]) -> Iterator[Member]:
    """All files; what is left out is added to `left`."""
    from rmqtool.report.support_files import LeftOut, Member, config_files, damaged_bytes, file_list
    from rmqtool.show.overview_json import overview_json
    from rmqtool.show.report_page import ReportRedaction, report_page
    from rmqtool.show.verify_reports import outcome_json

    hidden, outcome, overview = ReportRedaction(given.redaction), facts.outcome, facts.overview

    def document(command: str, result: dict[str, Any], findings: tuple[Finding, ...], status: Exit) -> Member:
        redacted = [hidden.redacted(each) for each in findings]
        text = document_text(style, command, result, redacted, status)
        return Member(f"{command}.json", hidden.text(text).encode())

    yield Member("report.html", report_page(facts, given.redaction).encode())
    verified = {**outcome_json(outcome), "plan": facts.plan.as_json()}
    yield document("verify", verified, outcome.findings, outcome.status)
    status = Exit.LOSSY if overview.unread else Exit.OK
    yield document("inspect", overview_json(overview), overview.findings, status)
    yield file_list(outcome.snapshot.store)
    quotes = given.redaction is None or not given.redaction.what & {"keys", "properties"}
    found = config_files(outcome.snapshot.store, hosts=not hidden.hides_hosts, expressions=quotes)
    if given.redaction is None:
        found = chain(found, damaged_bytes(outcome.snapshot, outcome, given.max_damaged))
    elif outcome.total.extents:
        found = chain(found, [LeftOut("damaged/", "damaged bytes may contain redacted values")])
    for each in found:
        if isinstance(each, LeftOut):
            left.append(each)
        else:
            yield each._replace(data=hidden.text(each.data.decode("latin-1")).encode("latin-1"))


def _pack(file: IO[bytes], members: Iterator[Member], left: list[LeftOut]) -> None:
    with tarfile.open(fileobj=file, mode="w:gz") as archive:

        def add(name: str, data: bytes, modified: int | None = None) -> None:
            entry = tarfile.TarInfo(f"{_TOP}/{name}")
            entry.size, entry.mtime, entry.mode = len(data), modified or int(time.time()), 0o644
            archive.addfile(entry, io.BytesIO(data))

        for member in members:
            add(*member)
        lines = [f"Made by rmqtool {__version__} of the store of an Apache RocketMQ broker.", ""]
        lines += [f"{name}: {about}" for name, about in _ABOUT.items()]
        lines += ["", "Not in it:", *(f"{each.name}: {each.why}" for each in left)] if left else []
        add("README.txt", "\n".join([*lines, ""]).encode())
