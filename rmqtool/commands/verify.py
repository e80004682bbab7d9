"""`rmqtool verify STORE`: is the store sound, what is wrong, where, and what to run next."""

from __future__ import annotations

import re
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, get_args

import click

import rmqtool
from rmqtool.base.errors import Exit, UsageError
from rmqtool.base.numbers import EXAMPLES
from rmqtool.base.times import parse_duration
from rmqtool.base.visible import visible
from rmqtool.commands.completion import codes, complete_from
from rmqtool.commands.options import (
    argument,
    command,
    conf_option,
    flag,
    jobs_option,
    master_option,
    option,
    parsed,
)
from rmqtool.commands.shared_options import (
    OF_NEXT,
    OnTier,
    StorePath,
    disk_rate_option,
    filter_options,
    memory_option,
    processes_for,
    within_memory,
)
from rmqtool.commands.writing import check_place
from rmqtool.findings.catalogue import why_no_code
from rmqtool.show.output import Style, note, write_document, write_text
from rmqtool.show.progress import byte_progress

if TYPE_CHECKING:
    from rmqtool.base.files import RateLimit
    from rmqtool.base.parallel import WorkerPool
    from rmqtool.library.verified import Verified
    from rmqtool.scan.filters import Filters
    from rmqtool.store.store import Store
    from rmqtool.verify.part_result import PartResult
    from rmqtool.verify.saved_progress import SavedProgress
    from rmqtool.verify.task import VerifyRequest
    from rmqtool.verify.verification import Verification

Form = Literal["text", "junit", "sarif", "openmetrics", "nagios"]


@parsed
def _codes(value: tuple[str, ...]) -> tuple[str, ...]:
    """Codes or prefixes of codes; several may stand in one value, with commas between them."""
    codes = tuple(code.strip().lower() for text in value for code in text.split(",") if code.strip())
    if why := next(filter(None, map(why_no_code, codes)), None):
        raise ValueError(why)
    return codes


@parsed
def _share(value: str) -> float:
    """A percentage, as a number of 0 to 1."""
    found = re.fullmatch(r"(\d{1,3}(?:\.\d{1,6})?) ?%", value.strip(), re.ASCII)
    share = float(found[1]) / 100 if found else 0
    if not 0 < share <= 1:
        raise ValueError(f"{value!r} is not a share above 0% and up to 100%; example: 5%")
    return share


@dataclass(frozen=True, kw_only=True)
class VerifyOptions(OnTier):
    """What was asked for."""

    path: Path = argument("STORE", StorePath(may_be_remote=True))
    only: tuple[str, ...] = option(
        "Report only findings whose code begins like this: commitlog, index.slot. Repeatable.",
        multiple=True, callback=_codes, shell_complete=complete_from(codes), metavar="CODE",
    )  # fmt: skip
    skip: tuple[str, ...] = option(
        "Leave out findings whose code begins like this. Repeatable.",
        multiple=True, callback=_codes, shell_complete=complete_from(codes), metavar="CODE",
    )  # fmt: skip
    max_examples: int = option(
        "Show at most this many findings of one code; all are counted.",
        type=click.IntRange(*EXAMPLES), default=10, metavar="N",
    )  # fmt: skip
    filters: Filters = filter_options("topic", "exclude-topic")
    jobs: int | None = jobs_option()
    memory: int | None = memory_option()
    time_limit: float | None = option(
        "Stop reading log and index after this time, such as 10m, and show what was not verified.",
        callback=parsed(lambda value: parse_duration(value) / 1000), metavar="TIME",
    )  # fmt: skip
    sample: float | None = option(
        "Verify only this share of log and index, such as 5%, spread over all of them.",
        callback=_share, metavar="PERCENT",
    )  # fmt: skip
    resume: Path | None = option(
        "Continue the run whose progress is in FILE; if FILE does not exist, begin a run and save its progress there.",
        type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    )  # fmt: skip
    disk_rate: RateLimit | None = disk_rate_option()
    fast: bool = flag("Structure only: skip bodies and their CRCs.")
    form: Form = option(
        "Text for people; reports for continuous integration; figures for Prometheus; a monitoring plug-in's answer.",
        "--format", type=click.Choice(get_args(Form)), default="text",
    )  # fmt: skip
    engine: Literal["local", "spark"] = option(
        "Processes of this machine, or Spark, for copies that are too large for one machine.",
        type=click.Choice(["local", "spark"]), default="local",
    )  # fmt: skip
    master: str | None = master_option()
    conf: dict[str, str] = conf_option()


