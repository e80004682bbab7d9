"""Decoders: what they get, what is made of their answers, and that none of them stops, hangs or outlives a run."""

from __future__ import annotations

import base64
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqtool.base import child_process
from rmqtool.base import decoders as decoder_commands
from rmqtool.base.child_process import ChildProcess
from rmqtool.base.decoders import MAX_TEXT, Decoded, Decoder, decoder_of, open_decoder
from rmqtool.base.errors import UsageError
from tests.decoding import assert_gone, install_decoders, pids_in

DETAILS = {"topic": "orders", "queue_offset": 3, "tags": "red", "properties": {"KEYS": "k1"}}


def sh(script: str) -> str:
    """The command that runs a script, which has no single quotes."""
    return f"sh -c '{script}'"


def answers(decoder: Decoder, *bodies: bytes, in_peace: bool = True) -> list[Decoded]:
    """What a new process, or function, makes of the bodies."""
    decoding = open_decoder(decoder)
    try:
        return list(decoding.decode((body, DETAILS) for body in bodies))
    finally:
        decoding.close(in_peace=in_peace)


def decoded(text: str, *bodies: bytes) -> list[Decoded]:
    return answers(decoder_of(text), *bodies)


@pytest.fixture(autouse=True)
def _time_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is to end by itself may be kept from it by others for longer than a second."""
    monkeypatch.setattr(child_process, "_END_SECONDS", 60.0)


@pytest.fixture
def impatient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Commands have a fifth of a second, from when their numbers are in `pids`."""
    pids, start = tmp_path / "pids", decoder_commands._started

    def started(decoder: Decoder) -> ChildProcess:
        before = pids.stat().st_size
        child = start(decoder)
        while pids.stat().st_size == before:
            time.sleep(0.001)
        return child

    pids.touch()
    monkeypatch.setattr(decoder_commands, "_started", started)
    monkeypatch.setattr(decoder_commands, "ANSWER_SECONDS", 0.2)
    begin = time.monotonic()
    yield
    assert time.monotonic() - begin < 30


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(install_decoders(tmp_path))


@pytest.mark.parametrize(
    ("command", "body", "text"),
    [
        ("tr a-z A-Z", b"a\n\nb", "A\n\nB"),
        ("cat", b"one\n\n", "one\n"),
        ("cat", "état 订单".encode(), "état 订单"),
        ("cat", b"", ""),
        ("true", b"x" * (1 << 20), ""),
        ("cat", b"x" * (1 << 20), "x" * (1 << 20)),
        (sh("cat; echo warning >&2"), b"body", "body"),
        (sh("cat; exec >&- 2>&-"), b"body", "body"),
    ],
)
def test_the_output_of_a_command_is_the_text(command: str, body: bytes, text: str) -> None:
    """All of it but one line end; none is a text too, and who reads nothing may."""
    assert decoded(command, body) == [Decoded(text)]


@pytest.mark.parametrize(
    ("command", "error"),
    [
        ("false", "exit status 1"),
        (sh('echo text; echo first >&2; echo " why" >&2; echo >&2; exit 7'), "exit status 7: why"),
        (sh("kill -9 $$"), "ended by signal 9"),
        (sh('echo x | tr x "\\377"'), "the decoder's text is not UTF-8"),
        ("yes", "more than 16 MiB of text"),
        (sh('head -c 9999 /dev/zero | tr "\\0" x >&2; exit 1'), "exit status 1: " + 500 * "x"),
    ],
)
def test_a_command_that_fails(command: str, error: str) -> None:
    """The reason is one short line; each body is tried."""
    assert decoded(command, b"one", b"two") == 2 * [Decoded(error=error)]


@pytest.mark.parametrize("kind", ["", "lines:"])
@pytest.mark.parametrize("last", ["wait", "exec >&-; wait"])
@pytest.mark.usefixtures("impatient")
def test_a_command_that_hangs(kind: str, last: str, tmp_path: Path) -> None:
    """It is ended with its children, started again for the next body, and given up after the third."""
    decoder = decoder_of(f"{kind}{sh(f'sleep 60 & echo $! >> {tmp_path}/pids; {last}')}")
    *silent, given_up = answers(decoder, *map(bytes, range(4)))
    assert all("0.2 s" in str(each.error) or "closed its output" in str(each.error) for each in silent)
    if not (kind and "exec" in last):
        assert silent == 3 * [Decoded(error="no answer within 0.2 s; the decoder was ended")]
        assert given_up.error == decoder.health.given_up == "stopped: 3 times no answer within 0.2 s"
        assert len(pids_in(tmp_path / "pids")) == 3
    assert_gone(pids_in(tmp_path / "pids"))


