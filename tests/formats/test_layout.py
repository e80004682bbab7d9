"""The door to construct: its errors are ours, and the derived dtypes decode what construct decodes."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import numpy as np
import pytest
from construct import Byte, Bytes, Int8sb, Int16sb, Int16ub, Int32sb, Int32ub, Int64sb, Struct, this
from hypothesis import given
from hypothesis import strategies as st

import rmqtool.formats
from rmqtool.formats import checkpoint, consume_queue, dledger, index_file, rocksdb_rows, tiered, timer_wheel
from rmqtool.formats.checkpoint import TIMER_CHECK_DTYPE, TimerCheck
from rmqtool.formats.layout import (
    FormatError,
    build,
    dtype_of,
    field_extents,
    field_meanings,
    integer_at,
    parse,
    position_of,
    size_of,
    struct_of,
)
from rmqtool.formats.message import (
    HEADER_DTYPES,
    PREFIX_DTYPE,
    Blank,
    HostV4,
    HostV6,
    MessageIdV4,
    MessageIdV6,
    MessageUnit,
)
from tests.formats.samples import HOST_KINDS

Sample = Struct(
    "small" / Int8sb * "a small number",
    "number" / Int32sb * "a number",
    "payload" / Bytes(2) * "some bytes",
)
Sized = Struct("payload_size" / Int8sb, "payload" / Bytes(this.payload_size))

FIXED_LAYOUTS = [
    (tiered.TieredCoda, tiered.CODA_DTYPE, 16),
    (tiered.TieredIndexHeader, tiered.INDEX_HEADER_DTYPE, 28),
    (tiered.TieredIndexSlot, tiered.INDEX_SLOT_DTYPE, 8),
    (tiered.TieredIndexItem, tiered.INDEX_ITEM_DTYPE, 28),
    (tiered.WrittenIndexSlot, tiered.WRITTEN_SLOT_DTYPE, 8),
    (tiered.WrittenIndexItem, tiered.WRITTEN_ITEM_DTYPE, 32),
    (consume_queue.BatchConsumeQueueUnit, consume_queue.BATCH_UNIT_DTYPE, 46),
    (checkpoint.Checkpoint, checkpoint.CHECKPOINT_DTYPE, 48),
    (consume_queue.ConsumeQueueUnit, consume_queue.UNIT_DTYPE, 20),
    (index_file.IndexHeader, index_file.HEADER_DTYPE, 40),
    (index_file.HashSlot, np.dtype([("newest_unit", index_file.SLOT_DTYPE)]), 4),
    (index_file.IndexUnit, index_file.UNIT_DTYPE, 20),
    (HostV4, dtype_of(HostV4), 8),
    (HostV6, dtype_of(HostV6), 20),
    (Blank, dtype_of(Blank), 8),
    (MessageIdV4, dtype_of(MessageIdV4), 16),
    (MessageIdV6, dtype_of(MessageIdV6), 28),
    (dledger.DLedgerEntryHeader, dledger.ENTRY_DTYPE, 48),
    (dledger.DLedgerIndexUnit, dledger.INDEX_DTYPE, 32),
    (dledger.DLedgerBlank, dtype_of(dledger.DLedgerBlank), 8),
    (TimerCheck, TIMER_CHECK_DTYPE, 56),
    (timer_wheel.TimerLogUnit, timer_wheel.UNIT_DTYPE, 52),
    (timer_wheel.TimerLogBlank, dtype_of(timer_wheel.TimerLogBlank), 16),
    (timer_wheel.TimerSlot, timer_wheel.SLOT_DTYPE, 32),
]


def all_layouts() -> dict[str, Struct]:
    """Every layout that a module of formats declares, by name."""
    modules = [
        importlib.import_module(f"rmqtool.formats.{name}")
        for _, name, _ in pkgutil.iter_modules(rmqtool.formats.__path__)
    ]
    return {name: value for module in modules for name, value in vars(module).items() if isinstance(value, Struct)}


def read_by_numpy(data: bytes, dtype: np.dtype[np.void]) -> dict[str, Any]:
    """Decode one structure, raw fields as bytes."""
    [row] = np.frombuffer(data, dtype, count=1)
    return {name: row[name].tobytes() if row.dtype[name].kind == "V" else int(row[name]) for name in dtype.names or ()}


def read_by_construct(layout: Struct, data: bytes) -> dict[str, Any]:
    """Decode one structure as a plain dict."""
    return {name: value for name, value in parse(layout, data).items() if not name.startswith("_")}


def test_every_layout_is_compared() -> None:
    """No fixed layout is left out of the comparison of the two decoders."""
    compared = [layout for layout, _, _ in FIXED_LAYOUTS]
    others = {name for name, layout in all_layouts().items() if layout not in compared}
    of_rows = {name for name, value in vars(rocksdb_rows).items() if isinstance(value, Struct)}
    assert others - of_rows == {"MessageUnit", "ConsumeQueueExtUnit"}


@pytest.mark.parametrize(("layout", "dtype", "size"), FIXED_LAYOUTS)
@given(st.data())
def test_dtype_decodes_what_construct_decodes(
    layout: Struct, dtype: np.dtype[np.void], size: int, data: st.DataObject
) -> None:
    """NumPy and construct read the same fields from any bytes, and the bytes come back."""
    raw = data.draw(st.binary(min_size=size, max_size=size))
    assert read_by_numpy(raw, dtype) == (fields := read_by_construct(layout, raw))
    assert build(layout, fields) == raw
    assert size == dtype.itemsize == size_of(layout)


@given(st.binary(min_size=20, max_size=20))
def test_ext_header_dtype_decodes_what_construct_decodes(data: bytes) -> None:
    """The fields before the bit map."""
    header = Struct(*consume_queue.ConsumeQueueExtUnit.subcons[:-1])
    assert read_by_numpy(data, consume_queue.EXT_HEADER_DTYPE) == read_by_construct(header, data)


@pytest.mark.parametrize("bits", HOST_KINDS)
@given(data=st.binary(min_size=112, max_size=112), sys_flag=st.integers(0, 0xFFFFFFFF))
def test_header_dtype_decodes_what_construct_decodes(bits: int, data: bytes, sys_flag: int) -> None:
    """The dtype of each kind of hosts reads the fields that construct reads before the body."""
    raw = data[:36] + ((sys_flag & ~0x30) | bits).to_bytes(4, "big") + data[40:]
    names = [field.name for field in MessageUnit.subcons]
    header = Struct(*MessageUnit.subcons[: names.index("body")])
    fields = read_by_construct(header, raw)
    assert read_by_numpy(raw, HEADER_DTYPES[bits]) == fields
    assert read_by_numpy(raw, PREFIX_DTYPE).items() <= fields.items()


def test_dtype_maps_integers_by_width_and_sign() -> None:
    """Integers become big-endian numbers of their own width, also where the two libraries' letters differ."""
    layout = Struct("a" / Int8sb, "b" / Byte, "c" / Int16sb, "d" / Int16ub, "e" / Int32sb, "f" / Int32ub, "g" / Int64sb)
    kinds = [">i1", ">u1", ">i2", ">u2", ">i4", ">u4", ">i8"]
    assert dtype_of(layout) == np.dtype(list(zip("abcdefg", kinds, strict=True)))


