"""The command that a finding names to run next: one of ours, or one of the system."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rmqtool.base.shell import quote

_STORE, _LOG = "store", "{store}/commitlog "


@dataclass(frozen=True)
class Remedy:
    """A command as a template, such as ``rmqtool repair {store}``, and the words that fill it, quoted for a shell."""

    template: str
    words: Mapping[str, str] = field(default_factory=dict, hash=False)

    @classmethod
    def filled(cls, template: str, known: Mapping[str, Any]) -> Remedy | None:
        """A template with the values of its fields; None where one of them is not known."""
        words = {name: quote(str(value)) for name, value in known.items() if value is not None}
        try:
            template.format_map(words)
        except KeyError:
            return None
        return cls(template, words)

    @classmethod
    def of_system(cls, command: str) -> Remedy:
        """A whole command line, in which nothing is left to fill."""
        return cls("{command}", {"command": command})

    def __str__(self) -> str:
        """The command line, which can be pasted."""
        return self.template.format_map(self.words)

    @property
    def command(self) -> str | None:
        """The name of our command: ``verify``, ``repair``; None for a command of the system."""
        program, *words = self.template.split()
        return words[0] if program == "rmqtool" else None

    @property
    def is_repair(self) -> bool:
        """Whether it repairs the store, which ``--acknowledge`` does not."""
        return self.command == "repair" and "--acknowledge" not in self.template

    def on_store(self, root: Path) -> Remedy:
        """The same command on another store."""
        return replace(self, words={**self.words, _STORE: quote(str(root))})

    def on_log(self, directory: Path, *options: str) -> Remedy:
        """A command on `commitlog/` as one on another directory of the log; others stay as they are."""
        words = " ".join(["{log}", *options, ""])
        log = {**self.words, "log": quote(str(directory))}
        return Remedy(self.template.replace(_LOG, words, 1), log) if _LOG in self.template else self
