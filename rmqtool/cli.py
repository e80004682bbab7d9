"""The root of the command line: global options, and errors turned into exit statuses."""

from __future__ import annotations

import io
import os
import re
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import NoReturn

import click

from rmqtool import __version__
from rmqtool.base.errors import Exit, RmqtoolError, UnreadableError, UsageError, failed_reads, failed_so_far, listen
from rmqtool.base.limits import exhausted, require_memory
from rmqtool.base.visible import quote
from rmqtool.commands.completion import COMPLETE
from rmqtool.commands.ending import end, handle_signals, ignore_signals
from rmqtool.commands.help_page import WIDTH, LazyGroup, examples_and_statuses
from rmqtool.commands.options import global_options
from rmqtool.show.output import Style, note, write_error, write_text
from rmqtool.show.pager import end_paging
from rmqtool.show.progress import answer_signals
from rmqtool.show.times import show_times_in

_NAME = "rmqtool"
_REPORT = "please report it with the traceback; the output above is incomplete"

_READING = "Look (nothing is changed)"
_COPYING = "Back up (the store is only read; the broker may run)"
_WRITING = "Repair (all but salvage and convert write to the store: stop the broker first)"
_SENDING = "Send (to live brokers, over the network)"
_SECTIONS = {
    _READING: {
        "status": ("Show in five lines what an operator asks first.", "rmqtool.commands.status:status"),
        "inspect": ("Show what a store contains, or one part of it.", "rmqtool.commands.inspect:inspect"),
        "verify": ("Check every message, queue entry and index entry.", "rmqtool.commands.verify:verify"),
        "query": ("Find a message: where it is and who has read it.", "rmqtool.commands.query:query"),
        "sql": ("Query stores with SQL.", "rmqtool.commands.sql:sql"),
        "pending": ("Show what a stopped broker still has to deliver.", "rmqtool.commands.pending:pending"),
        "report": ("Write a report about a store as one HTML page.", "rmqtool.commands.report:report"),
        "bundle": ("Pack what a support case needs into one archive.", "rmqtool.commands.bundle:bundle"),
        "diff": ("Compare a store with its replica or its backup.", "rmqtool.commands.diff:diff"),
        "export": ("Write messages to Parquet, CSV or NDJSON files.", "rmqtool.commands.export:export"),
        "explain": ("Explain a finding, and how to repair it.", "rmqtool.commands.explain:explain"),
    },
    _COPYING: {
        "copy": ("Copy a store, also of a running broker, or restore one.", "rmqtool.commands.copy:copy"),
    },
    _WRITING: {
        "repair": ("Repair a store by the plan that verify prints.", "rmqtool.commands.repair:repair"),
        "rebuild-cq": ("Rebuild the consume queues from the commit log.", "rmqtool.commands.rebuild:rebuild_cq"),
        "rebuild-index": ("Rebuild the index files from the commit log.", "rmqtool.commands.rebuild:rebuild_index"),
        "salvage": ("Save intact or selected messages to a new store.", "rmqtool.commands.salvage:salvage"),
        "convert": ("Convert a DLedger store to a plain one.", "rmqtool.commands.convert:convert"),
        "cut": ("Cut off the log of a store at an offset, in place.", "rmqtool.commands.cut:cut"),
        "undo": ("Undo the last repair of a store.", "rmqtool.commands.undo:undo"),
        "clean": ("Preview or delete expired files; forecast the disk.", "rmqtool.commands.clean:clean"),
    },
    _SENDING: {
        "replay": ("Send messages of a store to a live cluster.", "rmqtool.commands.replay:replay"),
    },
    "About rmqtool": {
        "help": ("Show the help of a command.", "rmqtool.commands.about:help_command"),
        "version": ("Show the version of rmqtool.", "rmqtool.commands.about:version"),
        "completion": (
            "Print the script that completes commands in a shell.",
            "rmqtool.commands.about:completion",
        ),
    },
}

