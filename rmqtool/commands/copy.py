"""`rmqtool copy STORE --output DIR`: a copy of a stopped or running broker's store; the same restores one."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rmqtool.base.errors import Exit, UsageError
from rmqtool.base.paths import is_remote
from rmqtool.base.remote_path import RemotePath
from rmqtool.base.visible import join
from rmqtool.commands import shared_options as shared
from rmqtool.commands import writing
from rmqtool.commands.options import argument, command, flag, jobs_option, option
from rmqtool.show.output import Style, note, write_document
from rmqtool.show.progress import byte_progress, job_progress

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqtool.copy.job import CopyJob, CopyResult
    from rmqtool.copy.remote_job import RestoreJob
    from rmqtool.salvage.new_store import NewStore


@dataclass(frozen=True, kw_only=True)
class CopyOptions(shared.OnStore):
    """What was asked for."""

    path: Path = argument("STORE", shared.StorePath(may_be_remote=True))
    output: Path | None = shared.output_option(
        "The copy: a new or empty directory; with --update an existing copy. Or its URI.",
        "DIR", shared.StorePath(may_be_remote=True),
    )  # fmt: skip
    update: bool = flag("Update a copy: only changed files are read.")
    prune: bool = flag("With --update, drop what the store's cleaner has deleted. Otherwise the copy keeps it.")
    verify: bool = flag("Check a copy: STORE against its manifest, then as verify does.")
    as_: str | None = option(
        "The copy is for a slave of this broker (slave), for a replica under a controller (controller), or for another "
        "broker of this NAME: names of the old broker are removed.",
        "--as", metavar="slave|controller|NAME",
    )  # fmt: skip
    raw: bool = flag("Leave the copy as after a crash: queues and index are not completed, nothing is verified.")
    fresh_times: bool = flag("When restoring: count the age of its log files from now on.")
    dry_run: bool = shared.dry_run_option()
    yes: bool = shared.yes_option()
    jobs: int | None = jobs_option()

    @property
    def target(self) -> Path:
        """The directory of the copy, of options that fit each other."""
        return self.output or Path()

    def require_consistent(self) -> None:
        """Raise UsageError for options that do not fit each other."""
        if self.verify and (
            self.output or self.update or self.prune or self.raw or self.fresh_times or self.dry_run or self.as_
        ):
            raise UsageError("--verify checks the copy that is named in place of STORE, and writes nothing")
        if not self.verify and self.output is None:
            raise UsageError("--output is missing", hint="name the directory of the copy with --output DIR")


@command(
    "copy",
    CopyOptions,
    (
        "rmqtool copy /data/rocketmq/store --output /backup/store --limit-rate 50MiB",
        "rmqtool copy /data/rocketmq/store --output /backup/store --update --prune",
        "rmqtool copy --verify /backup/store",
        "rmqtool copy /backup/store --output /data/rocketmq/new-store --fresh-times",
        "rmqtool copy /data/rocketmq/store --output /data/slave --as slave",
        "rmqtool copy /data/rocketmq/store --output s3://backups/broker-a",
        "rmqtool copy s3://backups/broker-a --output /data/rocketmq/new-store",
    ),
    {
        Exit.OK: "done, planned, or the copy matches its manifest",
        Exit.FINDINGS: "done, with findings; or the copy does not match its manifest",
        Exit.USAGE: "the options do not fit, the output is not empty, or not confirmed",
        Exit.FAILED: "could not finish: the next run continues; an earlier copy is unchanged",
        Exit.IN_USE: "another rmqtool is changing the store",
    },
)
def copy(style: Style, given: CopyOptions) -> Exit:
    """Copy a store, also of a running broker, or restore one.

    Every message that was acknowledged before the copy began is in it, with its queue entries, keys and topics. Files
    are copied in such an order that none points to missing data. The copy gets a proven end, and a broker starts on it
    as after a clean stop. The manifest is written last: a directory without one is not a copy. If a run is
    interrupted, the same command continues it.

    STORE may also be such a copy: it is then restored, and each byte is compared with the manifest. The copy may be on
    another machine (s3://, gs://, abfs://, hdfs://): files that no longer change are uploaded at once, the others are
    first put together in the directory for temporary files (TMPDIR).
    """
    given.require_consistent()
    return _verify(style, given) if given.verify else _copy(style, given)


def _copy(style: Style, given: CopyOptions) -> Exit:
    job = _job(given)
    if given.dry_run:
        return _show_plan(style, given, job)
    _ask_about_retention(given, job)
    return _show(style, given, _run(style, given, job))


def _job(given: CopyOptions) -> CopyJob | RestoreJob:
    """What these options ask for."""
    from rmqtool.copy.job import CopyJob, CopyRequest
    from rmqtool.store.store import require_plain_log

    request = CopyRequest(given.target, given.update, given.prune, given.raw, given.fresh_times, given.as_,
                          shared.processes_for(given.jobs, given.path), given.limit_rate)  # fmt: skip
    if isinstance(given.path, RemotePath):
        from rmqtool.copy.objects import RemoteCopy
        from rmqtool.copy.remote_job import RestoreJob

        if is_remote(given.target):
            raise UsageError("a copy on another machine is restored to this one: --output DIR", file=given.path)
        return RestoreJob(RemoteCopy(given.path), request, given.broker_conf, given.broker_version)
    snapshot = given.opened.snapshot
    require_plain_log(snapshot.store, "copy")
    if isinstance(given.target, RemotePath):
        from rmqtool.copy.remote_job import RemoteCopyJob

        return RemoteCopyJob(snapshot, request, given.target)
    return CopyJob(snapshot, request)


def _ask_about_retention(given: CopyOptions, job: CopyJob | RestoreJob) -> None:
    """Ask before files are restored that the broker's cleaner would delete at once."""
    from rmqtool.show.copy import expired_sentence

    if job.plan.expired.files:
        note(expired_sentence(job.plan.expired))
        writing.confirm("Restore with these times anyway?", yes=given.yes)


def _run(style: Style, given: CopyOptions, job: CopyJob | RestoreJob) -> CopyResult:
    from rmqtool.copy.run import allocated_below
    from rmqtool.salvage.new_store import NewStore

    there = given.target if isinstance(given.target, RemotePath) else None
    if there:
        from rmqtool.copy.remote_job import staging_of

    new = NewStore(staging_of(there) if there else given.target, goes_on=there is None)
    with new.making(), _kept_for_later(style, new, there):
        with byte_progress("copying", job.plan.needed, style=style) as bar:
            copied = job.copy(new, bar.add)
        with byte_progress("completing queues and index", copied.log_bytes, style=style) as bar:
            settled = job.settle(new, copied, bar.update)
        size = allocated_below(new.directory) if there else 0
        with byte_progress("uploading what is new", size, style=style) as bar:
            return job.finish(new, copied, settled, bar.add)


@contextmanager
def _kept_for_later(style: Style, new: NewStore, there: RemotePath | None) -> Iterator[None]:
    """Say what becomes of what is copied when an error or a signal ends the block."""
    try:
        yield
    except BaseException:
        if not style.quiet and new.notes.exists():
            note(f"the files copied so far are kept in {new.directory.parent}: the same command continues from there")
        elif not style.quiet and there:
            note("the same command continues with what has been uploaded")
        raise


def _show_plan(style: Style, given: CopyOptions, job: CopyJob | RestoreJob) -> Exit:
    from rmqtool.show.copy import plan_json, show_copy_plan

    if style.json:
        write_document(style, "copy", plan_json(job.plan, given.path, given.target))
        return Exit.OK
    show_copy_plan(job.plan, style)
    if not style.quiet:
        words = given.words("path", "output", "update", "prune", "as_", "raw", "fresh_times", *shared.OF_NEXT)
        note(f"nothing is written yet; next: {join(['rmqtool', 'copy', *words])}")
    return Exit.OK


def _show(style: Style, given: CopyOptions, found: CopyResult) -> Exit:
    from rmqtool.show.copy import copy_json, show_copy

    status = Exit.FINDINGS if found.findings else Exit.OK
    if style.json:
        write_document(style, "copy", copy_json(found, given.target), findings=found.findings, status=status)
        return status
    show_copy(found, style)
    if not style.quiet:
        words = given.words("broker_conf", "broker_version")
        if given.as_:
            from rmqtool.copy.identity import settings_of

            note(f"its broker.conf must have {settings_of(given.as_, given.broker_conf)}")
        if found.mode == "restore":
            note(f"done; next: {join(['rmqtool', 'verify', str(given.output), *words])}, then start the broker")
        else:
            note(f"done; to check it: {join(['rmqtool', 'copy', '--verify', str(given.output), *words])}")
    return status


def _no_copy(path: Path) -> UsageError:
    hint = "a copy that was interrupted has none; rmqtool verify checks any store"
    return UsageError("not a copy: it has no manifest", file=path, hint=hint)


def _verify(style: Style, given: CopyOptions) -> Exit:
    from rmqtool.base.files import ReadPolicy
    from rmqtool.copy.manifest import differences, read_manifest
    from rmqtool.copy.settle import copy_store
    from rmqtool.library.store import Store
    from rmqtool.show.copy import check_json, show_check
    from rmqtool.store.snapshot import Snapshot
    from rmqtool.verify.task import VerifyRequest

    if isinstance(given.path, RemotePath):
        return _verify_there(style, given, given.path)
    manifest = read_manifest(given.path)
    if manifest is None:
        if not given.path.exists():
            raise UsageError("there is no such copy", file=given.path)
        raise _no_copy(given.path)
    with byte_progress("comparing with the manifest", sum(file.used for file in manifest.files), style=style) as bar:
        different = [*differences(given.path, manifest, ReadPolicy(given.limit_rate), bar.add)]
    opened = Store(Snapshot(copy_store(given.path, given.broker_conf), given.broker_version, given.limit_rate))
    with job_progress(style, "verifying") as progress:
        request = VerifyRequest(
            opened.snapshot.version,
            jobs=shared.processes_for(given.jobs, given.path),
            rate=opened.snapshot.bytes_per_second,
        )
        verified = opened.verified(request, progress)
    findings = [each for each in verified.findings if each.severity != "info"]
    is_expected = not manifest.settled and verified.verdict == "dirty"  # as after a crash, which a start fixes
    status = Exit.FINDINGS if different or (findings and not is_expected) else Exit.OK
    if style.json:
        result = check_json(manifest, different, verified.verdict, given.path)
        write_document(style, "copy", result, findings=findings, status=status)
        return status
    show_check(manifest, different, verified.verdict, findings, style)
    return status


def _verify_there(style: Style, given: CopyOptions, path: RemotePath) -> Exit:
    """Compare a copy on another machine with its manifest."""
    from rmqtool.base.files import ReadPolicy
    from rmqtool.copy.objects import RemoteCopy, remote_differences
    from rmqtool.show.copy import check_json, show_check

    there = RemoteCopy(path)
    manifest = there.manifest
    if manifest is None:
        raise _no_copy(path)
    with byte_progress("comparing with the manifest", sum(file.used for file in manifest.files), style=style) as bar:
        different = [*remote_differences(there, ReadPolicy(given.limit_rate), bar.add)]
    status = Exit.FINDINGS if different else Exit.OK
    if style.json:
        write_document(style, "copy", check_json(manifest, different, None, given.path), status=status)
    else:
        show_check(manifest, different, None, (), style)
    return status
