"""A finding: one thing that is not as it should be, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from string import Formatter
from types import MappingProxyType
from typing import Any, Literal

from rmqtool.base.times import rfc3339
from rmqtool.base.visible import quote, visible

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


Severity = Literal["info", "warning", "error"]

_PLACE = ("file", "offset", "topic", "queue_id", "queue_offset", "count")


@dataclass(frozen=True)
class Finding:
    """One finding, as every command reports it.

    `code` is stable and dotted; `fault` the number in the fault catalogue; `offset` is in the commit log for codes
    that begin with ``commitlog.`` and in the file otherwise, bytes; `effect` is what the broker does with it;
    `next_command` the one to run next; `count` how many equal ones this one stands for.
    `details` are its facts as typed fields: programs decide by them, never by a sentence.
    """

    code: str
    severity: Severity
    message: str
    effect: str
    next_command: Remedy | None = None
    fault: str | None = None
    file: str | None = None
    offset: int | None = None
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    count: int = 1
    details: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def queue(self) -> str | None:
        """The queue for people, ``orders, queue 3``; the topic where it is about no queue, None without a topic."""
        return self.topic if self.topic is None or self.queue_id is None else f"{self.topic}, queue {self.queue_id}"

    @property
    def remedy(self) -> str | None:
        """The command to run next, as it is shown."""
        return None if self.next_command is None else str(self.next_command)

    @property
    def facts(self) -> dict[str, Any]:
        """Its details, where it is, and how many it stands for: all that its sentence is made of."""
        place = {name: getattr(self, name) for name in _PLACE}
        return {**place, **self.details}

    def standing_for(self, count: int, others: int) -> Finding:
        """The finding as one that stands for `count`, itself included, of `others` more findings."""
        more = f" ({others} more like this)" if others else ""
        return replace(self, message=f"{self.message}{more}", count=count)

    def as_json(self) -> dict[str, Any]:
        """The JSON object of the contract."""
        named = {each.name: getattr(self, each.name) for each in fields(self)}
        return {("remedy" if name == "next_command" else name): value for name, value in named.items()} | {
            "remedy": self.remedy,
            "details": dict(self.details),
        }


def counted(count: int, noun: str) -> str:
    """A number with its noun, as a sentence has it: ``1 message``, ``2 messages``, ``2 entries``."""
    if count == 1:
        return f"{count} {noun}"
    return f"{count} {noun[:-1]}ies" if noun.endswith("ry") else f"{count} {noun}s"


def first_of(texts: Sequence[str], most: int) -> str:
    """The first of some texts, and how many more there are: ``a, b and 3 more``."""
    return ", ".join(texts[:most]) + (f" and {len(texts) - most} more" if len(texts) > most else "")


Says = str | Mapping[str, str]
"""A template, or one for each value of the fact `problem`, "" for all others."""

_NOUNS = re.compile(r"\+?[a-z][a-z -]+(\|[a-z][a-z -]+)?")
_OPTIONAL = re.compile(r"\[([^][]*\{[^][]*)\]")
_NAMED = 4  # names of a list that are shown where it is shortened


class _Filler(Formatter):
    """Fills a template; beside what Python has, nouns are counted and times are written out.

    ``{count:message}`` is ``1 message`` or ``2 messages``, ``{count:child|children}`` has its own plural; a list counts
    its items. An end ``{count:+entry}`` is `` (2 entries)``, nothing for one. ``{when!t}`` is the time of epoch ms,
    ``{names!l}`` a list, ``{names!n}`` its first names, ``{value!v}`` a value as it is stored.
    """

    def convert_field(self, value: Any, conversion: str | None) -> Any:
        """The value as a time, a list, or what is stored."""
        if conversion == "t":
            return rfc3339(value) or value
        if conversion == "l":
            return ", ".join(f"{count} {name}" for name, count in value.items()) if isinstance(value, Mapping) else \
                ", ".join(map(str, value))  # fmt: skip
        if conversion == "n":
            return first_of(value, _NAMED)
        if conversion == "v":
            return "not there" if value is None else repr(visible(value)) if isinstance(value, str) else str(value)
        return super().convert_field(value, conversion)

    def format_field(self, value: Any, format_spec: str) -> str:
        """The value with its noun."""
        if not _NOUNS.fullmatch(format_spec):
            return str(super().format_field(value, format_spec))
        value = len(value) if isinstance(value, Sized) else value
        one, _, several = format_spec.lstrip("+").partition("|")
        text = f"{value} {one if value == 1 else several}" if several else counted(value, one)
        if format_spec.startswith("+"):
            return "" if value == 1 else f" ({text})"
        return text


_FILLER = _Filler()


def filled(says: Says, facts: Mapping[str, Any], parts: Mapping[str, Says] = MappingProxyType({})) -> str:
    """The sentence of a template; raises KeyError where one of its facts is not given.

    What stands in ``[...]`` is left out where one of its facts is not given, None, empty, or a count of nothing.
    `parts` say what a fact means: a word has a template of its own, and so has each item of a list.
    """
    template = says if isinstance(says, str) else says.get(facts.get("problem", "")) or says[""]
    template = _OPTIONAL.sub(lambda found: found[1] if _is_given(found[1], facts) else "", template)
    words = {name: _part(part, facts[name], facts, parts) for name, part in parts.items() if facts.get(name)}
    return _FILLER.vformat(template, (), {**facts, **words})


def _is_given(template: str, facts: Mapping[str, Any]) -> bool:
    fields = [(name, spec) for _, name, spec, _ in _FILLER.parse(template) if name]
    return all(facts.get(name) not in (None, "", []) and (facts[name] or not _NOUNS.fullmatch(spec or ""))
               for name, spec in fields)  # fmt: skip


def _part(says: Says, value: Any, facts: Mapping[str, Any], parts: Mapping[str, Says]) -> str:
    if isinstance(value, str):
        return filled(says[value] if isinstance(says, Mapping) else says, facts)
    if isinstance(value, Sequence):
        texts = [_part(says, each, facts, parts) for each in value]
        return (" and " if isinstance(value[0], str) else "; ").join(texts)
    return filled(says, value, parts)


Treatment = Literal[
    "stop", "access", "restore", "decide", "release", "whole-log", "interrupted", "files", "neutralise", "lose",
    "queues", "kept", "index", "config", "start", "running", "settings", "ignored", "acknowledge", "none", "refused",
]  # fmt: skip
"""How a finding is treated, in the order of a plan.