def test_dtype_of_bytes_keeps_trailing_zeros() -> None:
    """Raw bytes are not text: zeros at their end stay."""
    [row] = np.frombuffer(b"\x01\x00\x00", dtype_of(Struct("raw" / Bytes(3))))
    assert row["raw"].tobytes() == b"\x01\x00\x00"


def test_dtype_widths_may_depend_on_the_context() -> None:
    """A width that another field decides is given by that field's name."""
    assert dtype_of(Sized, payload_size=7) == np.dtype([("payload_size", ">i1"), ("payload", "V7")])


def test_a_size_that_the_content_decides_is_refused() -> None:
    """A layout of fixed size has one; where a field's size stands in another field there is none."""
    assert size_of(Sample) == 7
    with pytest.raises(FormatError, match="payload"):
        size_of(Sized)


def test_dtype_stops_before_a_field() -> None:
    """The fields from `until` on are left out."""
    assert dtype_of(Sample, until="payload").names == ("small", "number")


def test_single_integers_are_read_as_the_dtype_reads_them() -> None:
    """By their names: where each stands, its value, and some of them at once with what is between left out."""
    data = bytes(range(1, 89)) * 2
    prefix = np.frombuffer(data, PREFIX_DTYPE, count=1)[0]
    assert position_of(PREFIX_DTYPE, "physical_offset") == 28
    for name in PREFIX_DTYPE.names or ():
        assert integer_at(PREFIX_DTYPE, name, data) == integer_at(PREFIX_DTYPE, name, b"abc" + data, 3) == prefix[name]
    wanted = ("magic_code", "physical_offset", "sys_flag")
    found = struct_of(PREFIX_DTYPE, *wanted).unpack_from(data, position_of(PREFIX_DTYPE, "magic_code"))
    assert found == tuple(prefix[name] for name in wanted)


