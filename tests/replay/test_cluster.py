"""What name servers and brokers say: routes, what they allow, copies that are there; and nonsense that they say."""

from __future__ import annotations

import json
import struct

import pytest

from rmqtool.replay import cluster as cluster_module
from rmqtool.replay.cluster import BrokerFacts, Cluster, Copy, Route, Sought, TargetQueue, parse_route
from rmqtool.replay.connection import PeerError, RefusedError, Security, decode_response
from tests.building import message
from tests.replay.captured import VERSIONS, answer
from tests.replay.fake_cluster import BROKER, FakeCluster, Fault, Stored

SECURITY = Security()


def test_a_route() -> None:
    response = decode_response(answer("4.9.7", "route")[4:])
    assert response is not None
    route = parse_route("orders", response.body)
    assert route == Route(
        "orders", tuple(TargetQueue(number, "shop") for number in range(4)), {"shop": "127.0.0.1:10911"}, {}
    )


@pytest.mark.parametrize(
    ("queues", "brokers", "reason"),
    [
        ({"perm": 4}, {"0": "h:1"}, "read-only"),
        ({"perm": 6}, {"1": "h:1"}, "its master is not available"),
        ({"writeQueueNums": 0}, {"0": "h:1"}, "0 queues to write"),
        ({"writeQueueNums": 1 << 30}, {"0": "h:1"}, "queues to write"),
    ],
)
def test_a_topic_that_cannot_be_written(queues: dict[str, int], brokers: dict[str, str], reason: str) -> None:
    data = {
        "brokerDatas": [{"brokerName": "a", "brokerAddrs": brokers}],
        "queueDatas": [{"brokerName": "a", "perm": 6, "writeQueueNums": 2, **queues}],
    }
    route = parse_route("orders", json.dumps(data).encode())
    assert route.queues == ()
    assert reason in route.why_unwritable


@pytest.mark.parametrize("body", [b"", b"[]", b"7", b'{"queueDatas":{}}', b'{"queueDatas":[{}]}', b'{"brokerDatas":7}'])
def test_a_route_that_is_none(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_route("orders", body)


def test_queues_of_several_brokers_take_turns() -> None:
    data = {
        "brokerDatas": [{"brokerName": name, "brokerAddrs": {"0": "h:1"}} for name in "ab"],
        "queueDatas": [{"brokerName": name, "perm": 6, "writeQueueNums": 2} for name in "ba"],
    }
    route = parse_route("orders", json.dumps(data).encode())
    assert [(queue.queue_id, queue.broker) for queue in route.queues] == [(0, "a"), (0, "b"), (1, "a"), (1, "b")]


def test_the_next_name_server_is_asked() -> None:
    with FakeCluster() as fake, Cluster(["127.0.0.1:1", fake.address], SECURITY) as cluster:
        assert cluster.route("nowhere") is None
        route = cluster.route("orders")
        assert route is not None
        assert len(route.queues) == 4


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (lambda _: (1, "java.lang.Error at x"), r"an error in the broker \(code 1: java.lang.Error at x\)"),
        (lambda _: (0, ""), "its answer is not a route"),
        (lambda _: "cut-before", "is cut"),
        (lambda _: b"SSH-2.0-OpenSSH_9.6\r\n", "not from RocketMQ"),
    ],
)
def test_a_name_server_that_answers_wrongly(fault: Fault, says: str) -> None:
    with (
        FakeCluster(fault=fault) as fake,
        Cluster([fake.address], SECURITY) as cluster,
        pytest.raises(PeerError, match=says),
    ):
        cluster.route("orders")


def test_what_a_broker_says_about_itself() -> None:
    settings = {
        "maxMessageSize": "65536",
        "messageDelayLevel": "1s 2s",
        "timerWheelEnable": "true",
        "timerMaxDelaySec": "60",
    }
    with FakeCluster(release="V5_5_0", settings=settings) as fake, Cluster([fake.address], SECURITY) as cluster:
        facts = cluster.facts(BROKER, fake.address)
        assert (facts.release, facts.max_message_size, facts.timer_max_ms) == ("5.5.0", 65536, 60_000)
        assert facts.delay_levels.delays == (1000, 2000)
        assert (facts.unknown, facts.is_4) == ((), False)


@pytest.mark.parametrize("settings", [{}, {"maxMessageSize": "9" * 40}, {"maxMessageSize": "-1"}])
def test_a_broker_that_does_not_say_its_limits(settings: dict[str, str]) -> None:
    levels = {"messageDelayLevel": "soon"}
    with FakeCluster(settings={**settings, **levels}) as fake, Cluster([fake.address], SECURITY) as cluster:
        facts = cluster.facts(BROKER, fake.address)
        assert facts.max_message_size == BrokerFacts().max_message_size
        assert facts.delay_levels == BrokerFacts().delay_levels
        assert len(facts.unknown) == 2