_EXTRA = re.compile(r"unexpected extra argument \((.+)\)")
_TYPE_NAME = re.compile(r"is not a valid integer(?: range)?\.?$")
_COMMANDS = [name for section in _SECTIONS.values() for name in section]
_WITH_FINDINGS = frozenset({"verify", "status", "report", "repair"})
"""Commands whose findings include what was not read."""
_PLUGINS = ("verify", "inspect", "status")  # have --format nagios
_STOPPED: Mapping[int, str] = {
    Exit.HUNG_UP: "ended by SIGHUP",
    Exit.INTERRUPTED: "interrupted",
    Exit.TERMINATED: "terminated, perhaps by a timeout: --time-limit stops in time",
}
_LIGHT = ("explain", "help", "version", "completion")  # they load no library that takes memory

_EPILOG = examples_and_statuses(
    (
        "rmqtool inspect /data/rocketmq/store",
        "rmqtool --json inspect /data/rocketmq/store/commitlog | jq .topic",
        "rmqtool inspect --help",
    ),
    {
        Exit.OK: "done",
        Exit.FINDINGS: "done; there are findings, or nothing was found",
        Exit.USAGE: "the command line is wrong",
        Exit.LOSSY: "done, but something could not be read or kept",
        Exit.FAILED: "could not finish: I/O error, permission, unknown format, memory",
        Exit.IN_USE: "the store is in use by a broker",
        Exit.NOT_A_STORE: "not a RocketMQ store",
        Exit.HUNG_UP: "the terminal has closed; the store is safe",
        Exit.INTERRUPTED: "interrupted by Ctrl-C; the store is safe",
        Exit.TERMINATED: "terminated; the store is safe",
    },
)


@click.group(
    cls=LazyGroup,
    sections=_SECTIONS,
    epilog=_EPILOG,
    context_settings={
        "auto_envvar_prefix": "RMQTOOL",
        "max_content_width": WIDTH,
    },
)
@click.version_option(__version__, "-V", "--version", prog_name=_NAME, allow_from_autoenv=False)
@global_options
@click.pass_context
def cli(context: click.Context) -> None:
    """Inspect, verify, repair and export the store of an Apache RocketMQ broker.

    Reading changes nothing: files are opened read-only, and no modification time moves. A store that rmqtool.toml names
    is @NAME.
    """
    if context.invoked_subcommand not in _LIGHT:
        require_memory()


