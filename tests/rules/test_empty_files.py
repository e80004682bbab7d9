"""What releases make of a last file of 0 bytes."""

from __future__ import annotations

import pytest

from rmqtool.rules.file_sizes import effect_of_empty_last_file, refuses_empty_last_file, spans_of
from rmqtool.rules.versions import ANY_RELEASE, RELEASES, Releases, Version, parse_version


@pytest.mark.parametrize(
    ("version", "refuses", "effect"),
    [
        ("4.4.0", False, "ignores it"),
        ("4.5.1", True, "refuses to start"),
        ("4.9.2", False, "ignores it"),
        ("4.9.7", True, "refuses to start"),
        ("5.1.2", True, "refuses to start"),
        ("5.1.3", False, "deletes it"),
        ("5.1", False, "deletes it"),
        ("5.5.1", False, "deletes it"),
    ],
)
def test_a_named_release(version: str, refuses: bool, effect: str) -> None:
    """It alone counts, also where only its first numbers are given."""
    release = parse_version(version)
    assert refuses_empty_last_file(release) == refuses
    assert effect in effect_of_empty_last_file(Releases.named(release))


def test_of_several_releases_each_is_named() -> None:
    """Those that start, by what they do."""
    effect = effect_of_empty_last_file(ANY_RELEASE)
    assert effect == (
        f"a start deletes it (5.1.3 to {RELEASES[-1]}); ignores it, and writes its next file in this place "
        "(4.4.0 to 4.5.0 and 4.9.2)"
    )
    assert spans_of(ANY_RELEASE.where(refuses_empty_last_file)) == "4.5.1 to 4.9.1 and 4.9.3 to 5.1.2"


def test_spans() -> None:
    """Releases that follow each other are one stretch; what is no release of its own stands alone."""
    assert spans_of([]) == ""
    assert spans_of([Version(4, 4, 0)]) == "4.4.0"
    assert spans_of([Version(4, 4, 0), Version(4, 6, 0), Version(4, 6, 1), Version(5, 5, 0)]) == (
        "4.4.0, 4.6.0 to 4.6.1 and 5.5.0"
    )
    assert spans_of([parse_version("5.3"), parse_version("5.4")]) == "5.3 and 5.4"
