"""docs/trust.md: what is promised, how it is tried, the figures of the last runs, and faults of our own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from tests.trust.history import FAULTS
from tests.trust.results import Result, recorded

PAGE = Path(__file__).parents[2] / "docs" / "trust.md"

_FUZZED = {
    "formats": "every layout, properties, JSON of fastjson 1 and 2, traces, file names",
    "rows": "rows of RocksDB: queues, index, timer, transactions, POP, configuration",
    "scan": "a commit log, all columns, and a record as Java's broker reads it",
    "entries": "a log of DLedger entries",
    "units": "queues, batch queues, ext files, DLedger index, checkpoint, abort",
    "index": "index files: listing, slots, chains, look-ups",
    "config": "JSON files of config/, as three releases read them, and what is left of damaged ones",
    "timer": "timer wheel and timer log",
    "manifest": "RocksDB's MANIFEST and logs",
    "database": "a RocksDB database with one file replaced: SST, MANIFEST, CURRENT, log, OPTIONS",
    "tiered": "tiered storage: index segments and metadata",
    "compaction": "compacted queues: log, entries, positions",
    "salvage": "`salvage --raw`",
    "bodies": "JSON bodies for typed columns",
    "remoting": "answers of name servers and brokers to `replay`",
}
_MODES = {
    "fails": "fails with EIO, as a bad sector",
    "ends": "ends early, as a file that is cut meanwhile",
    "pieces": "comes in pieces",
    "changes": "gives other bytes",
}
_WRITE_FAULTS = {
    "killed": ("kill-before", "kill-after"),
    "EIO": ("fail-once", "fail-on"),
    "ENOSPC": ("full-once", "full-on", "short-full"),
    "EACCES": ("denied-once", "denied-on"),
    "short": ("short-once",),
    "two at once": ("beside",),
    "without power": ("power",),
}

_INTRO = """# Trust

