"""The root of the command line: global options, and errors turned into exit statuses."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

import click

from rmqtool import __version__
from rmqtool.commands.inspect import inspect
from rmqtool.commands.options import global_options
from rmqtool.errors import Exit, RmqtoolError, UnreadableError, UsageError
from rmqtool.output import Style, write_error

_NAME = "rmqtool"


@click.group(context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "RMQTOOL"})
@click.version_option(__version__, prog_name=_NAME)
@global_options
def cli() -> None:
    """Inspect and repair the store of an Apache RocketMQ broker.

    Reading changes nothing: files are opened read-only, and no modification time moves.
    """


cli.add_command(inspect)


def main() -> NoReturn:
    """The console script."""
    signal.signal(signal.SIGTERM, _terminate)
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit status; everything that goes wrong is told here."""
    style = Style()
    try:
        status = cli.main(list(arguments), prog_name=_NAME, standalone_mode=False, obj=style)
        sys.stdout.flush()
        return int(status or Exit.OK)
    except BrokenPipeError:
        return _reader_is_gone()
    except (KeyboardInterrupt, click.Abort):
        return Exit.INTERRUPTED
    except click.ClickException as error:
        style.json = style.json or "--json" in arguments
        return _tell(style, arguments, UsageError(error.format_message(), hint=_help_hint(error)))
    except RmqtoolError as error:
        return _tell(style, arguments, error)
    except OSError as error:
        return _tell(style, arguments, UnreadableError(str(error)))


def _tell(style: Style, arguments: Sequence[str], error: RmqtoolError) -> int:
    command = next((argument for argument in arguments if argument in cli.commands), _NAME)
    try:
        write_error(style, command, error)
        sys.stdout.flush()
    except BrokenPipeError:
        _reader_is_gone()
    return error.status


def _help_hint(error: click.ClickException) -> str | None:
    context = getattr(error, "ctx", None)
    return f"{context.command_path} --help" if context else None


def _reader_is_gone() -> int:
    """The reader of a pipe has what it wants; Python must not complain when it closes stdout."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return Exit.OK


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(Exit.TERMINATED)


if __name__ == "__main__":
    main()
