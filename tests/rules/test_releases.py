"""Which releases may have written a store."""

from __future__ import annotations

from rmqtool.rules.versions import NEWEST, OLDEST, RELEASES, Releases, Version


def test_without_evidence_every_release_fits() -> None:
    """From the oldest that is known to the newest."""
    assert (Releases().oldest, Releases().newest) == (OLDEST, NEWEST)
    assert list(RELEASES) == sorted(set(RELEASES))
    assert str(Releases()) == f"{OLDEST} to {NEWEST}"


def test_evidence_narrows() -> None:
    """Each piece that rules something out is kept; the others are not."""
    releases = Releases().narrow("abort.bak", since=Version(5, 0, 0)).narrow("nothing new", since=Version(4, 9, 3))
    releases = releases.narrow("no tags in the index", before=Version(5, 4, 0))
    assert (releases.oldest, releases.newest) == (Version(5, 0, 0), Version(5, 3, 4))
    assert releases.evidence == ("abort.bak", "no tags in the index")
    assert releases.where(lambda version: version < Version(5, 1, 0)) == (Version(5, 0, 0),)


def test_one_release_is_ruled_out() -> None:
    """What lies between others."""
    releases = (
        Releases()
        .narrow("new", since=Version(5, 4, 0), before=Version(5, 5, 2))
        .narrow("not that", other_than=Version(5, 5, 0))
    )
    assert (str(releases), releases.evidence) == ("5.4.0 or 5.5.1", ("new", "not that"))
    assert str(releases.narrow("newer", since=Version(5, 5, 0))) == "5.5.1"
    assert str(Releases().narrow("new", since=Version(5, 4, 0), before=Version(5, 5, 1))) == "5.4.0 to 5.5.0"


def test_contradicting_evidence_changes_nothing() -> None:
    """A store that two releases wrote is still judged by those that fit the rest."""
    releases = Releases().narrow("new", since=Version(5, 4, 0))
    assert releases.narrow("old", before=Version(5, 0, 0)) == releases


def test_a_named_release_is_the_only_one() -> None:
    """Whatever the store shows."""
    releases = Releases.named(Version(5, 3, 3))
    assert releases.narrow("old", before=Version(5, 0, 0)) is releases
    assert (str(releases), releases.is_named) == ("5.3.3", True)
