"""JSON as brokers read it, which is more than JSON."""

from __future__ import annotations

import pytest

from rmqtool.formats.fastjson import parse
from tests.formats.spellings import SPELLINGS


@pytest.mark.parametrize("library", ["1", "2"])
def test_which_library_takes_what(library: str) -> None:
    """Each of more than a hundred spellings is taken or refused as by the real library."""
    differing = []
    for _, text, takers in SPELLINGS:
        try:
            parse(text, second=library == "2")
            taken = True
        except ValueError:
            taken = False
        if taken != (library in takers):
            differing.append(text)
    assert differing == []
    assert len(SPELLINGS) > 100


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{// by hand\n/* more */"a":{0:5,1:6}}', {"a": {"0": 5, "1": 6}}),
        ("\ufeff{'a':'it\\'s',\"b\":\"\\x41\\u0042\\n\"}", {"a": "it's", "b": "AB\n"}),
        ('{"a":1,"a":2,}', {"a": 2}),
        ('{,"a":[1,,2,],b:NaN,"c":+07L}', {"a": [1, 2], "b": None, "c": 7}),
        ('{"a":5.,"b":99999999999999999999}\0\0', {"a": 5.0, "b": 99999999999999999999}),
        ('{"a":Set[1],"b":new Date(5)}', {"a": [1], "b": 5}),
        ('{"a":1} \0\n', {"a": 1}),
        ('{"a":1}\x1ax', {"a": 1}),
        ("null", None),
    ],
)
def test_values(text: str, value: object) -> None:
    """What is taken has the value that it looks like; the last of equal names counts."""
    assert parse(text, second=False) == value


@pytest.mark.parametrize("text", ["", "{", '{"a', "[1", "{]", '{"a":}', '{"a"', "x", '{"a":tru}', "[" * 100_000])
def test_what_nobody_takes(text: str) -> None:
    """Cut or wrong text is an error with its place, never another exception."""
    for second in (False, True):
        with pytest.raises(ValueError, match=r"\S"):
            parse(text, second=second)
