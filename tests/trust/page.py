"""docs/trust.md: what is promised, how it is tried, the figures of the last runs, and faults of our own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
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

_INTRO = """# Trust

rmqtool is pointed at what may be the only copy of a store. This page says what it promises, how each promise is tried,
and what the last run of each has found. The figures are written by the runs themselves (`make trust` puts them
together); every command can be run in a clone. A plus sign after a commit: with changes that were committed after it.
"""


def page() -> str:
    """The whole page."""
    parts = [_INTRO, *_fuzz(), *_reads(), *_mutants(), *_history()]
    return "\n".join(parts)


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines) + "\n"


def _run(result: Result) -> str:
    minutes = max(1, round(result.seconds / 60))
    said = f"Last run: `{result.command}`, {result.day}, commit {result.commit}, seed {result.seed}, {minutes} min."
    return f"{said} {result.note}".rstrip() + "\n"


def _fuzz() -> Iterator[str]:
    result = recorded("fuzz")
    if result is None:
        return
    yield "## Whatever the bytes are\n"
    yield (
        "No bytes of a file or of an answer lead to an exception that is not rmqtool's own, or take more memory or\n"
        "time than their size allows. A fuzzer that follows branches (atheris) changes pieces of stores that brokers\n"
        "wrote; every input that fails becomes a test.\n"
    )
    yield _run(result)
    rows = [
        (_FUZZED[row["target"]], f"{row['runs']:,}", row["coverage"], "fails" if row["found"] else "none")
        for row in result.rows
    ]
    yield _table(("what reads", "runs", "branches reached", "failures"), rows)


def _reads() -> Iterator[str]:
    result = recorded("reads")
    if result is None:
        return
    tried, met = (sum(row[name] for row in result.rows) for name in ("trials", "hits"))
    verdicts = _by_mode(result.rows)
    yield "## Whatever a read gives\n"
    yield (
        "A command whose reads fail, end early, come in pieces or change ends by itself, without a traceback, with a\n"
        "documented exit status. What was not read is mentioned, and the verdict is never clean then. The store stays\n"
        "as it was. A library between the program and the kernel does this to each kind of file, at each page and\n"
        "from several reads on, under `verify`, `inspect`, `query` and `status`; `--every` takes some of them.\n"
    )
    yield _run(result)
    yield f"{tried:,} faults in {len(result.rows)} stores, of which reads met {met:,}. The verdicts of `verify`:\n"
    names = ("clean", "unproven", "dirty", "corrupt", "none")
    rows = [(_MODES[mode], *(verdicts[mode, name] for name in names)) for mode in _MODES]
    yield _table(("a read", *names[:-1], "no verdict, an error"), rows)


def _by_mode(rows: Sequence[Any]) -> Counter[tuple[str, str]]:
    found = Counter[tuple[str, str]]()
    for row in rows:
        for name, count in row["verdicts"].items():
            mode, _, verdict = name.partition(": ")
            found[mode, verdict] += count
    return found


def _mutants() -> Iterator[str]:
    result = recorded("mutants")
    if result is None:
        return
    yield "## Whether tests would see a mistake\n"
    yield (
        "In the modules that decide, one comparison, operation, number or return at a time is changed, and the tests\n"
        "that reach it are run. What survives is a test that is missing, or a change that means the same.\n"
    )
    yield _run(result)
    rows = [
        (row["what"], f"`{row['module']}`", row["changes"], row["seen"], row["same"], row["survived"] + row["no_test"])
        for row in result.rows
    ]
    yield _table(("what is decided", "module", "changes", "seen by a test", "mean the same", "not seen"), rows)


def _history() -> Iterator[str]:
    yield "## Faults of our own\n"
    yield (
        "Answers of rmqtool that were wrong and have been corrected, what each would have cost, and the test that\n"
        "finds it now.\n"
    )
    rows = [
        (fault.day, fault.commit or "", fault.what, fault.cost, f"`{fault.test.removeprefix('tests/')}`")
        for fault in FAULTS
    ]
    yield _table(("corrected", "commit", "what was wrong", "what it would have cost", "test"), rows)
