"""Messages that several test modules use: golden bytes of the broker's encoder, and strategies for any message."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from rmqtool.formats.message import BORN_HOST_V6, HOST_BITS, MAGIC_CODE_V1, MAGIC_CODE_V2, STORE_HOST_V6, host_size

# Made by running the broker's own encoder.
MESSAGE = bytes.fromhex(
    "000000A8 DAA320A7 3610A686 00000003 00000007 000000000000002A 00000000000003E8 00000000"
    "0000018BCFE56800 0A010203 000015B3 0000018BCFE5687B C0A80001 00002A9F 00000001 0000000000000000"
    "00000005 68656C6C6F 09 546F70696354657374 003F"
    "54414753 01 54616741 02"
    "4B455953 01 6B31206B32 02"
    "554E49515F4B4559 01 3041303130323033303030313030303030303030303030303030303030303030 02"
)

# The same message with the property that enabledAppendPropCRC=true adds.
MESSAGE_WITH_CRC = bytes.fromhex(
    "000000BC DAA320A7 3610A686 00000003 00000007 000000000000002A 00000000000003E8 00000000"
    "0000018BCFE56800 0A010203 000015B3 0000018BCFE5687B C0A80001 00002A9F 00000001 0000000000000000"
    "00000005 68656C6C6F 09 546F70696354657374 0053"
    "54414753 01 54616741 02"
    "4B455953 01 6B31206B32 02"
    "554E49515F4B4559 01 3041303130323033303030313030303030303030303030303030303030303030 02"
    "5F5F435243333223 01 30323135373738333630 02"
)

MESSAGE_FIELDS: dict[str, Any] = {
    "magic_code": MAGIC_CODE_V1,
    "body_crc": 0x3610A686,
    "queue_id": 3,
    "flag": 7,
    "queue_offset": 42,
    "physical_offset": 1000,
    "sys_flag": 0,
    "born_timestamp": 1700000000000,
    "born_host": bytes([10, 1, 2, 3]) + (5555).to_bytes(4, "big"),
    "store_timestamp": 1700000000123,
    "store_host": bytes([192, 168, 0, 1]) + (10911).to_bytes(4, "big"),
    "reconsume_times": 1,
    "prepared_transaction_offset": 0,
    "body": b"hello",
    "topic": b"TopicTest",
    "properties": b"TAGS\x01TagA\x02KEYS\x01k1 k2\x02UNIQ_KEY\x010A010203000100000000000000000000\x02",
}
"""What `MESSAGE` says, by field, without the four sizes."""

HOST_KINDS = (0, BORN_HOST_V6, STORE_HOST_V6, HOST_BITS)

int32s = st.integers(-(1 << 31), (1 << 31) - 1)
int64s = st.integers(-(1 << 63), (1 << 63) - 1)


@st.composite
def message_fields(draw: st.DrawFn) -> dict[str, Any]:
    """Fields of any message that can be encoded: both versions, all four kinds of hosts."""
    magic_code = draw(st.sampled_from((MAGIC_CODE_V1, MAGIC_CODE_V2)))
    sys_flag = (draw(int32s) & ~HOST_BITS) | draw(st.sampled_from(HOST_KINDS))
    born_size, store_size = host_size(sys_flag, BORN_HOST_V6), host_size(sys_flag, STORE_HOST_V6)
    numbers = {name: draw(int32s) for name in ("body_crc", "queue_id", "flag", "reconsume_times")}
    offsets = ("queue_offset", "physical_offset", "prepared_transaction_offset", "born_timestamp", "store_timestamp")
    return {
        **numbers,
        **{name: draw(int64s) for name in offsets},
        "magic_code": magic_code,
        "sys_flag": sys_flag,
        "born_host": draw(st.binary(min_size=born_size, max_size=born_size)),
        "store_host": draw(st.binary(min_size=store_size, max_size=store_size)),
        "body": draw(st.binary(max_size=40)),
        "topic": draw(st.binary(max_size=127 if magic_code == MAGIC_CODE_V1 else 255)),
        "properties": draw(st.binary(max_size=60)),
    }