def main() -> NoReturn:
    """The console script."""
    handle_signals()
    answer_signals()
    if sys.stdout is None:
        write_error(Style(), _NAME, RmqtoolError("standard output is closed"))
        sys.exit(Exit.FAILED)
    if isinstance(sys.stdout.buffer, io.RawIOBase):  # PYTHONUNBUFFERED: writes that a signal interrupts are cut
        sys.stdout = os.fdopen(sys.stdout.fileno(), "w", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # names on disk are UTF-8 whatever the locale says
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    if COMPLETE in os.environ:
        cli.main(prog_name=_NAME, complete_var=COMPLETE)
    style = Style()
    status: str | int | None
    try:
        status = run(sys.argv[1:], style)
    except KeyboardInterrupt:  # in the moment when it returns
        status = Exit.INTERRUPTED
    except SystemExit as stop:
        status = stop.code
    except Exception as fault:  # noqa: BLE001 - Python would exit with 1, which means findings, or no hit
        traceback.print_exc()
        status = _report(style, sys.argv[1:], RmqtoolError(f"a bug in rmqtool: {fault!r}", hint=_REPORT))
    finally:
        ignore_signals()
    end(status)


def run(arguments: Sequence[str], style: Style | None = None) -> int:
    """Run one command line and return its exit status; everything that goes wrong is reported here."""
    style = style or Style()
    show_times_in(None)
    listen(lambda text: None if style.quiet else note(text))
    try:
        return _checked(style, arguments)
    finally:
        end_paging()


def _checked(style: Style, arguments: Sequence[str]) -> int:
    """Run one command line, and report what goes wrong with its output."""
    style.words = tuple(arguments)
    try:
        with failed_reads():
            status = _with_unread(style, _run(style, list(arguments) or ["--help"]))
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        _drop_output()  # the reader of a pipe has what it wants
        return Exit.OK
    except SystemExit as stop:
        if isinstance(stop.__context__, BrokenPipeError):  # rich makes an exit of it
            _drop_output()
            return Exit.OK
        why = next((text for code, text in _STOPPED.items() if code == stop.code), None)
        unknown = None if why is None else _unknown(arguments, why)
        if unknown is None:
            raise
        return unknown
    except (KeyboardInterrupt, EOFError, click.Abort):
        unknown = _unknown(arguments, _STOPPED[Exit.INTERRUPTED])
        return Exit.INTERRUPTED if unknown is None else unknown
    except OSError as error:
        _drop_output()
        message = f"standard output cannot be written: {_reason(error)}"
        write_error(Style(color=style.color), _NAME, RmqtoolError(message))
        return Exit.FAILED


def _with_unread(style: Style, status: int) -> int:
    """The exit status, which is not OK if a read failed, even one that was not needed; failed reads are shown.

    They are also shown if nothing was found: a message may be in a file that could not be read.
    """
    is_not_found = status == Exit.FINDINGS and _command_in(style.words) not in _WITH_FINDINGS
    if status != Exit.OK and not is_not_found:
        return status
    failed = failed_so_far()
    for error in failed:
        if style.json and style.lines_begun:
            write_error(style, _NAME, error)
        else:
            note(str(error))  # the document of a program is complete by now
    return Exit.LOSSY if failed and not is_not_found else status


def _run(style: Style, arguments: list[str]) -> int:
    """Run one command line; what goes wrong with the output itself is the caller's."""
    try:
        with cli.make_context(_NAME, arguments, obj=style) as context:
            return int(cli.invoke(context) or Exit.OK)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        style.json = style.json or "--json" in arguments
        return _report(style, arguments, UsageError(_words_of(error), hint=_help_hint(error)))
    except RmqtoolError as error:
        return _report(style, arguments, error)
    except (MemoryError, ImportError, RuntimeError, OSError) as error:
        told = exhausted(error)
        if told is None and isinstance(error, OSError) and error.filename is not None:  # what is read has a name
            told = UnreadableError(f"cannot read: {_reason(error)}", file=error.filename)
        if told is None:
            raise
        return _report(style, arguments, told)


def _report(style: Style, arguments: Sequence[str], error: RmqtoolError) -> int:
    status = _unknown(arguments, str(error))
    if status is not None:
        return status
    write_error(style, _command_in(arguments), error)
    return error.status


def _command_in(arguments: Sequence[str]) -> str:
    return next((argument for argument in arguments if argument in _COMMANDS), _NAME)


def _unknown(arguments: Sequence[str], why: str) -> int | None:
    """The status of a plug-in that could not answer, once its line says why; None where none was asked for."""
    if not _is_plugin(_command_in(arguments), arguments):
        return None
    from rmqtool.show.monitoring import unknown_answer

    answer = unknown_answer(why)
    write_text(answer.text)
    return answer.status


def _is_plugin(command: str, arguments: Sequence[str]) -> bool:
    """Whether a monitoring plug-in was asked for, whose statuses are 0 to 3, and which always answers in one line."""
    if command not in _PLUGINS or "--json" in arguments:
        return False
    before = ("", *arguments)
    given = [word for last, word in zip(before, arguments, strict=False) if last == "--format"]
    given += [word.removeprefix("--format=") for word in arguments if word.startswith("--format=")]
    return (given[-1] if given else os.environ.get(f"{_NAME.upper()}_{command.upper()}_FORMAT")) == "nagios"


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def _words_of(error: click.ClickException) -> str:
    """What click says, without the names of its types."""
    return _TYPE_NAME.sub("is not a whole number", error.format_message())


_MEANT = {"copy": "--output", "query": "--key", "export": "--output", "salvage": "--output", "convert": "--output"}
"""What a second argument of a command is for somebody who guesses."""


def _help_hint(error: click.ClickException) -> str | None:
    context = getattr(error, "ctx", None)
    if not context:
        return None
    extra = _EXTRA.search(error.message)
    meant = _MEANT.get(context.command.name or "")
    if extra and meant:
        return f"{context.command_path} STORE {meant} {quote(extra[1])}"
    return f"{context.command_path} --help"


def _drop_output() -> None:
    """Nobody takes what is still to be written; Python must not complain when it closes stdout."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
