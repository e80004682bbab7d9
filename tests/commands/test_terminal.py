"""What a terminal gets: lines that fit, and nothing stored that drives it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import unicodedata
from pathlib import Path

import pytest
from rich.cells import cell_len

from rmqtool.base.errors import Exit
from rmqtool.show.output import folded
from tests.building import LogBuilder, message
from tests.commands.running import inspect, listing
from tests.commands.terminal import WIDTH, on_terminal
from tests.conftest import GoldenStore
from tests.sampling import one_in
from tests.unchanged import unchanged

LONG = "long-" * 51
SEQUENCE = re.compile(r"\x1b\[[0-9;]*m")
ERASED, CURSOR_HIDDEN, CURSOR_SHOWN = "\x1b[2K", "\x1b[?25l", "\x1b[?25h"
NASTY = {
    "escape": "\x1b[31mred\x1b]0;title\x07",
    "one byte CSI": "\x9b31m",
    "carriage return": "over\rwritten",
    "backspace": "a\x08b",
    "delete": "a\x7fb",
    "zero": "a\x00b",
    "override": "a\u202eb",
    "isolate": "a\u2067b\u2069",
    "arabic mark": "a\u061cb",
    "zero width": "a\u200bb\ufeff",
    "line separator": "a\u2028b",
}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Topics of 255 characters and of wide ones, a group of 255, an unclean stop, a stray file and damage."""
    log = LogBuilder(file_size=1 << 16)
    log.add_all([{"topic": LONG, "magic_code": -626843477}, {"topic": "订单" * 20}, {"topic": "o"}] * 3)
    store = log.write(tmp_path / "store")
    with (store / "commitlog" / "0".zfill(20)).open("r+b") as file:
        for start in log.offsets[1:5:2]:
            file.seek(start + 4)
            file.write(b"\xff\xff\xff\xff")
    (store / "commitlog" / "notes of somebody about this directory.txt").write_bytes(b"")
    (store / "abort").write_bytes(b"1")
    for topic in (LONG, "订单" * 20, "o"):
        (store / "consumequeue" / topic / "0").mkdir(parents=True)
    (store / "config").mkdir()
    offsets = f'{{"offsetTable":{{"{LONG}@{"g" * 255}":{{0:5}},"o@g":{{0:9223372036854775807}}}}}}'
    (store / "config" / "consumerOffset.json").write_text(offsets)
    return store


def _is_one_piece(line: str) -> bool:
    """Whether a line is one of a finding that a name fills, or a command to be pasted, which are not cut."""
    label = next((each for each in ("error: ", "warning: ", "  next: ") if line.startswith(each)), "")
    return bool(label or line.startswith("       ")) and len(line[len(label) :].split()) == 1


@pytest.mark.one_in(2)
@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--scan"], ["-v", "--scan"]])
def test_an_overview_fits_into_80_columns(store: Path, options: list[str]) -> None:
    """No line is wider than the terminal, and no character of a long name is lost."""
    with unchanged(store):
        status = Exit.LOSSY if options else Exit.OK
        text = SEQUENCE.sub("", on_terminal("inspect", "store", *options, cwd=store.parent, status=status))
    wide = [line for line in text.splitlines() if cell_len(line) > WIDTH and not _is_one_piece(line)]
    assert wide == []
    assert LONG in "".join(line.split(" ")[0] for line in text.splitlines())
    assert text.count("订") >= 20
    assert ("-9223372036854775807" if "-v" in options else "1 beyond the end") in text


@pytest.mark.slow
def test_golden_overviews_fit_into_80_columns(golden_store: GoldenStore) -> None:
    """So it is with what a broker left."""
    for name in ("4.4.0-killed", "5.5.0-trimmed"):
        store = golden_store(name)
        text = SEQUENCE.sub("", on_terminal("inspect", name, "-v", "--scan", cwd=store.parent))
        assert [line for line in text.splitlines() if cell_len(line) > WIDTH] == []


