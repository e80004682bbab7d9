"""What is said of bodies that could not be decoded."""

from __future__ import annotations

from rmqtool.scan.message_rows import DecodeFailures


def failures(place: str, *, bodies: int = 2, **fields: bool) -> DecodeFailures:
    """Of so many bodies, one is not decoded."""
    found = DecodeFailures(bodies, **fields)  # type: ignore[arg-type]
    found.add("why", lambda: place)
    return found


def test_the_first_of_all_parts_is_named() -> None:
    """Parts are added in the order of the log; of one body there is no first."""
    total = DecodeFailures(1)
    assert (total.is_lossy, list(total.sentences())) == (False, [])
    total.merge(failures("a"))
    total.merge(failures("b", out_of_step=True))
    sentences = [
        "2 of 5 bodies could not be decoded; the first: a: why",
        "the decoder wrote more lines than it got bodies: texts may belong to other messages",
    ]
    assert (total.is_lossy, list(total.sentences())) == (True, sentences)
    assert list(failures("c", bodies=1).sentences()) == ["the body could not be decoded: c: why"]
