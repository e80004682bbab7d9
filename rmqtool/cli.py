"""The root of the command line: global options, and errors turned into exit statuses."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

import click

from rmqtool import __version__
from rmqtool.commands.clean import clean
from rmqtool.commands.explain import explain
from rmqtool.commands.export import export
from rmqtool.commands.inspect import inspect
from rmqtool.commands.options import examples_and_statuses, global_options
from rmqtool.commands.query import query
from rmqtool.commands.rebuild import rebuild_cq, rebuild_index
from rmqtool.commands.undo import undo
from rmqtool.commands.verify import verify
from rmqtool.errors import Exit, RmqtoolError, UnreadableError, UsageError
from rmqtool.output import Style, write_error

_NAME = "rmqtool"
_COMPLETE = "_RMQTOOL_COMPLETE"  # click's: a shell asks for the completion of a line


_EPILOG = examples_and_statuses(
    (
        "rmqtool inspect /data/rocketmq/store",
        "rmqtool --json inspect /data/rocketmq/store/commitlog | jq .topic",
        "rmqtool inspect --help",
    ),
    {
        Exit.OK: "done",
        Exit.FINDINGS: "done; there are findings",
        Exit.USAGE: "the command line is wrong",
        Exit.LOSSY: "done, but something could not be read or kept",
        Exit.FAILED: "could not finish: I/O error, permission, unsupported format",
        Exit.IN_USE: "the store is in use by a broker",
        Exit.NOT_A_STORE: "not a RocketMQ store",
        Exit.INTERRUPTED: "interrupted by Ctrl-C; the store is safe",
        Exit.TERMINATED: "terminated; the store is safe",
    },
)


@click.group(epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "RMQTOOL"})
@click.version_option(__version__, prog_name=_NAME, allow_from_autoenv=False)
@global_options
def cli() -> None:
    """Inspect the store of an Apache RocketMQ broker.

    Reading changes nothing: files are opened read-only, and no modification time moves.
    """


cli.add_command(explain)
cli.add_command(inspect)
cli.add_command(clean)
cli.add_command(export)
cli.add_command(query)
cli.add_command(rebuild_cq)
cli.add_command(rebuild_index)
cli.add_command(undo)
cli.add_command(verify)


def main() -> NoReturn:
    """The console script."""
    signal.signal(signal.SIGTERM, _terminate)
    if sys.stdout is None:
        write_error(Style(), _NAME, RmqtoolError("standard output is closed"))
        sys.exit(Exit.FAILED)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # names on disk are UTF-8 whatever the locale says
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    if _COMPLETE in os.environ:
        cli.main(prog_name=_NAME, complete_var=_COMPLETE)
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit status; everything that goes wrong is told here."""
    style = Style()
    try:
        status = _run(style, list(arguments) or ["--help"])
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        _drop_output()  # the reader of a pipe has what it wants
        return Exit.OK
    except SystemExit as stop:
        if isinstance(stop.__context__, BrokenPipeError):  # rich makes an exit of it
            _drop_output()
            return Exit.OK
        raise
    except (KeyboardInterrupt, EOFError, click.Abort):
        return Exit.INTERRUPTED
    except OSError as error:
        _drop_output()
        write_error(Style(color=style.color), _NAME, RmqtoolError(f"cannot write the output: {_reason(error)}"))
        return Exit.FAILED


def _run(style: Style, arguments: list[str]) -> int:
    """Run one command line; what goes wrong with the output itself is the caller's."""
    try:
        with cli.make_context(_NAME, arguments, obj=style) as context:
            return int(cli.invoke(context) or Exit.OK)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        style.json = style.json or "--json" in arguments
        return _tell(style, arguments, UsageError(error.format_message(), hint=_help_hint(error)))
    except RmqtoolError as error:
        return _tell(style, arguments, error)
    except OSError as error:
        if error.filename is None:  # what is read has a name
            raise
        return _tell(style, arguments, UnreadableError(f"cannot read: {_reason(error)}", file=error.filename))


def _tell(style: Style, arguments: Sequence[str], error: RmqtoolError) -> int:
    command = next((argument for argument in arguments if argument in cli.commands), _NAME)
    write_error(style, command, error)
    return error.status


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def _help_hint(error: click.ClickException) -> str | None:
    context = getattr(error, "ctx", None)
    return f"{context.command_path} --help" if context else None


def _drop_output() -> None:
    """Nobody takes what is still to be written; Python must not complain when it closes stdout."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(Exit.TERMINATED)
