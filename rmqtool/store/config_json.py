"""The broker's JSON files in `config/`: fastjson writes whole-number names without quotes (`ConfigManager`)."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar
from weakref import WeakValueDictionary

from rmqtool.base.errors import EndingError, RmqtoolError, UnreadableError, WrongKindError, note_failure
from rmqtool.base.files import InputFile, read_all
from rmqtool.base.paths import is_remote
from rmqtool.formats import fastjson
from rmqtool.formats.java import decode_text
from rmqtool.rules.config_shapes import shape_problem, shape_rules
from rmqtool.rules.versions import FASTJSON_2, OLDEST, Version
from rmqtool.store.lock import lock_holder

_EMPTY = "the file is empty"
_NOTHING: dict[str, Any] = {}  # what the file ``null`` is decoded to: no decoder refuses it
_SPACE = " \t\r\n"
_MAX_SIZE = 256 << 20  # bytes; a broker with a million groups writes less
_PLAIN = bytes(range(0x20, 0x7F)) + b"\t\r\n"
_CONTROLS = bytes(range(0x20))
NO_NAME = re.compile("[\x00-\x1f\ud800-\udfff\ufffd]")  # brokers write no such bytes, and what is not UTF-8
_LARGE = 1 << 20  # bytes
_TRIES, _PAUSE_S = 10, 0.01  # while a broker writes a file
_BARE_NAME = re.compile(r"[{,]\s*-?\d+\s*:")
_STRING_OR_BARE_NAME = re.compile(
    # A string that a cut left open is matched to the end: else each quote in it would be tried as a beginning.
    r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|([{,]\s*)(-?\d+)(?=\s*:)',
    re.DOTALL,
)


@dataclass(frozen=True)
class ConfigFile:
    """The file that a broker would load: itself, or its ``.bak`` when it is missing, empty or cannot be decoded.

    `content` is empty and `path` None when there is neither; `problem` says what is wrong with the file itself,
    `has_bad_backup` that its ``.bak`` is there and cannot be decoded, `is_forbidden` that we may not read the file.
    """

    path: Path | None
    content: dict[str, Any]
    problem: str | None = None
    has_bad_backup: bool = False
    is_forbidden: bool = False

    @property
    def is_backup(self) -> bool:
        """Whether it is the ``.bak`` that is loaded."""
        return self.path is not None and self.path.suffix == ".bak"

    @property
    def before(self) -> dict[str, Any]:
        """What its ``.bak`` holds, where that is not loaded itself: what was in the file before, most often."""
        return {} if self.path is None or self.is_backup else load_config(backup_of(self.path)).content


def backup_of(path: Path) -> Path:
    """What a broker has kept of a file when it wrote the file last."""
    return path.with_name(f"{path.name}.bak")


_Read = TypeVar("_Read")


def load_config(path: Path, version: Version | None = None) -> ConfigFile:
    """Load a config file by the rules of `ConfigManager#load`, as `version` decodes it; without one as any of them."""
    return _settled(path, lambda: _loaded(path, version), lambda file: bool(file.problem) or file.is_backup)


def _settled(path: Path, read: Callable[[], _Read], is_odd: Callable[[_Read], bool]) -> _Read:
    """What is read of a file; again while it is odd and a broker runs, which may just be writing it.

    `MixAll#string2File` deletes a file and its ``.bak`` for a moment, or writes both in place, by release.
    """
    found = read()
    for _ in range(_TRIES):
        if not is_odd(found) or lock_holder(path.parent.parent) is None:
            break
        time.sleep(_PAUSE_S)
        found = read()
    return found


def _loaded(path: Path, version: Version | None) -> ConfigFile:
    content, problem, error = _try_to_decode(path, path.name, version)
    if content is not None:
        return ConfigFile(path, content)
    forbidden, backup = isinstance(error, PermissionError), backup_of(path)
    content, backup_problem, backup_error = _try_to_decode(backup, path.name, version)
    if content is not None:
        return ConfigFile(backup, content, problem, is_forbidden=forbidden)
    below_a_file = isinstance(backup_error, NotADirectoryError)  # where java.io.File#exists says no
    bad = backup_problem not in (None, _EMPTY) and not below_a_file
    forbidden |= isinstance(backup_error, PermissionError)
    return ConfigFile(None, {}, problem or backup_problem, has_bad_backup=bad, is_forbidden=forbidden)


def backup_problem_of(path: Path, version: Version | None = None) -> str | None:
    """Why the ``.bak`` of a file cannot be decoded; None when it can, is missing, or empty as after a first write."""
    _, problem, _ = _settled(path, lambda: _try_to_decode(backup_of(path), path.name, version), lambda it: bool(it[1]))
    return None if problem == _EMPTY else problem


def has_odd_bytes(path: Path) -> bool:
    """Whether a file that can be read has control characters, or what is not UTF-8, in its strings."""
    data = read_all(path, _MAX_SIZE)
    rest = data.translate(None, _PLAIN)
    try:
        is_odd = "\ufffd" in data.decode() if rest else False
    except UnicodeDecodeError:
        return True
    return is_odd or b"\\u00" in data or any(control in rest for control in _CONTROLS)


def is_damaged_name(name: str) -> bool:
    """Whether damage must have changed a name."""
    return NO_NAME.search(name) is not None


def damaged_in(value: object) -> Iterator[str]:
    """The damaged names of members, at any depth."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if is_damaged_name(name):
                yield name
            else:
                yield from damaged_in(inner) if isinstance(inner, dict | list) else ()
    elif isinstance(value, list):
        for inner in value:
            yield from damaged_in(inner)


