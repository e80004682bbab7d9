"""The text of config files as fastjson writes it: found, edited in place, and read as far as damage leaves it whole."""

from __future__ import annotations

import json
from itertools import chain, combinations
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rmqtool.store.config_json import parse_fastjson
from rmqtool.store.config_text import (
    bytes_of,
    edited,
    entries_of,
    file_text,
    member_of,
    member_text,
    members,
    table_in,
    text_of,
    whole_members,
    with_members,
    with_values,
)

OFFSETS = """{
	"lmqOffsetTable":{},
	"offsetTable":{
		"orders@desk":{0:15,1:9007199254740993
		},
		"pay\\"ments@\u017eena":{0:-3
		}
	},
	"pullOffsetTable":{
		"orders@late":{0:1
		}
	}
}"""
TOPIC = {"topicName": "orders", "perm": 6, "attributes": {}}


def is_offset(name: str, value: Any) -> bool:
    """An entry of a table of offsets."""
    return "@" in name and isinstance(value, dict)


def whole(text: str) -> dict[str, str]:
    """The intact entries of a text of offsets."""
    return whole_members(text, "offsetTable", ("pullOffsetTable",), is_offset) or {}


def test_members_and_where_they_are() -> None:
    """Names without quotes, escaped ones, empty tables, and numbers beyond 2^53."""
    table = table_in(OFFSETS, "offsetTable")
    assert table is not None
    entries = list(members(OFFSETS, table.value))
    assert [each.name for each in entries] == ["orders@desk", 'pay"ments@\u017eena']
    second = member_of(OFFSETS, entries[0].value, "1")
    assert second is not None
    assert OFFSETS[second.value : second.stop] == "9007199254740993"
    empty = table_in(OFFSETS, "lmqOffsetTable")
    assert empty is not None
    assert list(members(OFFSETS, empty.value)) == []
    assert table_in(OFFSETS, "topicConfigTable") is None
    assert table_in("null", "offsetTable") is None


def test_an_edit_leaves_every_other_byte(tmp_path: Path) -> None:
    """Also bytes that are not UTF-8."""
    path = tmp_path / "consumerOffset.json"
    path.write_bytes(OFFSETS.encode().replace("\u017e".encode(), b"\xff\xfe"))
    text = text_of(path) or ""
    assert bytes_of(text) == path.read_bytes()
    table = table_in(text, "offsetTable")
    number = member_of(text, next(members(text, table.value)).value, "0") if table else None
    assert number is not None
    changed = bytes_of(edited(text, [(number.value, number.stop, "512")]))
    assert changed == path.read_bytes().replace(b"0:15", b"0:512")


@pytest.mark.parametrize("inner", ["", '\n\t\t"x":{"topicName":"x"}\n\t'])
def test_members_are_added_at_the_end_of_a_table(inner: str) -> None:
    """To an empty table and to one with members, in the way in which fastjson 1 writes them."""
    text = f'{{\n\t"topicConfigTable":{{{inner}}}\n}}'
    table = table_in(text, "topicConfigTable")
    assert table is not None
    added = with_members(text, table, {"orders": member_text("orders", TOPIC)})
    content = parse_fastjson(added)
    assert content["topicConfigTable"]["orders"] == TOPIC
    assert list(content["topicConfigTable"]) == [*(["x"] if inner else []), "orders"]
    assert added.replace('"x":{"topicName":"x"},\n\t\t', "") == file_text(
        {"topicConfigTable": {"orders": member_text("orders", TOPIC)}}
    )


@pytest.mark.parametrize("gone", [*chain.from_iterable(combinations(range(4), count) for count in range(5))])
def test_members_are_taken_out(gone: tuple[int, ...]) -> None:
    """With one comma each, whichever they are: what is left is JSON."""
    text = '{"offsetTable":{"t@g":{"0":1, "1":2,\n"2":3 ,"3":4\n}}}'
    found = [*members(text, entries_of(text, "offsetTable")[0].value)]
    left = with_values(text, [(each, None if number in gone else 7) for number, each in enumerate(found)])
    assert json.loads(left) == {"offsetTable": {"t@g": {str(number): 7 for number in range(4) if number not in gone}}}


def test_entries_that_are_whole_wherever_a_text_ends() -> None:
    """A cut anywhere leaves the entries before it, and never a part of one."""
    every = whole(OFFSETS)
    assert [parse_fastjson(f"{{{entry}}}") for entry in every.values()] == [
        {"orders@desk": {"0": 15, "1": 9007199254740993}},
        {'pay"ments@\u017eena': {"0": -3}},
    ]
    for end in range(len(OFFSETS)):
        found = whole(OFFSETS[:end])
        assert found.items() <= every.items()
    assert list(whole(OFFSETS[: OFFSETS.index(',\n\t\t"pay')])) == ["orders@desk"]


def test_a_number_that_is_cut_is_no_number() -> None:
    """Its last digits may be lost."""
    found = whole_members('{"offsetTable":{1:2,17:34', "offsetTable", (), lambda name, value: name.isdecimal())
    assert found == {"1": "1:2"}


def test_entries_behind_damage() -> None:
    """An entry that is hit is left out, those after it are found, and none of the next table."""
    assert list(whole(OFFSETS.replace("0:15", "0:1\x005"))) == ['pay"ments@\u017eena']
    assert list(whole(OFFSETS.replace('"offsetTable"', '"offsxtTable"'))) == ["orders@desk", 'pay"ments@\u017eena']
    assert whole_members('{"offsetTable":{}', "offsetTable", (), is_offset) == {}
    assert whole_members("garbage", "offsetTable", (), is_offset) is None


@pytest.mark.parametrize("seed", range(40))
def test_no_damage_is_too_much(seed: int) -> None:
    """Bytes that are wrong, gone or new end in fewer entries, never in an error."""
    chance, data = Random(seed), bytearray(OFFSETS.encode())
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(data))
        data[at : at + chance.randint(1, 9)] = chance.randbytes(chance.randint(0, 9))
    text = data.decode("utf-8", "surrogateescape")
    for entry in whole(text).values():
        assert parse_fastjson(f"{{{entry}}}")


def test_text_that_opens_and_never_closes() -> None:
    """The search through it ends: it is one of few members at a time, not of all that follow."""
    assert whole('"a@b":{' * 5_000) == {}