def test_what_a_command_leaves_running_ends_with_it(tmp_path: Path) -> None:
    """Also where the command itself has ended long before."""
    script = f"sleep 60 >/dev/null 2>&1 & echo $! > {tmp_path}/pids; echo text"
    assert decoded(sh(script), b"") == [Decoded("text")]
    assert_gone(pids_in(tmp_path / "pids"))


@pytest.mark.usefixtures("impatient")
def test_what_a_command_leaves_running_has_its_output(tmp_path: Path) -> None:
    """Its end is waited for, as that of the command; it has the same time."""
    script = f"sleep 60 2>&1 & echo $! > {tmp_path}/pids; echo text"
    assert decoded(sh(script), b"") == [Decoded(error="no answer within 0.2 s; the decoder was ended")]
    assert_gone(pids_in(tmp_path / "pids"))


@pytest.mark.slow
def test_one_process_answers_all_bodies_in_order() -> None:
    """Each is a line of base64; more are sent than its pipe holds, and it need not wait for the last one."""
    bodies = [b"", b"\xff\n", *(b"%d" % number * 5000 for number in range(40))]
    found = decoded("lines:" + sh('while read -r line; do echo $$ "$line"; done'), *bodies)
    pids, lines = zip(*(str(answer.text).split(" ", 1) for answer in found), strict=True)
    assert lines == tuple(base64.b64encode(body).decode() for body in bodies)
    assert len(set(pids)) == 1


def test_answers_come_while_bodies_do() -> None:
    """A log that is followed has no last body: what was given is answered before more is asked for."""
    decoding = open_decoder(decoder_of("lines:" + sh('while read -r line; do echo "<$line>"; done')))
    for text in ("<YQ==>", "<Yg==>"):
        body = base64.b64decode(text[1:-1])
        assert list(decoding.decode([(body, {})])) == [Decoded(text)]
    decoding.close(in_peace=True)
    assert not decoding.out_of_step


def test_lines_that_are_no_text() -> None:
    """Empty or not UTF-8: the others are decoded."""
    script = 'read a; echo one; read a; echo; read a; printf "\\377\\n"; while read -r a; do echo two; done'
    assert decoded(f"lines:{sh(script)}", b"1", b"2", b"3", b"4") == [
        Decoded("one"),
        Decoded(error="the decoder answered with an empty line"),
        Decoded(error="the decoder's text is not UTF-8"),
        Decoded("two"),
    ]


def test_a_process_that_ends_is_started_anew(tmp_path: Path) -> None:
    """Only the body that it has not answered is not decoded; one that ends after its last answer is well."""
    script = f"echo $$ >> {tmp_path}/pids; read a; echo $a; read a; echo $a; echo tired >&2; exit 5"
    decoder = decoder_of(f"lines:{sh(script)}")
    missing = Decoded(error="the decoder ended before it answered: exit status 5: tired")
    assert answers(decoder, *36 * [b"1"]) == 12 * [Decoded("MQ=="), Decoded("MQ=="), missing]
    assert len(pids_in(tmp_path / "pids")) == 12
    assert decoder.health.given_up is None


def test_a_process_that_always_ends_is_given_up() -> None:
    """After ten times without an answer no process is started any more."""
    decoder = decoder_of(f"lines:{sh('echo broken >&2; exit 3')}")
    found = answers(decoder, *12 * [b"x"])
    assert found[:10] == 10 * [Decoded(error="the decoder ended before it answered: exit status 3: broken")]
    reason = "stopped: the decoder ended 10 times without an answer: exit status 3: broken"
    assert found[10:] == 2 * [Decoded(error=reason)]
    assert decoder.health.given_up == reason
    assert answers(decoder, b"later") == [Decoded(error=reason)]


@pytest.mark.parametrize("script", ["while read -r a; do echo a; echo b; done", "cat; echo more"])
def test_more_lines_than_bodies(script: str) -> None:
    """Texts may belong to other bodies: that is said, whether the line came early or at the end."""
    decoding = open_decoder(decoder_of(f"lines:{sh(script)}"))
    assert len([each.text for each in decoding.decode([(b"1", {}), (b"2", {})])]) == 2
    decoding.close(in_peace=True)
    assert decoding.out_of_step


def test_no_body_is_decoded_behind_a_line_too_many() -> None:
    decoder = decoder_of("lines:" + sh('read a; printf "a\\nb\\n"; cat'))
    decoding = open_decoder(decoder)
    first, second = (list(decoding.decode([(body, {})])) for body in (b"1", b"2"))
    decoding.close(in_peace=True)
    reason = "stopped: the decoder wrote more lines than it was given"
    assert (first, second) == ([Decoded("a")], [Decoded(error=reason)])
    assert decoding.out_of_step