def read_config_file(path: Path) -> dict[str, Any]:
    """The content of one file, without its ``.bak``; raise RmqtoolError when it is missing or empty."""
    content = _decode(path)
    if content is None:
        raise WrongKindError(_EMPTY, file=path)
    return dict(content)  # callers change tables of it


def _try_to_decode(
    path: Path, name: str, version: Version | None
) -> tuple[dict[str, Any] | None, str | None, BaseException | None]:
    """Content of the config file `name`, or the problem and the error that caused it; all None without the file."""
    try:
        content = _decode(path, version)
    except EndingError:
        raise
    except RmqtoolError as error:
        missing = isinstance(error.__cause__, FileNotFoundError)
        return None, None if missing else error.message, error.__cause__
    if content is None:
        return None, _EMPTY, None
    problem = None if content is _NOTHING else _shape_problem(name, content, version or OLDEST)
    return content if problem is None else None, problem, None


def parse_fastjson(text: str, version: Version | None = None) -> Any:
    """Parse JSON as a release reads it, without one as any of them does; raise ValueError."""
    return _parsed(text, version)[0]


def _parsed(text: str, version: Version | None) -> tuple[Any, bool]:
    """The same, and whether it is plain JSON.

    Most files are JSON but for whole-number names without quotes: what else fastjson takes is tried when that fails.
    """
    try:
        return _parse_json(text), True
    except ValueError as error:
        for second in (False, True) if version is None else (version >= FASTJSON_2,):
            with suppress(ValueError):
                return fastjson.parse(text, second=second), False
        raise error from None


def _parse_json(text: str) -> Any:
    """Parse JSON but for whole-number names without quotes; raise ValueError."""
    has_names = text.lstrip(_SPACE).startswith(("{", "["))  # else there are none to quote, and it may be large
    try:
        return json.loads(_with_quoted_names(text) if has_names else text, parse_constant=_no_constant)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _with_quoted_names(text: str) -> str:
    if _BARE_NAME.search(text) is None:
        return text  # the usual case of many topics, of which every string would be looked at
    return _STRING_OR_BARE_NAME.sub(lambda found: f'{found[1]}"{found[2]}"' if found[2] else found[0], text)


class _Content(dict[str, Any]):
    """The content of a large file, found again as long as anybody has it; `problems` are of its shape, by rules."""

    __slots__ = ("__weakref__", "problems")

    def __init__(self, content: dict[str, Any]) -> None:
        super().__init__(content)
        self.problems: dict[object, str | None] = {}


_large: WeakValueDictionary[tuple[Any, ...], _Content] = WeakValueDictionary()


def _key_of(path: Path) -> tuple[Any, ...] | None:
    """What a large file is known by while nobody writes it; None for a small one, which is decoded each time."""
    try:
        status = os.stat(path) if not is_remote(path) else None
    except OSError as error:
        note_failure(path, error)
        return None
    if status is None or status.st_size < _LARGE:
        return None
    return str(path), status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _decode(path: Path, version: Version | None = None) -> dict[str, Any] | None:
    """The object in a file, None when the file is empty; raise RmqtoolError.

    A file of a hundred thousand topics is decoded once for all checks that ask for it at a time, where every release
    reads it alike.
    """
    key = _key_of(path)
    content = None if key is None else _large.get(key)
    if content is None:
        decoded, is_plain = _decoded(path, version)
        if key is None or decoded is None or not is_plain or key != _key_of(path):  # a broker writes it
            return decoded
        content = _large[key] = _Content(decoded)
    return content


def _shape_problem(name: str, content: dict[str, Any], version: Version) -> str | None:
    if not isinstance(content, _Content):
        return shape_problem(name, content, version)
    rules = name, shape_rules(version)
    if rules not in content.problems:
        content.problems[rules] = shape_problem(name, content, version)
    return content.problems[rules]


def _decoded(path: Path, version: Version | None) -> tuple[dict[str, Any] | None, bool]:
    """The object in a file, None when the file is empty, and whether it is plain JSON; raise RmqtoolError."""
    with InputFile(path) as file:
        if file.size > _MAX_SIZE:
            raise UnreadableError(f"larger than {_MAX_SIZE} bytes", file=path)
        text = decode_text(file.read(0, file.size))
    if not text.strip(_SPACE):
        return None, True
    if not text.strip("\0" + _SPACE):  # as a power failure leaves it: every decoder refuses it
        raise WrongKindError("nothing but zeros", file=path)
    try:
        content, is_plain = _parsed(text, version)
    except ValueError as error:
        raise WrongKindError(f"not JSON: {error}", file=path) from error
    if content is None:
        return _NOTHING, is_plain
    if not isinstance(content, dict):
        raise WrongKindError("a JSON object was expected", file=path)
    return content, is_plain
