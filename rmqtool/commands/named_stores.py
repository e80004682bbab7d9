"""Stores by name: ``@orders-a`` on a command line is a store of the file `rmqtool.toml`, with what else it needs.

The file is in the working directory, or in ``~/.config/rmqtool``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from rmqtool.base.errors import RmqtoolError, UsageError
from rmqtool.base.times import parse_zone
from rmqtool.findings.finding import first_of
from rmqtool.rules.versions import parse_version

SIGN = "@"
FILE = "rmqtool.toml"

_STORES, _PATH, _CONF = "stores", "path", "broker_conf"
_TEXTS = (_PATH, "broker_version", _CONF, "time_zone", "memory", "limit_rate")
_SETTINGS = (*_TEXTS, "jobs")
_OTHERS = {"release": "broker_version", "version": "broker_version", "zone": "time_zone", "conf": _CONF, "store": _PATH,
           "directory": _PATH, "root": _PATH}  # fmt: skip
_SHOWN = 20  # names in a message


@dataclass(frozen=True)
class StoreEntry:
    """A store of the file: its path, as a command takes it, and its options by their names."""

    path: str
    options: Mapping[str, Any]


def store_of(word: str) -> tuple[StoreEntry, str]:
    """The store that a word such as ``@orders-a/commitlog`` names, and what follows its name; raises UsageError."""
    name, slash, rest = word.removeprefix(SIGN).partition("/")
    files = _files()
    for file, content in files:
        if name in content[_STORES]:
            return _entry(file, content, name), slash + rest
    places = " or ".join(str(place) for place in _places())
    directory = f"a directory of that name is ./{word}"
    if not files:
        raise UsageError(f"no store {SIGN}{name}: there is no {FILE}", hint=f"it would be {places}; {directory}")
    names = sorted(name for _, content in files for name in content[_STORES])
    near = get_close_matches(name, names)
    known = f"did you mean {' or '.join(SIGN + each for each in near)}?" if near else _known(names)
    raise UsageError(f"no store {SIGN}{name}", file=files[0][0], hint=f"{known}; {directory}")


def names() -> list[str]:
    """The names of all stores, for the completion of a word; none where a file cannot be read."""
    try:
        return sorted({SIGN + name for _, content in _files() for name in content[_STORES]})
    except RmqtoolError:
        return []


def _known(names: list[str]) -> str:
    shown = first_of([SIGN + each for each in names], _SHOWN)
    return f"there are {shown}" if names else f"it has no table [{_STORES}.NAME]"


def _places() -> Iterator[Path]:
    yield Path(FILE)
    home = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    yield Path(home, "rmqtool", FILE).expanduser()


def _files() -> list[tuple[Path, dict[str, Any]]]:
    """The files that there are, each with its content, whose stores are tables."""
    found = []
    for place in _places():
        try:
            text = place.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise UsageError(f"cannot be read: {(error.strerror or str(error)).lower()}", file=place) from error
        found.append((place, _parsed(place, text)))
    return found


def _parsed(place: Path, data: bytes) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        content = tomllib.loads(data.decode())
    except UnicodeDecodeError as error:
        raise UsageError(f"is not UTF-8 at byte {error.start}", file=place) from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"is not TOML: {error}", file=place) from error
    stores = content.setdefault(_STORES, {})
    if not isinstance(stores, dict) or not all(isinstance(each, dict) for each in stores.values()):
        raise UsageError(f"stores are tables: [{_STORES}.NAME]", file=place)
    return content


def _entry(file: Path, content: Mapping[str, Any], name: str) -> StoreEntry:
    """The settings of one store over those of all; raises UsageError for what is not known or not right."""
    where = f"[{_STORES}.{name}]"
    of_all = _underscored({key: value for key, value in content.items() if key != _STORES})
    of_store = _underscored(content[_STORES][name])
    for place, settings in (("above the stores", of_all), (where, of_store)):
        for key, value in settings.items():
            _check(file, place, key, value)
    if _PATH in of_all:
        raise UsageError(f"above the stores: {_PATH} is of one store", file=file)
    settings = {**of_all, **of_store}
    if _PATH not in settings:
        raise UsageError(f"{where}: {_PATH} is missing, the directory of the store", file=file)
    if _CONF in settings:
        settings[_CONF] = _from_file(file, settings[_CONF])
    return StoreEntry(_from_file(file, settings.pop(_PATH)), settings)


def _underscored(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as options are spelt are settings, too: ``broker-version``."""
    return {key.replace("-", "_"): value for key, value in settings.items()}


def _check(file: Path, place: str, key: str, value: object) -> None:
    if key not in _SETTINGS:
        near = [_OTHERS[key]] if key in _OTHERS else get_close_matches(key, _SETTINGS)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(_SETTINGS)}"
        raise UsageError(f"{place}: no setting {key}", file=file, hint=hint)
    is_right = isinstance(value, str) if key in _TEXTS else type(value) is int
    if not is_right:
        kind = "a text" if key in _TEXTS else "a whole number"
        raise UsageError(f"{place}: {key} is {kind}, not {value!r}", file=file)
    read = {"broker_version": parse_version, "time_zone": parse_zone}.get(key)
    try:
        if read:
            read(str(value))
    except (RmqtoolError, ValueError) as error:
        raise UsageError(f"{place}: {key}: {error}", file=file) from error


def _from_file(file: Path, path: str) -> str:
    """A path as the command gets it; one that is not absolute is seen from the directory of the file."""
    return path if "://" in path else str(file.parent / Path(path).expanduser())
