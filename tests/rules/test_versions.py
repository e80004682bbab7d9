"""Broker versions."""

from __future__ import annotations

import re

import pytest

from rmqtool.base.errors import UsageError
from rmqtool.rules.versions import (
    EXPIRED_QUEUE_MIN_IS_MAX,
    NEWEST,
    OLDEST,
    SIGNS,
    Version,
    newer_than_known,
    parse_version,
    sorted_signs,
)

_NEXT = NEWEST._replace(patch=NEWEST.patch + 1)  # may be out before this program knows it
_NEXT_MINOR = f"{NEWEST.major}.{NEWEST.minor + 1}"


@pytest.mark.parametrize(
    ("text", "expected", "shown"),
    [
        ("5.3.3", Version(5, 3, 3), "5.3.3"),
        ("v5.3.3", Version(5, 3, 3), "5.3.3"),
        (" 4.9.7\n", Version(4, 9, 7), "4.9.7"),
        ("4.4.0", OLDEST, "4.4.0"),
        ("5.5.0", Version(5, 5, 0), "5.5.0"),
        (str(NEWEST), NEWEST, str(NEWEST)),
        (str(_NEXT), _NEXT, str(_NEXT)),
    ],
)
def test_a_release(text: str, expected: Version, shown: str) -> None:
    """Three numbers, with or without a v, are a release and are shown as one."""
    assert parse_version(text) == expected
    assert str(parse_version(text)) == shown


@pytest.mark.parametrize("text", ["5.3", "v5.3", " 5.3 "])
def test_without_a_patch_the_last_one_counts(text: str) -> None:
    """5.3 has every rule of any 5.3, and none of 5.4."""
    version = parse_version(text)
    assert Version(5, 3, 4) < version < Version(5, 4, 0)
    assert str(version) == "5.3"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5",
        "5.",
        "5.3.",
        "5.3.3.1",
        "5.3.x",
        "5,3",
        "V5.3",
        "-5.3",
        "5.3-SNAPSHOT",
        "5.\N{ARABIC-INDIC DIGIT THREE}",
        "5.1000",
        "new",
    ],
)
def test_what_is_no_version(text: str) -> None:
    """Other text is refused and shown, with an example."""
    with pytest.raises(UsageError, match=r"looks like 5\.3 or 5\.3\.3") as caught:
        parse_version(text)
    assert repr(text) in caught.value.message


@pytest.mark.parametrize("text", ["4.3", "4.3.2", "3.5.8", _NEXT_MINOR, f"{_NEXT_MINOR}.0", "6.0.0", "0.0"])
def test_unknown_versions(text: str) -> None:
    """A version whose rules are not known is refused, and the message says which are."""
    with pytest.raises(UsageError, match=re.escape(f"{text} is not known: {OLDEST} to {NEWEST} are")):
        parse_version(text)


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        *(("5.4.9", "5.4.0 and 5.5.0"), ("4.9.9", "4.9.8 and 5.0.0"), ("5.0.1", "5.0.0 and 5.1.0")),
        *(("4.10.1", "4.9.8 and 5.0.0"), ("4.10", "4.9.8 and 5.0.0"), ("4.4.1", "4.4.0 and 4.5.0")),
    ],
)
def test_releases_that_do_not_exist(text: str, nearest: str) -> None:
    """Their rules would be made up: they are refused with those next to them."""
    with pytest.raises(UsageError, match=rf"there is no release {text}: the nearest are {nearest}"):
        parse_version(text)


def test_a_release_after_this_program() -> None:
    """A patch of the newest minor release may exist by now; it is said whose rules are taken."""
    assert newer_than_known(_NEXT) == f"{_NEXT} is newer than {NEWEST}, whose rules are used for it"
    assert [newer_than_known(parse_version(text)) for text in (str(NEWEST), "5.5", "5.3", "4.4.0")] == [None] * 4


def test_versions_are_ordered_by_number() -> None:
    """4.10 is newer than 4.9, and every rule's release is a known one."""
    assert sorted([Version(5, 0, 0), Version(4, 10, 0), Version(4, 9, 8)]) == [(4, 9, 8), (4, 10, 0), (5, 0, 0)]
    assert OLDEST < EXPIRED_QUEUE_MIN_IS_MAX < NEWEST


def test_signs_are_known_by_name() -> None:
    """Each sign stands under its own name, with a release that is known."""
    assert all(name == sign.name for name, sign in SIGNS.items())
    assert all(OLDEST < sign.since <= NEWEST for sign in SIGNS.values())


def test_the_newest_sign_is_last() -> None:
    """Signs are in the order of their releases, each once."""
    found = sorted_signs([*SIGNS, *SIGNS])
    assert [sign.since for sign in found] == sorted(sign.since for sign in SIGNS.values())
    assert {sign.name for sign in found} == SIGNS.keys()
    assert sorted_signs([]) == []