def test_extents_of_fields() -> None:
    """Each field with its bytes' place and its value; one that the data cuts ends the list."""
    data = b"\x02\xaa\xbb\xcc"
    assert field_extents(Sized, data) == [("payload_size", 0, 1, 2), ("payload", 1, 3, b"\xaa\xbb")]
    assert field_extents(Sized, data[:2]) == [("payload_size", 0, 1, 2)]
    assert field_extents(Sized, b"") == []
    assert field_extents(Sized, b"\xff\xaa") == [("payload_size", 0, 1, -1)]


def test_no_dtype_for_a_nested_structure() -> None:
    """A field that is neither number nor bytes is refused by name."""
    with pytest.raises(TypeError, match="'inner'"):
        dtype_of(Struct("inner" / Struct("a" / Int8sb)))


def test_parse_error_names_field_and_expectation() -> None:
    """A short input raises FormatError on one line, with construct's own error as its cause."""
    with pytest.raises(FormatError, match=r"number.* expected 4, found 2") as caught:
        parse(Sample, b"\x01\x02\x03")
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize(
    "values",
    [
        {"small": 128, "number": 0, "payload": b""},
        {"small": 0, "number": 0, "payload": b"x"},
        {"small": 0},
        {"small": "0"},
    ],
    ids=["too large", "too long", "missing", "not a number"],
)
def test_build_error_is_a_format_error(values: dict[str, Any]) -> None:
    """A value that does not fit, or none, raises FormatError."""
    with pytest.raises(FormatError):
        build(Sample, values)


def test_parse_and_build_take_context() -> None:
    """What a layout does not hold itself is given by name, and any bytes-like input is read."""
    data = bytes.fromhex("FF 00000102 AABB")
    for raw in (data, bytearray(data), memoryview(data)):
        fields = parse(Sample, raw)
        assert (fields.small, fields.number, fields.payload) == (-1, 258, b"\xaa\xbb")
    assert build(Sample, {"small": -1, "number": 258, "payload": b"\xaa\xbb"}) == data


def test_field_meanings() -> None:
    """The meanings are those declared, in the order of the fields."""
    assert list(field_meanings(Sample).items()) == [
        ("small", "a small number"),
        ("number", "a number"),
        ("payload", "some bytes"),
    ]


@pytest.mark.parametrize("name", all_layouts())
def test_every_field_has_a_meaning(name: str) -> None:
    """No field of a layout goes without a line on what it is."""
    assert all(field_meanings(all_layouts()[name]).values())
