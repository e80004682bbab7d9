"""Bodies of trace messages: what real clients wrote, the forms of older ones, and damage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.formats.message_trace import CONSUME_RESULTS, TraceBody, TraceRecord, decode_trace

ID, REQUEST = "7F0000014ADD4E0E2F2A785120930008", "7F0000014ADD4E0E2F2A785126E40018"
OFFSET_ID = "7F00000100002A9F00000000000003E8"
# What a client of 5.5.0 wrote, see the golden store more/5.5.0-traced.
PUB = (f"Pub\x011795509782675\x01DefaultRegion\x01depot\x01deliveries\x01{ID}\x01parcel\x01COMMIT\x01127.0.0.1:10911"
       f"\x016\x0112\x011\x01{OFFSET_ID}\x01true\x02")  # fmt: skip
BEFORE = f"SubBefore\x011795509784292\x01DefaultRegion\x01drivers\x01{REQUEST}\x01{ID}\x012\x01COMMIT\x02"
AFTER = f"SubAfter\x01{REQUEST}\x01{ID}\x013\x01false\x01COMMIT\x014\x011795509784295\x01drivers\x02"
END = (f"EndTransaction\x011795509782689\x01DefaultRegion\x01depot\x01deliveries\x01{ID}\x01parcel\x01COMMIT"
       f"\x01127.0.0.1:10911\x012\x01{ID}\x01COMMIT_MESSAGE\x01false\x02")  # fmt: skip
RECALL = f"Recall\x011795509782712\x01DefaultRegion\x01\x01deliveries\x01{ID}\x01true\x02"
ALL = PUB + BEFORE + AFTER + END + RECALL


def only(text: str) -> TraceRecord:
    (record,) = decode_trace(text.encode()).records
    return record


def test_each_type() -> None:
    """All that a client of 5.5.0 says of a message, in one body."""
    assert decode_trace(ALL.encode()) == TraceBody((
        TraceRecord("Pub", (ID,), 1795509782675, "depot", "deliveries", cost=12, success=True,
                    offset_message_id=OFFSET_ID),
        TraceRecord("SubBefore", (ID,), 1795509784292, "drivers", request_id=REQUEST, retry_times=2),
        TraceRecord("SubAfter", (ID,), 1795509784295, "drivers", request_id=REQUEST, cost=3, success=False,
                    context_code=4),
        TraceRecord("EndTransaction", (ID,), 1795509782689, "depot", "deliveries", state="COMMIT_MESSAGE",
                    from_check=False),
        TraceRecord("Recall", (ID,), 1795509782712, None, "deliveries", success=True),
    ))  # fmt: skip
    assert CONSUME_RESULTS[4] == "FAILED"


def test_older_and_newer_forms() -> None:
    """A sending without an offset message id or with a host after it; ends without code, time and group."""
    old = only(PUB.replace(f"{OFFSET_ID}\x01", ""))
    assert (old.success, old.offset_message_id, old.cost) == (True, None, 12)
    new = only(PUB.replace("true\x02", "false\x01192.0.2.7\x01more\x02"))
    assert (new.success, new.offset_message_id, new.client_host) == (False, OFFSET_ID, "192.0.2.7")
    for end, code in (("\x01COMMIT\x02", None), ("\x01COMMIT\x014\x02", 4), ("\x01COMMIT\x014\x01\x02", 4)):
        after = only(AFTER.partition("\x01COMMIT")[0] + end)
        assert (after.success, after.context_code, after.timestamp, after.group) == (False, code, None, None)


def test_an_end_that_the_broker_asked_for() -> None:
    assert only(END.replace("\x01false", "\x01true")).from_check is True


def test_null_is_nothing() -> None:
    """What a client did not have is a text in the body; a message without an id is of no use."""
    assert only(PUB.replace("depot", "null").replace(OFFSET_ID, "null")).group is None
    assert only(PUB.replace(OFFSET_ID, "null")).offset_message_id is None
    assert decode_trace(PUB.replace(ID, "null").encode()) == TraceBody((), 1)


def test_a_batch_has_several_messages() -> None:
    assert only(PUB.replace(ID, f"{ID},{REQUEST}")).message_ids == (ID, REQUEST)


@pytest.mark.parametrize(
    "damaged",
    [
        PUB.replace("1795509782675", "17955x"),
        PUB.replace("1795509782675", "9" * 19),
        PUB.replace("1795509782675", "٣"),
        PUB.replace("\x0112\x01", "\x011.5\x01"),
        PUB.replace("true", "yes"),
        BEFORE.replace("\x012\x01COMMIT", ""),
        AFTER.replace("\x013\x01", f"\x01{1 << 31}\x01"),
        END.replace("\x01false", ""),
        END.replace("COMMIT_MESSAGE", "COMMITTED"),
        RECALL.replace("Recall", "Unheard"),
        "\x02",
    ],
)
def test_a_damaged_record_is_counted(damaged: str) -> None:
    """Those before and after it are read."""
    found = decode_trace((BEFORE + damaged + AFTER).encode())
    assert ([record.type for record in found.records], found.unreadable) == (["SubBefore", "SubAfter"], 1)


def test_a_cut_body() -> None:
    """At each byte: the whole records are read, and the cut one is not, though half a number were one."""
    data, whole = ALL.encode(), decode_trace(ALL.encode()).records
    for end in range(len(data)):
        found = decode_trace(data[:end])
        count = data[:end].count(b"\x02")
        assert found == TraceBody(whole[:count], int(end > 0 and data[end - 1] != 2))


@given(st.binary(max_size=80) | st.text("\x01\x02null,-19é", max_size=80).map(lambda text: b"Pub\x01" + text.encode()))
def test_any_bytes_are_decoded(data: bytes) -> None:
    """Noise is counted, as many times as it has an end."""
    found = decode_trace(data)
    assert len(found.records) + found.unreadable == data.count(b"\x02") + bool(data and not data.endswith(b"\x02"))
