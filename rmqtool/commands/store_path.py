"""The argument STORE: a directory of this machine, or where a command only reads, a URI of another one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from rmqtool.base.errors import RmqtoolError, UsageError
from rmqtool.base.paths import is_remote, path_of

_HINT = "copy the store to this machine first; inspect, verify, query and export read it where it is"


class StorePath(click.Path):
    """A store or a place in one; a URI of another machine is refused with a sentence, unless `may_be_remote`."""

    def __init__(self, *, may_be_remote: bool = False) -> None:
        super().__init__(path_type=Path)
        self._may_be_remote = may_be_remote

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path that an argument means."""
        try:
            path = path_of(value)
        except RmqtoolError as error:
            self.fail(error.message, param, ctx)
        if not is_remote(path):
            return super().convert(path, param, ctx)
        if not self._may_be_remote:
            command = ctx.info_name if ctx else "this command"
            raise UsageError(f"{command} works on stores of this machine only", file=path, hint=_HINT)
        return path
