"""Messages of every form: what the columns make of them, in runs where several forms are mixed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqtool.formats.message import MAGIC_CODE_V1, MAGIC_CODE_V2, build_host
from tests.building import LogBuilder, write_log
from tests.sampling import examples
from tests.scan.damaging import deterministic
from tests.scan.reading import agree, others

PROPERTIES: dict[str, tuple[bytes, list[tuple[str, str]]]] = {
    "none": (b"", []),
    "separator at the end": (b"a\x01b\x02", [("a", "b")]),
    "no separator at the end": (b"a\x01b\x02c\x01d", [("a", "b"), ("c", "d")]),
    "no separator, one property": (b"a\x01b", [("a", "b")]),
    "empty name": (b"\x01b\x02c\x01d\x02", [("c", "d")]),
    "empty value": (b"a\x01\x02c\x01d\x02", [("c", "d")]),
    "empty value at the end": (b"a\x01b\x02c\x01", [("a", "b")]),
    "no value": (b"a\x02c\x01d\x02", [("c", "d")]),
    "only separators": (b"\x02\x02\x02", []),
    "only name ends": (b"\x01\x01\x01", []),
    "name end in the value": (b"a\x01b\x01c\x02", [("a", "b\x01c")]),
    "name end ends the value": (b"a\x01b\x01\x02c\x01d", [("a", "b\x01"), ("c", "d")]),
    "empty name, name end in the value": (b"\x01\x01b\x02", []),
    "duplicates": (b"a\x011\x02b\x012\x02a\x013\x02", [("a", "3"), ("b", "2")]),
    "duplicates, the last empty": (b"a\x011\x02b\x012\x02a\x01\x02", [("a", "1"), ("b", "2")]),
    "three of a name": (b"a\x011\x02a\x012\x02a\x013", [("a", "3")]),
    "names with a common start": (b"abcdefgh1\x01x\x02abcdefgh2\x01y\x02", [("abcdefgh1", "x"), ("abcdefgh2", "y")]),
    "long duplicates": (b"n" * 50 + b"\x01x\x02" + b"n" * 50 + b"\x01y\x02", [("n" * 50, "y")]),
    "NUL": (b"a\0\x01\0b\x02\0\x01\0\0\x02", [("a\0", "\0b"), ("\0", "\0\0")]),
    "NUL tells names apart": (b"a\x011\x02a\0\x012\x02", [("a", "1"), ("a\0", "2")]),
    "not UTF-8": (b"a\xff\x01\xfe\x02b\x01\xe2\x82\x02", [("a\N{REPLACEMENT CHARACTER}", "\N{REPLACEMENT CHARACTER}")]),
    "a surrogate": (b"a\x01\xed\xa0\xbd!\x02", [("a", "\N{REPLACEMENT CHARACTER}!")]),
    "other alphabets": ("区域\x01华东\x02😀\x01é\x02".encode(), [("区域", "华东"), ("😀", "é")]),
}
PROPERTIES["not UTF-8"][1].append(("b", "\N{REPLACEMENT CHARACTER}"))
KEYS: dict[bytes, list[str]] = {
    b"k": ["k"],
    b"k1 k2": ["k1", "k2"],
    b" k1   k2  ": ["k1", "k2"],
    b" ": [],
    b"   ": [],
    b"\xff k": ["\N{REPLACEMENT CHARACTER}", "k"],
    b"k\tk": ["k\tk"],
    "订单 2".encode(): ["订单", "2"],
}


@pytest.mark.parametrize("name", PROPERTIES)
def test_properties(store: Path, name: str) -> None:
    """What Java makes of the bytes is what the column holds, for one record and in a run of equal ones."""
    data, expected = PROPERTIES[name]
    for count in (1, 3):
        events = agree(LogBuilder().add_all([{"properties": data}] * count).write(store))
        assert [event["properties"] for event in events if isinstance(event, dict)] == [expected] * count


def test_properties_of_all_forms_in_one_run(store: Path) -> None:
    """Records with different names, with none and with damaged ones do not disturb each other."""
    forms = [{"properties": data} for data, _ in PROPERTIES.values()]
    events = agree(LogBuilder(1 << 16).add_all([*forms, *reversed(forms)]).write(store))
    expected = [pairs for _, pairs in PROPERTIES.values()]
    assert [event["properties"] for event in events if isinstance(event, dict)] == [*expected, *reversed(expected)]


def test_keys(store: Path) -> None:
    """Keys are the pieces between single spaces that are not empty; other white space is part of a key."""
    forms = [{"properties": b"KEYS\x01" + keys + b"\x02"} for keys in KEYS]
    for messages in ([*forms, {}], *([form] for form in forms)):
        found = [
            event["keys"] for event in agree(LogBuilder().add_all(messages).write(store)) if isinstance(event, dict)
        ]
        assert found[0] in KEYS.values()
        if len(found) > 1:
            assert found == [*KEYS.values(), []]


def test_forms_of_hosts_and_versions_mixed_in_one_block(store: Path) -> None:
    """V1 and V2 with four forms of hosts each: every column of every record is right, in any order."""
    forms: list[dict[str, Any]] = [
        {"magic_code": magic_code, "sys_flag": bits, "topic": topic}
        for magic_code in (MAGIC_CODE_V1, MAGIC_CODE_V2)
        for bits in (0, 0x10, 0x20, 0x30)
        for topic in ("", "t" * 127)
    ]
    log = LogBuilder(1 << 16).add_all([*forms, *reversed(forms), *forms[::3]])
    assert not others(agree(log.write(store)))
    for form in forms:
        agree(LogBuilder().add_all([form] * 3).write(store))


def test_many_hosts(store: Path) -> None:
    """Different hosts in one run keep to their records."""
    hosts = [build_host(f"10.0.{number}.1", -number) for number in range(5)]
    v6_hosts = [build_host(f"2001:db8::{number}", 1 << 20) for number in range(5)]
    messages: list[dict[str, Any]] = [{"born_host": host} for host in hosts] + [{"store_host": host} for host in hosts]
    messages += [{"sys_flag": 0x10, "born_host": host} for host in v6_hosts]
    messages += [{"sys_flag": 0x20, "store_host": host} for host in v6_hosts]
    agree(LogBuilder(1 << 16).add_all(messages).write(store))


def test_topics(store: Path) -> None:
    """The longest of both versions, empty, not UTF-8, NUL, and other alphabets."""
    short = [b"", b"t" * 127, b"\xff\xfe", b"\0a\0", "主题".encode()]
    messages: list[dict[str, Any]] = [{"topic": topic} for topic in short]
    messages += [{"topic": topic, "magic_code": MAGIC_CODE_V2} for topic in (*short, b"t" * 255, b"t" * 32767)]
    assert not others(agree(LogBuilder(1 << 17).add_all(messages).write(store)))


def test_extremes_of_numbers(store: Path) -> None:
    """The largest and the smallest of every integer field come through."""
    fields = ("queue_id", "flag", "reconsume_times", "body_crc")
    wide = ("queue_offset", "born_timestamp", "store_timestamp", "prepared_transaction_offset")
    messages: list[dict[str, int]] = []
    for value, wide_value in ((2**31 - 1, 2**63 - 1), (-(2**31), -(2**63)), (-1, -1)):
        messages.append(dict.fromkeys(fields, value) | dict.fromkeys(wide, wide_value))
    agree(LogBuilder(1 << 16).add_all(messages).write(store))


@pytest.mark.parametrize("start", [1 << 30, (1 << 62) + 12345])
def test_a_log_that_begins_anywhere(store: Path, start: int) -> None:
    """Offsets are those of the log, however many files were deleted before the first."""
    log = LogBuilder(1024, start).add_all([{}] * 20)
    events = agree(log.write(store))
    assert [event["physical_offset"] for event in events if isinstance(event, dict)] == log.offsets


def test_the_largest_properties(store: Path) -> None:
    """Properties up to the limit of their length."""
    name = b"n" * 1000
    agree(LogBuilder(1 << 17).add_all([{"properties": name + b"\x01" + b"v" * (32767 - 1001)}] * 2).write(store))


pieces = st.sampled_from(
    (
        b"\x01",
        b"\x02",
        b"\x01\x02",
        b"a",
        b"b",
        b"TAGS",
        b"KEYS",
        b"UNIQ_KEY",
        b" ",
        b"\0",
        b"\xff",
        b"\xe2\x82",
        b"12345678",
    )
)
properties = st.one_of(
    st.lists(pieces, max_size=14).map(b"".join),
    st.lists(st.tuples(pieces, pieces), max_size=5).map(
        lambda pairs: b"".join(a + b"\x01" + b + b"\x02" for a, b in pairs)
    ),
)
flags = st.sampled_from((0, 1, 4, 8, 12, 0x10, 0x20, 0x30, 0x101, 0x201, 0x301, 0x401, 0x7FFFFFCF, -1))


@st.composite
def any_messages(draw: st.DrawFn) -> dict[str, Any]:
    """A message of any form, its properties made of what matters to their parser."""
    return {
        "magic_code": draw(st.sampled_from((MAGIC_CODE_V1, MAGIC_CODE_V2))),
        "sys_flag": draw(flags),
        "topic": draw(st.binary(max_size=20)),
        "body": draw(st.binary(max_size=40)),
        "properties": draw(properties),
    }


@pytest.mark.slow
@settings(deterministic, max_examples=examples(300))
@given(forms=st.lists(any_messages(), min_size=1, max_size=8), again=st.integers(1, 3))
def test_any_messages(tmp_path_factory: pytest.TempPathFactory, forms: list[dict[str, Any]], again: int) -> None:
    """Whatever is in the messages of a run, alike or not, the columns are those of the plain reader."""
    store = write_log(
        tmp_path_factory.getbasetemp() / "any-messages", LogBuilder(1 << 14).add_all(forms * again).images()
    )
    assert not others(agree(store))