def test_a_broker_that_says_nothing() -> None:
    """Its ACL may keep such requests for administrators."""
    with FakeCluster(fault=lambda _: (16, "no")) as fake, Cluster([fake.address], SECURITY) as cluster:
        assert cluster.facts(BROKER, fake.address).release is None


@pytest.mark.parametrize("version", VERSIONS)
def test_a_copy(version: str) -> None:
    """The answer of a real broker, to the look-up of the second of three messages."""
    found = answer(version, "found")

    def fault(asked: object) -> str | bytes | None:
        code = getattr(asked, "code", 0)
        return found.replace(b'"opaque":7', b'"opaque":1') if code == 12 else None

    with FakeCluster(fault=fault) as fake, Cluster([fake.address], SECURITY) as cluster:
        sought = Sought("orders", BROKER, "U2", 1_700_000_000_000)
        ((copy,),) = cluster.find([sought])
    assert (copy.broker, copy.queue_id, copy.queue_offset) == (BROKER, 2, 1)
    assert copy.replay_of == "127.0.0.1:10911 200 1700000000000"
    ids = decode_response(answer(version, "batch_sent")[4:])
    assert ids is not None
    assert copy.message_id == ids.fields["msgId"].split(",")[0]


def test_only_messages_with_the_key_count() -> None:
    """Brokers find by a hash of 32 bits."""
    with FakeCluster() as fake, Cluster([fake.address], SECURITY) as cluster:
        fake.stored.append(Stored("orders", 1, 5, 0, {"UNIQ_KEY": "A"}, b"x", {}))
        fake._query = lambda fields: (0, "", {}, message(0, properties={"UNIQ_KEY": "B"}))  # type: ignore[method-assign]
        assert cluster.find([Sought("orders", BROKER, "A", 0)]) == [[]]
        del fake._query
        host = "C0000211" + f"{43210:08X}"
        assert cluster.find([Sought("orders", BROKER, "A", 0)]) == [[Copy(BROKER, 1, 5, f"{host}{0:016X}", None)]]


@pytest.mark.parametrize("body", [bytes(3), bytes(200), struct.pack(">I", 1 << 31), message(0)[:-1], b"\xff" * 99])
def test_copies_that_are_none(body: bytes) -> None:
    with FakeCluster() as fake, Cluster([fake.address], SECURITY) as cluster:
        fake._query = lambda fields: (0, "", {}, body)  # type: ignore[method-assign]
        with pytest.raises(PeerError, match="its messages cannot be decoded"):
            cluster.find([Sought("orders", BROKER, "A", 0)])


def test_a_look_up_that_is_refused() -> None:
    fault: Fault = lambda asked: (16, "denied") if asked.code == 12 else None  # noqa: E731
    with (
        FakeCluster(fault=fault) as fake,
        Cluster([fake.address], SECURITY) as cluster,
        pytest.raises(RefusedError, match="not permitted"),
    ):
        cluster.find([Sought("orders", BROKER, "A", 0)])


def test_a_broker_that_is_away_may_have_it() -> None:
    with FakeCluster() as fake, Cluster([fake.address], SECURITY) as cluster:
        with pytest.raises(PeerError, match="knows no master"):
            cluster.find([Sought("orders", "gone", "A", 0)])
        fake.topics.clear()
        cluster.forget()
        with pytest.raises(PeerError, match="knows no master"):
            cluster.find([Sought("orders", BROKER, "A", 0)])


def test_an_index_that_is_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """It must reach what was the log's end, while the log may grow."""
    monkeypatch.setattr(cluster_module, "_POLL_S", 0.01)
    with FakeCluster() as fake, Cluster([fake.address], SECURITY) as cluster:
        assert cluster.wait_until_indexed(["orders"], 0.1)
        fake.positions = [("100", "50"), ("150", "60"), ("200", "99"), ("300", "200"), ("400", "390")]
        assert cluster.wait_until_indexed(["orders"], 5.0)
        assert fake.positions == [("300", "200"), ("400", "390")]
        fake.positions = [("100", "50"), ("200", "101")]
        assert not cluster.wait_until_indexed(["orders"], 0.1)
        for nothing in ([("100", "")], [("-1", "0")], [("9" * 40, "0")]):
            fake.positions = nothing
            assert not cluster.wait_until_indexed(["orders"], 5.0)