@command(
    "verify",
    VerifyOptions,
    (
        "rmqtool verify /data/rocketmq/store",
        "rmqtool verify /data/rocketmq/store -q",
        "rmqtool verify /data/rocketmq/store --broker-version 5.3",
        "rmqtool verify /data/rocketmq/store -j 4 --fast --only consumequeue",
        "rmqtool verify /data/rocketmq/store -j 4 --memory 256MiB",
        "rmqtool verify /data/rocketmq/store --format junit | tee verify.xml",
        "rmqtool verify /data/rocketmq/store --time-limit 1h --resume verify.progress",
        "rmqtool verify /data/rocketmq/store --json | jq .result.verdict",
        "rmqtool verify s3://backups/broker-a/store",
        "rmqtool verify /data/rocketmq/store --tiered-path /mnt/tier",
    ),
    {
        Exit.OK: "no findings above info in the selected parts",
        Exit.FINDINGS: "there are findings above info",
        Exit.USAGE: "the command line is wrong",
        Exit.LOSSY: "no such findings, but some parts could not be read, or not in time",
        Exit.FAILED: "the store cannot be listed or its layout read, or memory is short",
        Exit.NOT_A_STORE: "not a RocketMQ store",
        Exit.INTERRUPTED: "interrupted by Ctrl-C; the findings so far are shown",
    },
    {"What is verified": ("fast", "only", "skip", "sample", "time-limit", "resume")},
)
def verify(style: Style, given: VerifyOptions) -> int:
    """Check every message, queue entry and index entry.

    Messages, queues and index are compared with each other; the output ends with a verdict and a plan. STORE is the
    directory that broker.conf calls storePathRootDir. A broker may be running on it; what it writes meanwhile is not
    reported. With --topic everything is checked, but findings about other topics are left out. With -q the output is
    one line. Nothing in the store is changed.
    """  # fmt: skip
    from rmqtool.findings.report import Selection
    from rmqtool.library.verified import Verified
    from rmqtool.verify.log_pass import VERIFY_NEED
    from rmqtool.verify.outcome import outcome_of
    from rmqtool.verify.task import VerifyRequest

    if style.json and given.form != "text":
        raise UsageError(f"--format {given.form} does not go with --json")
    with ExitStack() as stack:
        if given.memory is not None and given.engine == "spark":
            raise UsageError("--memory is for --engine local: Spark has spark.driver.memory and others")
        processes = stack.enter_context(within_memory(style, given.memory, _processes(given), VERIFY_NEED))
        pool = _pool(stack, given, processes)  # before a progress bar, which has a thread
        selection = Selection(given.only, given.skip, given.filters.topic_choice or None)
        request = VerifyRequest(version=given.broker_version, selection=selection, max_examples=given.max_examples,
                                jobs=processes, bodies=not given.fast, rate=given.bytes_per_second,
                                time_limit=given.time_limit, sample=given.sample)  # fmt: skip
        started = monotonic()
        # Workers of Spark have directories of their own.
        store = given.open(given.path.absolute() if given.engine == "spark" else given.path)
        verification = store.verification(request, _saved(given.resume, store.snapshot.store, request))
        missing = _missing_topics(verification, given.filters)
        # After an interrupt what was found until then is shown.
        with suppress(KeyboardInterrupt), byte_progress("verifying", verification.total_bytes, style=style) as bar:
            verification.run(bar.add, pool)
    if saved := verification.saved:
        if saved.problem:
            note(f"WARNING: {visible(str(saved.path))}: {saved.problem}")
        elif verification.complete and not style.quiet:
            note(f"{visible(str(saved.path))}: removed, because everything is verified now")
    unseen = missing - verification.topics_seen
    verified = Verified(outcome_of(verification), given.words(*OF_NEXT))
    disk_rate = given.disk_rate.bytes_per_second if given.disk_rate else None
    status = _show(style, verified, given.form, monotonic() - started, disk_rate)
    return Exit.FINDINGS if unseen and status == Exit.OK else status


def _missing_topics(verification: Verification, filters: Filters) -> set[str]:
    """The topics of ``--topic`` that have no queue and are not configured; a note says so before the log is read."""
    from rmqtool.store.missing import unknown_topic

    missing = {topic: told for topic in filters.topics if (told := unknown_topic(verification.snapshot, topic))}
    for told in missing.values():
        note(f"WARNING: {told}")
    return set(missing)


def _processes(given: VerifyOptions) -> int:
    return given.jobs or 1 if given.engine == "spark" else processes_for(given.jobs, given.path)


def _pool(stack: ExitStack, given: VerifyOptions, jobs: int) -> WorkerPool[PartResult]:
    """The processes that check parts: of this machine, or Spark's; they end with `stack`."""
    if given.engine == "local":
        if given.master or given.conf:
            raise UsageError("--master and --conf are for --engine spark")
        from rmqtool.verify.log_pass import workers_for

        return stack.enter_context(workers_for(given.path, jobs))
    if given.limit_rate is not None or jobs > 1:
        raise UsageError("--limit-rate and --jobs are for --engine local: Spark has workers of its own")
    from rmqtool.spark.engine import SparkPool
    from rmqtool.spark.session import starting_spark

    start = stack.enter_context(starting_spark(given.master, given.conf))
    return stack.enter_context(SparkPool[Any](start))


def _saved(resume: Path | None, store: Store, request: VerifyRequest) -> SavedProgress | None:
    """The progress of earlier runs; raises UsageError where the file cannot be written or is of something else."""
    if resume is None:
        return None
    from rmqtool.verify.saved_progress import SavedProgress

    check_place(resume, store)
    return SavedProgress(resume, store, request, rmqtool.__version__)


def _show(style: Style, verified: Verified, form: Form, seconds: float, disk_rate: int | None) -> int:
    """Write the outcome; the exit status. What another form needs is not loaded: it would take longer than a check."""
    outcome = verified.outcome
    if style.json:
        from rmqtool.show.verify_reports import outcome_json

        result = {**outcome_json(outcome, disk_rate), "plan": verified.plan.as_json()}
        style.store = str(outcome.root)
        write_document(style, "verify", result, findings=outcome.findings, status=outcome.status)
    elif form == "junit":
        from rmqtool.show.verify_reports import junit_report

        write_text(junit_report(outcome, seconds))
    elif form == "sarif":
        from rmqtool.show.verify_reports import sarif_report

        write_text(sarif_report(outcome))
    elif form == "openmetrics":
        from rmqtool.show.monitoring import verify_metrics

        write_text(verify_metrics(outcome, seconds))
    elif form == "nagios":
        from rmqtool.show.monitoring import verify_answer

        answer = verify_answer(outcome, seconds)
        write_text(answer.text)
        return answer.status
    else:
        from rmqtool.show.verify import show_line, show_outcome

        plan = verified.plan if verified.treated else None
        if style.quiet:
            show_line(outcome, plan, style)
        else:
            show_outcome(outcome, plan, style, seconds, disk_rate)
    return outcome.status
