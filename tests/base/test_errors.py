"""The exception tree and its exit statuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtool.base import errors
from rmqtool.base.errors import EndingError, Exit, RmqtoolError

STATUSES = {
    "UsageError": (2, "usage"),
    "UnreadableError": (4, "unreadable"),
    "UnsupportedError": (4, "unsupported"),
    "WrongKindError": (4, "wrong-kind"),
    "UnwritableError": (4, "unwritable"),
    "ExhaustedError": (4, "exhausted"),
    "ChangedError": (4, "changed"),
    "UnreachableError": (4, "unreachable"),
    "StoreInUseError": (5, "in-use"),
    "NotAStoreError": (6, "not-a-store"),
}


def test_exit_statuses_are_those_promised() -> None:
    """Numbers and names are what scripts rely on."""
    assert {status.label: int(status) for status in Exit} == {
        "ok": 0,
        "findings": 1,
        "usage": 2,
        "lossy": 3,
        "failed": 4,
        "in-use": 5,
        "not-a-store": 6,
        "hung-up": 129,
        "interrupted": 130,
        "terminated": 143,
    }


def test_every_error_has_its_status_and_kind() -> None:
    """No class of error is without a test, and no two share a kind; `EndingError` itself is not raised."""
    found = {*RmqtoolError.__subclasses__(), *EndingError.__subclasses__()} - {EndingError}
    classes = {cls.__name__: cls for cls in found if cls.__module__ == errors.__name__}
    assert {name: (int(cls.status), cls.kind) for name, cls in classes.items()} == STATUSES
    assert (RmqtoolError.status, RmqtoolError.kind) == (4, "failed")


@pytest.mark.parametrize(
    ("file", "offset", "expected"),
    [
        (None, None, "torn"),
        ("commitlog/0", None, "commitlog/0: torn"),
        (Path("commitlog/0"), 0, "commitlog/0 at offset 0: torn"),
        ("commitlog/0", 4096, "commitlog/0 at offset 4096: torn"),
    ],
)
def test_text_of_an_error(file: Path | str | None, offset: int | None, expected: str) -> None:
    """The place comes first, as far as it is known."""
    error = errors.WrongKindError("torn", file=file, offset=offset, hint="repair it")
    assert str(error) == expected
    assert (error.message, error.offset, error.hint) == ("torn", offset, "repair it")
    assert error.file == (None if file is None else str(file))