WRITE = f"{sys.executable} -ISc"


@pytest.mark.parametrize("command", ["cat /dev/zero", f"{WRITE} 'print({MAX_TEXT + 1} * \"x\")'"])
def test_a_line_that_is_too_long(command: str) -> None:
    """With an end or without one; it is not read to the time limit."""
    before = time.process_time()
    assert decoded(f"lines:{command}", b"1") == [Decoded(error="more than 16 MiB of text")]
    assert time.process_time() - before < 2


def test_a_line_that_is_just_short_enough() -> None:
    (found,) = decoded(f"lines:{WRITE} 'print({MAX_TEXT} * \"x\")'", b"1")
    assert len(found.text or "") == MAX_TEXT


def test_an_endless_answer_is_not_read() -> None:
    """What nobody asked for stays where it is, but for some pieces, also at the end."""
    decoding = open_decoder(decoder_of("lines:yes"))
    assert [each.text for each in decoding.decode((b"x", {}) for _ in range(100))] == 100 * ["y"]
    before = time.process_time()
    decoding.close(in_peace=True)
    assert time.process_time() - before < 0.3
    assert decoding.out_of_step


@pytest.mark.parametrize("in_peace", [True, False])
def test_a_process_ends_when_no_body_is_left(in_peace: bool, tmp_path: Path) -> None:
    """Its input ends, and it may finish what it does; after an error it is ended at once."""
    script = f"sleep 60 >&2 & echo $$ $! > {tmp_path}/pids; cat; echo end > {tmp_path}/end"
    assert answers(decoder_of(f"lines:{sh(script)}"), b"x", in_peace=in_peace) == [Decoded("eA==")]
    assert_gone(pids_in(tmp_path / "pids"))
    assert (tmp_path / "end").exists() == in_peace


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("decode-order", "orders 3 k1: 4"),
        ("as-dict", '{"size": 4, "tags": "red", "état": [null]}'),
        ("as-list", "[4]"),
    ],
)
def test_a_function_of_a_package(name: str, text: str) -> None:
    """It gets the body and what is known of the message; an object is JSON in one line."""
    assert decoded(name, b"body") == [Decoded(text)]


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("nothing", "the decoder returned None"),
        ("number", "the decoder returned neither text nor dict nor list: int"),
        ("half", "the decoder returned half of a surrogate pair, which is not text"),
        ("long", "more than 16 MiB of text"),
        ("ending", "SystemExit: 3"),
        ("not-json", "TypeError: Object of type set is not JSON serializable"),
        ("failing", "ValueError: first line second line" + 478 * "x"),
    ],
)
def test_a_function_that_fails(name: str, error: str) -> None:
    assert decoded(name, b"body") == [Decoded(error=error)]


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("text", "error", "hint"),
    [
        ("decode-ordr", "no decoder and no command is named 'decode-ordr'", "did you mean decode-order?"),
        ("lines:no-such-command -x", "is named 'no-such-command'", "installed decoders: absent, "),
        ("", "a decoder is a command or a name", "for example: --decoder 'lines:python3 decode.py'"),
        ("lines:", "a decoder is a command or a name", ""),
        ("cat 'a", "cannot be split into words: No closing quotation", ""),
        ("cat \0", "a decoder is a command or a name", ""),
        ("absent", "the decoder absent cannot be loaded: ModuleNotFoundError: No module named 'not_installed'", ""),
        ("missing", "the decoder missing cannot be loaded: AttributeError: ", ""),
        ("constant", "the decoder constant cannot be loaded: it is not a function", ""),
    ],
)
def test_what_is_no_decoder(text: str, error: str, hint: str) -> None:
    """It is refused before anything is read, with the nearest name or all that there are."""
    with pytest.raises(UsageError) as caught:
        decoder_of(text)
    assert error in str(caught.value)
    assert hint in (caught.value.hint or "")


def test_without_packages_a_command_is_named_alone() -> None:
    with pytest.raises(UsageError) as caught:
        decoder_of("no-such-command")
    assert caught.value.hint == "installed decoders: none"


def test_a_command_that_cannot_be_started(tmp_path: Path) -> None:
    """It is there, but no program of this machine: a sentence, not a traceback."""
    program = tmp_path / "decode"
    program.write_bytes(b"\x7fELF")
    program.chmod(0o755)
    with pytest.raises(UsageError, match=r"the decoder .*/decode cannot be started: exec format error"):
        decoded(str(program), b"x")