`stop` the broker first; give `access` to what cannot be read; `restore` what is missing; `decide` what only people
know; name the `release`; have the next start read the `whole-log`; end a run of ours that was `interrupted`; fix
`files`, put dummy records in place of damage (`neutralise`), or of messages that clients get (`lose`), which is done
only when it is asked for by name, rebuild `queues` or `index`, leave queues without a message in the log as they are
(`kept`), fix `config` files: those a repair does; the next `start` fixes it; once the broker is `running`; change
`settings` before an upgrade; settings that are `ignored` can wait; `acknowledge` that something is lost; `none` is
needed; `refused`: another finding says why a start is refused.
"""

Derived = Literal["nothing", "behind-the-farthest", "behind-the-farthest-but-one"]
"""What a start after a clean stop derives from the log: what stands after the farthest unit of all queues, or that
without its first record."""


@dataclass(frozen=True)
class CleanStart:
    """What releases (``4.4.0, 4.5.1 to 4.9.8``, ``5.3.2 and later``) derive after a clean stop, and a sentence."""

    releases: str
    derived: Derived
    text: str


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What is the same in all findings of one code, which are errors unless `severity` says less.

    `treatment` is how it is treated, None for what needs none, or is of another command than verify; where the fact
    `cause` of a finding says otherwise, `treatment_by_cause`. `about` says whether it describes messages, queues and
    index or what is around them; `is_trace` that an unclean stop leaves it, and a start removes it.
    `says` is the template of its sentence (`sentence.filled`), or one for each value of the fact `problem`, "" for
    all others; `parts` are templates of facts that are words or facts themselves, and `gist` that of a shorter
    sentence, without the evidence.
    `fault` is the number of a known fault of brokers, F01 to F59, or None; `effect` the sentence that a finding
    carries; `versions` what some releases do, more exactly; `remedy` the next command, with the fields
    ``{store}``, ``{offset}``, ``{topic}`` and ``{queue_id}``, or None where no command helps; `not_detected` what this
    tool does not see of such a fault, or None. `clean_starts` are what starts after a clean stop derive again; a test
    holds them against the rules of recovery.
    """

    code: str
    fault: str | None = None
    severity: Severity = "error"
    treatment: Treatment | None = None
    treatment_by_cause: Mapping[str, Treatment] = field(default_factory=dict, hash=False)
    about: Literal["messages", "surroundings"] = "messages"
    is_trace: bool = False
    title: str
    what: str
    how: str
    says: Says = field(hash=False)
    parts: Mapping[str, Says] = field(default_factory=dict, hash=False)
    gist: str | None = None
    effect: str
    versions: Mapping[str, str] = field(hash=False)
    repair: str
    remedy: str | None = None
    not_detected: str | None = None
    clean_starts: tuple[CleanStart, ...] = ()

    @property
    def all_versions(self) -> tuple[tuple[str, str], ...]:
        """What releases do, those of `clean_starts` last."""
        starts = ((f"{each.releases}, without the file abort", each.text) for each in self.clean_starts)
        return (*self.versions.items(), *starts)

    def sentence(self, facts: Mapping[str, Any]) -> str:
        """What a finding of this code says, from its facts."""
        return filled(self.says, facts, self.parts)

    def gist_of(self, finding: Finding) -> str:
        """What a finding says without its evidence."""
        return filled(self.gist, finding.facts, self.parts) if self.gist else finding.message

    def treatment_of(self, finding: Finding) -> Treatment:
        """The treatment of one finding of this code; without any, people decide."""
        return self.treatment_by_cause.get(finding.details.get("cause", ""), self.treatment or "decide")
