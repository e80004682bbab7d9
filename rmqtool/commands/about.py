"""``rmqtool help``, ``rmqtool version`` and ``rmqtool completion``: what the program says of itself."""

from __future__ import annotations

from typing import cast

import click
from click.shell_completion import ShellComplete, get_completion_class

from rmqtool import __version__
from rmqtool.base.errors import Exit
from rmqtool.commands.completion import COMPLETE
from rmqtool.commands.help_page import HelpPage, LazyGroup, examples_and_statuses
from rmqtool.commands.options import global_options
from rmqtool.show.output import Style, write_document, write_text
from rmqtool.show.shapes import Shape, by

_NAME = "rmqtool"
_STATUSES = {Exit.OK: "done", Exit.USAGE: "the command line is wrong"}


@click.command("help", cls=HelpPage, epilog=examples_and_statuses(("rmqtool help", "rmqtool help verify"), _STATUSES))
@click.argument("command", required=False)
@click.pass_context
def help_command(context: click.Context, /, command: str | None) -> Exit:
    """Show the help of a command.

    Without a COMMAND: all commands. The same as --help after it.
    """
    program = context.find_root()
    group = cast(LazyGroup, program.command)
    if command is None:
        write_text(group.get_help(program) + "\n")
        return Exit.OK
    found = group.required(context, command)
    with found.make_context(command, [], parent=program, resilient_parsing=True) as of_command:
        write_text(found.get_help(of_command) + "\n")
    return Exit.OK


class Program(Shape):
    """This program."""

    version: str = by(lambda *_: __version__)  # The version of rmqtool, such as 1.2.3.


@click.command("version", cls=HelpPage, epilog=examples_and_statuses(("rmqtool version",), _STATUSES))
@global_options
@click.pass_obj
def version(style: Style, /) -> Exit:
    """Show the version of rmqtool."""
    if style.json:
        write_document(style, "version", Program.of(None))
    else:
        write_text(f"{_NAME}, version {__version__}\n")
    return Exit.OK


_SHELLS = ('eval "$(rmqtool completion bash)"', "rmqtool completion fish > ~/.config/fish/completions/rmqtool.fish")


@click.command("completion", cls=HelpPage, epilog=examples_and_statuses(_SHELLS, _STATUSES))
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, /, shell: str) -> Exit:
    """Print the script that completes commands in a shell.

    It completes commands, options, files, and the topics and queues of the store on the line.
    """
    kind = cast(type[ShellComplete], get_completion_class(shell))
    write_text(kind(context.find_root().command, {}, _NAME, COMPLETE).source() + "\n")
    return Exit.OK