rmqtool may be used on the only copy of a store. This page lists what it promises, how each promise is tested, and what
the last run found. The runs themselves write the figures (`make trust` writes the page), and each command works in a
clone. A commit with a plus sign includes changes that were committed after it. Runs with the same program tried the
same code, whatever else a commit has changed: `git ls-tree COMMIT rmqtool formats | git hash-object --stdin` shows it.
"""


def page() -> str:
    """The whole page."""
    sections = {
        "fuzz": _fuzz,
        "damages": _damages,
        "reads": _reads,
        "writes": _writes,
        "live": _live,
        "mutants": _mutants,
    }
    results = ((section, recorded(name)) for name, section in sections.items())
    tried = (section(result) for section, result in results if result is not None)
    return "\n".join([_INTRO, *chain.from_iterable(tried), *_history()])


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines) + "\n"


def _run(result: Result, what: str = "Last run") -> str:
    minutes = max(1, round(result.seconds / 60))
    of = f"commit {result.commit}" + (f", program {result.program}" if result.program else "")
    said = f"{what}: `{result.command}`, {result.day}, {of}, seed {result.seed}, {minutes} min."
    return f"{said} {result.note}".rstrip() + "\n"


def _fuzz(result: Result) -> Iterator[str]:
    yield "## Damaged bytes\n"
    yield (
        "Whatever bytes are in a file or in a broker's answer, rmqtool reports them with an error of its own, and\n"
        "does not use more memory or time than their size allows. A coverage-guided fuzzer (atheris) changes pieces\n"
        "of stores that brokers wrote. Every input that fails becomes a test.\n"
    )
    yield _run(result)
    rows = [
        (_FUZZED[row["target"]], f"{row['runs']:,}", row["coverage"], "fails" if row["found"] else "none")
        for row in result.rows
    ]
    yield _table(("target", "runs", "branches reached", "failures"), rows)
    if (longer := recorded("fuzz-longest")) is not None:
        tried = " and ".join(f"{row['runs']:,} runs of `{row['target']}`" for row in longer.rows)
        yield _run(longer, f"Two targets were also run for longer, without a failure in {tried}")


def _damages(result: Result) -> Iterator[str]:
    yield "## Damaged stores\n"
    yield (
        "Whatever happens to the files of a store, `verify`, `repair` and `undo` end without a traceback. The plan\n"
        "says what the repair leaves and takes, what it promises comes true, a second repair has nothing to do, and\n"
        "undo brings back every byte. A few losses and changes at a time come to stores that brokers wrote; those\n"
        "that give a finding, a change, a loss or a verdict that none gave before are changed further.\n"
    )
    yield _run(result)
    rows = [
        (row["store"], f"{row['runs']:,}", row["outcomes"], row["repaired"], len(row["problems"]) or "none")
        for row in result.rows
    ]
    yield _table(("store", "damages", "different outcomes", "repaired", "failures"), rows)


def _reads(result: Result) -> Iterator[str]:
    tried, met = (sum(row[name] for row in result.rows) for name in ("trials", "hits"))
    verdicts = _by_mode(result.rows)
    yield "## Failing reads\n"
    yield (
        "If reads fail, end early, come in pieces or return other bytes, a command ends without a traceback and with\n"
        "a documented exit status. It reports what was not read, the verdict is then never clean, and the store is\n"
        "not changed. Bytes that no checksum covers can change without notice. A library between the program and the\n"
        "kernel makes reads of each kind of file fail, page by page and from the n-th read on, for `verify`,\n"
        "`inspect`, `query` and `status`; `--every N` tries one in N.\n"
    )
    yield _run(result)
    yield f"{tried:,} faults in {len(result.rows)} stores, {met:,} of them met by a read. Verdicts of `verify`:\n"
    names = ("clean", "unproven", "dirty", "corrupt", "none")
    rows = [(_MODES[mode], *(verdicts[mode, name] for name in names)) for mode in _MODES]
    yield _table(("a read", *names[:-1], "no verdict, an error"), rows)
    if (longer := recorded("reads-longest")) is not None:
        tried = sum(row["trials"] for row in longer.rows)
        yield _run(longer, f"All {tried:,} faults of {len(longer.rows)} stores were tried as well, without a failure")


def _writes(result: Result) -> Iterator[str]:
    yield "## Failing writes\n"
    yield (
        "Whatever happens to a write, no byte of a source or of an earlier output is lost, nothing looks complete\n"
        "that is not, a command ends with a documented exit status and one message, and the next run goes on, or says\n"
        "what to do. The same library makes every call that changes something fail, in turn, or take half of what is\n"
        "to be written; it kills the command before and after the call, or stops it while another one does the same.\n"
        "For power failures, the calls are played on a model of a disk that keeps any part of what was not synced.\n"
        "`--every N` tries one call in N.\n"
    )
    yield _run(result)
    faults = sum(sum(row["tried"].values()) for row in result.rows)
    yield f"{faults:,} faults and states:\n"
    rows = [
        (row["writer"], row["calls"],
         *(sum(row["tried"].get(name, 0) for name in names) for names in _WRITE_FAULTS.values()),
         len(row["problems"]) or "none")
        for row in result.rows
    ]  # fmt: skip
    yield _table(("what writes", "its calls", *_WRITE_FAULTS, "failures"), rows)
    if (longer := recorded("writes-longest")) is not None:
        tried = sum(sum(row["tried"].values()) for row in longer.rows)
        yield _run(longer, f"All {tried:,} faults and states were tried as well, without a failure")


def _live(result: Result) -> Iterator[str]:
    yield "## Running brokers\n"
    yield (
        "Of a sound store that grows no command reports damage or a finding above information, every message that is\n"
        "looked up is found, and an incremental export has each message once. Beside brokers that take 1,000 messages\n"
        "a second, `verify`, `inspect --scan`, `query`, `status` and `export` run in turns, each in its own process.\n"
        "The last column compares the most memory that a command needs in the last third of its runs with the first.\n"
        "It may be a quarter more, and beside RocksDB also the 16 MiB that its reader keeps once the broker has\n"
        "written a table.\n"
    )
    yield _run(result)
    rows = [
        (row["form"], row["version"], f"{row['minutes']:g}", f"{row['messages']:,}", row["runs"],
         len(row["problems"]) or "none", row["memory"])
        for row in result.rows
    ]  # fmt: skip
    yield _table(("broker", "release", "minutes", "messages", "commands", "false reports", "memory"), rows)


def _by_mode(rows: Sequence[Any]) -> Counter[tuple[str, str]]:
    found = Counter[tuple[str, str]]()
    for row in rows:
        for name, count in row["verdicts"].items():
            mode, _, verdict = name.partition(": ")
            found[mode, verdict] += count
    return found


def _mutants(result: Result) -> Iterator[str]:
    yield "## Changes that tests notice\n"
    yield (
        "In the modules that make decisions, one comparison, operator, number or return value at a time is changed,\n"
        "and the tests that reach it are run. A change that no test notices shows a missing test, or changes nothing.\n"
    )
    yield _run(result)
    rows = [
        (row["what"], f"`{row['module']}`", row["changes"], row["seen"], row["same"], row["survived"] + row["no_test"])
        for row in result.rows
    ]
    yield _table(("decision", "module", "changes", "noticed by a test", "change nothing", "not noticed"), rows)
    if (longer := recorded("mutants-longest")) is not None:
        tried, seen, same = (sum(row[name] for row in longer.rows) for name in ("changes", "seen", "same"))
        left = f"{seen:,} were noticed, {same} change nothing, {tried - seen - same} was not noticed"
        yield _run(longer, f"All {tried:,} changes were tried as well: {left}")


def _history() -> Iterator[str]:
    yield "## Faults found in rmqtool\n"
    yield ("Wrong answers of rmqtool that were corrected, what each would have cost, and the test that now finds it.\n")
    rows = [
        (fault.day, fault.commit or "", fault.what, fault.cost, f"`{fault.test.removeprefix('tests/')}`")
        for fault in FAULTS
    ]
    yield _table(("corrected", "commit", "what was wrong", "what it would have cost", "test"), rows)
