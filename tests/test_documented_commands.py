"""Every command line that README and docs show is one of the program: its options are there, and take these values."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import pytest

from rmqtool.base.errors import Exit
from rmqtool.cli import cli
from tests.commands.running import ROOT, command_named, rmqtool
from tests.unchanged import unchanged

STORE = ROOT / "examples" / "store"
PAGES = [page for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))) if page.name != "faults.md"]
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"(?<!`)`(rmqtool [^`\n]+)`")
_STORES = re.compile(
    r"(?:STORE|PATH|COPY|BACKUP|SOURCE|A|B|@orders-[ab]|(?:[a-z]+://|/|[a-z]+=/)[^ ]*store(?:-new)?|/data/small|"
    r"/tmp/broken|backup/store|examples/store|STORE\|PARQUET)(?=/(?:commitlog|consumequeue|index|config|checkpoint)|$)"
)
_WORDS = {
    **dict.fromkeys(("N", "ID", "KEY", "OFFSET"), "1"),
    **dict.fromkeys(("VERSION", "NEW_VERSION"), "5.3.3"),
    **dict.fromkeys(("HOST:PORT", "10.0.0.7:9876"), "localhost:9876"),
    **dict.fromkeys(("broker.conf", "BROKER_CONF", "/tmp/broken.conf", "/etc/rocketmq/broker.conf"), "CONF"),
}
_ENDS = ("|", ">", "#", "<TAB>", "ord<TAB>")  # what a shell does with the rest, or a reader types
_READ_ONLY = ("diff", "explain", "inspect", "pending", "query", "sql", "status", "verify", "version")
_NOT_RUN = (
    *("[", "<TAB>"),  # to be filled by the reader
    *("--follow", "--watch"),  # until Ctrl-C
    *("://", "--tiered-path", "--decoder", "/config/rdb", "/tmp/copy", " other=/"),  # what the store has not
    *("--resume", "--save-body"),  # writes a file
)


def lines_of(page: Path) -> Iterator[tuple[str, bool]]:
    """The command lines of a page, those in its sentences too, and whether each is in a block of commands."""
    text = page.read_text(encoding="utf-8")
    for block in _BLOCK.findall(text):
        for line in re.sub(r"\\\n\s*", " ", block).splitlines():
            if line.removeprefix("$ ").startswith("rmqtool "):
                yield line.removeprefix("$ "), True
    yield from ((line, False) for line in _INLINE.findall(text) if len(line.split()) > 2)


def words_of(line: str, conf: Path, new: Path) -> list[str]:
    """The words of a line after the program's name, with what is there for its stores and files."""
    words: list[str] = []
    for word in shlex.split(line.replace("\\|", "|"), comments=True)[1:]:
        if word in _ENDS:
            break
        if word in ("[OPTIONS]", "...") or word == "|":
            continue
        bare = word.strip("[]").removesuffix("...")
        known = _WORDS.get(bare, bare)
        known = str(conf) if known == "CONF" else known
        found = _STORES.match(known)
        if found and (not words or words[-1] not in ("--topic", "--group", "--output", "-o", "--journal")):
            known = str(STORE) + known[found.end() :]
        elif words and words[-1] in ("--output", "-o", "--save-plan", "--resume", "--save-body"):
            known = str(new)
        words.append(known)
    return words


LINES = sorted({(page.name, *line) for page in PAGES for line in lines_of(page)})


@pytest.fixture(scope="module")
def conf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (found := tmp_path_factory.mktemp("conf") / "broker.conf").touch()
    return found


def test_options_of_command_lines_are_there() -> None:
    """Of those that write, or need another machine, too."""
    wrong = []
    for page, line, _ in LINES:
        words = shlex.split(line.replace("\\|", "|"), comments=True)[1:]
        name = next((word for word in words if word in cli.modules), None)
        if name is None and words[0] not in ("--version", "COMMAND"):
            wrong.append(f"{page}: {line}: no command of the program")
        params = (*cli.params, *(command_named(name).params if name else ()))
        known = {each for param in params for each in (*param.opts, *param.secondary_opts)} | {"--help"}
        given = [word for word in takewhile(lambda word: word not in _ENDS, words) if re.match(r"--[a-z]", word)]
        wrong += [f"{page}: {line}: {word}" for word in given if word.partition("=")[0] not in known]
    assert len(LINES) > 200
    assert wrong == []


RUN = [
    pytest.param(line, id=f"{page}: {line}")
    for page, line, is_block in LINES
    if is_block and line.split()[1] in _READ_ONLY and not any(sign in line for sign in _NOT_RUN)
]


@pytest.mark.slow
@pytest.mark.parametrize("line", RUN)
def test_what_only_reads_runs(line: str, conf: Path, tmp_path: Path) -> None:
    """On the example store, whatever it finds there: it is neither refused, nor fails."""
    with unchanged(STORE):
        found = rmqtool(*words_of(line, conf, tmp_path / "new"))
    assert "nagios" in line or found.status not in (Exit.USAGE, Exit.FAILED), found.err