def test_a_pipe_gets_whole_lines(store: Path) -> None:
    """Outside a terminal a sentence or a path is never wrapped."""
    found = inspect(store)
    assert ": move it out of the directory, do not delete it\n" in found.out
    assert len(re.findall(rf"^{LONG} +1 ", found.out, re.MULTILINE)) == 1  # one row, which grep finds
    assert len(re.findall(r"^error: .*notes of somebody about this directory.txt: .+$", found.out, re.MULTILINE)) == 1


def test_what_is_said_beside_the_data_is_wrapped_between_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On standard error; a command to be pasted stays in one piece, and a pipe gets whole lines."""
    command = f"rmqtool repair {LONG} --broker-version 5.3.3"
    text = f"{'one two three ' * 9}\n{'four ' * 30}done, or rmqtool undo, ends it: {command}"
    assert folded(text, "  ") == f"  {text}"
    controller, terminal = pty.openpty()
    with os.fdopen(terminal, "w") as stderr:
        monkeypatch.setattr("sys.stderr", stderr)
        assert folded(text) == text  # it has no size
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, WIDTH, 0, 0))
        *lines, last = folded(text, "  ").splitlines()
    os.close(controller)
    assert last == f"  {command}"
    assert max(map(len, lines)) <= WIDTH
    assert " ".join(" ".join(lines).split()) == " ".join(text.removesuffix(command).split())


@pytest.mark.slow
def test_colour_on_a_terminal(store: Path) -> None:
    """A terminal gets colours, of errors too, unless NO_COLOR, TERM=dumb or --color say otherwise."""
    place = store.parent
    off: list[tuple[list[str], dict[str, str]]] = [(["--color", "never"], {}), ([], {"NO_COLOR": "1"})]
    for arguments, status in (
        (["inspect", "store"], Exit.OK),
        (["inspect", "store/commitlog"], Exit.LOSSY),
        (["inspect", "nowhere"], Exit.FAILED),
    ):
        assert SEQUENCE.search(on_terminal(*arguments, cwd=place, status=status))
        for options, variables in one_in(2, off, arguments[1]):
            assert not SEQUENCE.search(on_terminal(*arguments, *options, cwd=place, status=status, **variables))


@pytest.mark.slow
def test_force_color(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no terminal reads; NO_COLOR and --color are stronger."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert SEQUENCE.search(inspect(store).out)
    assert not SEQUENCE.search(inspect(store, "--color", "never").out)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not SEQUENCE.search(inspect(store).out)


@pytest.mark.slow
def test_messages_and_tables_fit(tmp_path: Path) -> None:
    """Lines end between words; a table leaves columns out, and names them, unless they were asked for."""
    log = LogBuilder()
    for topic in ("orders-of-a-shop-" * 3, "订单" * 15):
        log.add(topic=topic, properties={"KEYS": " ".join(f"key-{n}" for n in range(20)), "TAGS": "paid"})
    log.write(tmp_path / "store")
    messages = on_terminal("--no-pager", "inspect", "store/commitlog", "--color", "never", cwd=tmp_path)
    assert max(map(cell_len, messages.splitlines())) <= WIDTH
    assert re.search(r"key-19\s", messages)
    table = ["--no-pager", "inspect", "store/commitlog", "--format", "table"]
    shown = on_terminal(*table, cwd=tmp_path)
    assert max(map(cell_len, shown.splitlines())) <= WIDTH
    assert "too narrow: queue_offset, message_size" in " ".join(shown.split())
    assert "left out" not in on_terminal(*table, "--quiet", cwd=tmp_path)
    chosen = on_terminal(*table, "--columns", "message_size,physical_offset", cwd=tmp_path)
    assert chosen.split()[:2] == ["message_size", "physical_offset"]


@pytest.mark.slow
@pytest.mark.parametrize("text", NASTY.values(), ids=NASTY)
def test_what_is_stored_does_not_drive_the_terminal(tmp_path: Path, text: str) -> None:
    """Control and direction characters of topics, properties and bodies are escaped, in text and in JSON."""
    log = LogBuilder()
    log.add(topic=text, properties={"KEYS": text, "TAGS": text, "UNIQ_KEY": text, text: text}, body=text.encode())
    store = log.write(tmp_path / "store")
    topic = text.replace("\x00", "")
    (store / "consumequeue" / topic / "0").mkdir(parents=True)
    (store / "commitlog" / f"stray {topic}").touch()
    (store / "config").mkdir()
    (store / "config" / "consumerOffset.json").write_text(f'{{"offsetTable":{{"{topic}@{topic}":{{0:5}}}}}}')
    shown = [
        *(inspect(store, *options).out for options in (["-v", "--scan"], ["--json", "--scan"], [])),
        *(inspect(store, *options, part="commitlog").out for options in ([], ["--json"], ["--body-format", "json"])),
        inspect(store, part=f"commitlog/stray {topic}").err,
        inspect(store, f"--no-such-option-{text}").err,
    ]
    for out in shown:
        assert [character for character in out if is_unsafe(character)] == []
    assert listing(store).lines[0]["topic"] == listing(store).lines[0]["body"] == text


def is_unsafe(character: str) -> bool:
    return character != "\n" and unicodedata.category(character) in ("Cc", "Cf", "Zl", "Zp", "Cs")


def test_a_hex_dump_of_anything_is_plain(tmp_path: Path) -> None:
    """All 256 bytes in a body give letters and dots."""
    store = tmp_path / "store"
    (store / "commitlog").mkdir(parents=True)
    (store / "commitlog" / "0".zfill(20)).write_bytes(message(body=bytes(range(256))))
    out = inspect(store, "--body-format", "hex", part="commitlog").out
    assert out.isascii()
    assert [character for character in out if is_unsafe(character)] == []


@pytest.mark.slow
def test_progress_leaves_no_trace(store: Path) -> None:
    """A bar is there for who waits on a terminal, gone at the end, and never in what is quiet."""
    slow = ["inspect", "store", "--scan", "--limit-rate", "60K"]
    text = on_terminal(*slow, cwd=store.parent, status=Exit.LOSSY)
    *_, last = re.finditer("reading the commit log", text)
    assert ERASED in text[last.end() :]
    assert text.rindex(CURSOR_SHOWN) > text.rindex(CURSOR_HIDDEN)
    assert "reading the commit log" not in on_terminal(*slow, "-q", cwd=store.parent, status=Exit.LOSSY)


@pytest.mark.slow
def test_counting_tells_how_far_it_is(store: Path) -> None:
    """And a listing does, when it goes to a file; a terminal sees the listing itself, a pipe may be a pager."""
    slow = ["inspect", "store/commitlog", "--limit-rate", "20K"]
    assert "counting" in on_terminal(*slow, "--count", cwd=store.parent, status=Exit.LOSSY)
    command = [sys.executable, "-m", "rmqtool", *slow, "--json", "--progress", "json"]
    with (store.parent / "out").open("wb") as out:
        done = subprocess.run(command, cwd=store.parent, stdout=out, stderr=subprocess.PIPE, text=True, check=False)
    assert '"progress":"listing"' in done.stderr.replace(" ", "")
    done = subprocess.run(command, cwd=store.parent, capture_output=True, text=True, check=False)
    assert "listing" not in done.stderr


@pytest.mark.one_in(3)
@pytest.mark.slow
@pytest.mark.parametrize("columns", ["1", "2", "7"])
def test_a_terminal_that_is_hardly_one(golden_store: GoldenStore, columns: str) -> None:
    """However narrow it is said to be, there is an answer."""
    shop, other = golden_store("5.3.3-shop"), golden_store("5.3.3-clean")
    for words, status in (
        (["query", str(shop), "--key", "ORD-4", "--topic", "orders"], Exit.OK),
        (["query", str(shop), "--offset", "1060", "--trace"], Exit.OK),
        (["diff", str(shop), str(other)], Exit.FINDINGS),
    ):
        assert "ORD-4" in on_terminal(*words, cwd=shop, status=status, COLUMNS=columns) or words[0] == "diff"
