"""What tests use: write, judge, recover and hold stores with the real classes of one release."""

import json
import os
import random
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from rmqtool.rules.versions import parse_version
from tests.copies import copied
from tests.real_broker.classes import class_path
from tests.real_broker.jvm import Jvm
from tests.real_broker.tools import HarnessError, HarnessUnavailable, require_tools
from tests.real_broker.versions import VERSIONS, family, features

__all__ = ["VERSIONS", "Harness", "HarnessError", "HarnessUnavailable", "scenarios"]

# Small files: a store of many files that weighs little. 4.4.0 spells two of the names with one p.
GEOMETRY = {
    "mappedFileSizeCommitLog": "65536",
    "mapedFileSizeCommitLog": "65536",
    "mappedFileSizeConsumeQueue": "600",
    "mapedFileSizeConsumeQueue": "600",
    "mapperFileSizeBatchConsumeQueue": "460",
    "maxHashSlotNum": "50",
    "maxIndexNum": "1000",
}
SETTINGS = {
    **GEOMETRY,
    "maxMsgsNumBatch": "100000",
    "deleteWhen": "24",  # no hour: the cleaner runs only where a scenario says so
    "diskMaxUsedSpaceRatio": "95",
    "enableLmq": "true",
    "enableMultiDispatch": "true",
}
LONG_LIVED = {  # files of a size for hundreds of MiB
    **dict.fromkeys(("mappedFileSizeCommitLog", "mapedFileSizeCommitLog"), str(32 << 20)),
    **dict.fromkeys(("mappedFileSizeConsumeQueue", "mapedFileSizeConsumeQueue"), "600000"),
    "maxHashSlotNum": "50000",
    "maxIndexNum": "400000",
}
SHOP_SETTINGS = {
    # Levels 1 to 16 deliver at once, also what failed and is tried again; 17 and 18 wait.
    "messageDelayLevel": "1s " * 16 + "30m 2h",
    "enableLmq": "true",
    "enableMultiDispatch": "true",
    "transactionCheckInterval": "600000",
    "waitTimeMillsInSendQueue": "10000",
    "flushConsumerOffsetInterval": "500",
    "autoCreateSubscriptionGroup": "true",
    "mappedFileSizeTimerLog": "5200",  # 100 units
}
_QUESTIONS = ("query", "look", "pull", "time", "read")  # kinds of them, see Questions.java
_WRITTEN_AS = {"compacted": "extras"}  # the same messages under other settings
_WRITING_AT_MOST_S = 120
_POLL_S = 0.05
_WRITING_S = 0.05  # between the first endless append and the kill
_SCENARIOS = ("clean", "killed", "trimmed", "empty", "single", "example", "differing")
_MORE_SETTINGS = {
    "crc32-property": {"enabledAppendPropCRC": "true"},
    "extras": {
        "enableConsumeQueueExt": "true",
        "mappedFileSizeConsumeQueueExt": "400",
        "enableCompaction": "true",
        "compactionMappedFileSize": "4600",
        "compactionCqMappedFileSize": "920",
        "timerWheelEnable": "true",
        "mappedFileSizeTimerLog": "1100",
    },
    "compacted": {
        "enableCompaction": "true",
        "compactionMappedFileSize": "4600",
        "compactionCqMappedFileSize": "920",
        "compactionScheduleInternal": "500",  # ms; an hour's quarter by default
    },
}


def scenarios(version: str) -> tuple[str, ...]:
    """Names of the scenarios that `version` can write."""
    found = [*_SCENARIOS]
    found += ["light", "light-killed"] if "lmq" in features(version) else []
    found += ["crc32-property"] if "crc32-property" in features(version) else []
    found += ["extras", "compacted"] if family(version) == "v5" else []
    return (*found, "dledger") if version != VERSIONS[0] else tuple(found)


class Harness:
    """The store classes of one release; its processes run as `user`, where one is given."""

    def __init__(self, version: str, user: int | None = None) -> None:
        """Fetch the jars and compile, unless cached; HarnessUnavailable without Java or Maven."""
        require_tools()
        self.version = version
        self.user = user
        class_path(version)

    def write(
        self, root: Path, scenario: str, writing_s: float = _WRITING_S, settings: dict[str, str] | None = None
    ) -> None:
        """Write the store of `scenario` into the empty directory `root`; `writing_s` is when ``killed`` is killed."""
        if scenario not in scenarios(self.version):
            raise ValueError(f"{self.version} cannot write the scenario {scenario}")
        settings = settings or (dledger_settings() if scenario == "dledger" else _MORE_SETTINGS.get(scenario))
        with self._jvm(["write", str(root), _WRITTEN_AS.get(scenario, scenario)], settings) as jvm:
            if scenario.endswith("killed"):
                jvm.wait_ready()
                time.sleep(writing_s)
                jvm.kill()
            else:
                jvm.finish()

    def write_shop(self, root: Path, settings: dict[str, str] | None = None) -> dict[str, Any]:
        """Let a whole broker with clients write a store into `root`, or go on with one; what they say happened."""
        return self._run_whole([], root, settings)

    def pop(
        self, root: Path, settings: dict[str, str] | None = None, wanted: int = 9, *, acknowledges: bool = True
    ) -> dict[str, list[str]]:
        """Let a POP consumer of a whole broker take messages, and later so many that come again; see Pops.java."""
        return self._run_whole(["pops"], root, settings, str(wanted), str(acknowledges).lower())

    @contextmanager
    def trade(self, root: Path, settings: dict[str, str]) -> Iterator[dict[str, dict[str, int]]]:
        """Keep clients of all sorts at work on a whole broker; when they have ended, what they knew, see Trade.java."""
        known: dict[str, dict[str, int]] = {}
        with TemporaryDirectory(prefix="rmqtool-harness-") as scratch:
            file = Path(scratch, "known.json")
            all_settings = {**SETTINGS, **SHOP_SETTINGS, **settings}
            with Jvm(self.version, Path(scratch), all_settings, ["trade", str(root), str(file)], whole=True) as jvm:
                jvm.wait_ready()
                yield known
                jvm.finish()
            known.update(json.loads(file.read_bytes()))

    def rest_of_trade(
        self, root: Path, settings: dict[str, str], wanted: Mapping[str, Iterable[str]]
    ) -> dict[str, dict[str, int]]:
        """Let the same clients go on until the wanted keys of each kind have come, or much time is gone; what came."""
        with TemporaryDirectory(prefix="rmqtool-harness-") as scratch:
            file = Path(scratch, "wanted")
            lines = [f"{kind}\t{key}\n" for kind, keys in wanted.items() for key in keys]
            file.write_text("".join(lines), encoding="utf-8")
            return self._run_whole(["trade-rest"], root, settings, str(file))

    def write_traced(self, root: Path) -> dict[str, Any]:
        """Let a whole broker and clients with message trace write a store into `root`; see Traced.java."""
        return self._run_whole(["traced"], root, {"traceTopicEnable": "true", "recallMessageEnable": "true"})

    def write_random(
        self, root: Path, settings: dict[str, str], seed: int, messages: int, *, killed: bool = False
    ) -> dict[str, Any]:
        """Let a whole broker write random messages and configuration into `root`, or go on with it; what it answers.

        A broker that is `killed` has no answers, and writes more messages until then; see RandomStore.java.
        """
        with TemporaryDirectory(prefix="rmqtool-harness-") as scratch:
            file = Path(scratch, "facts.json")
            arguments = ["random", str(root), str(file), str(seed), str(messages), str(killed).lower()]
            all_settings = {**SETTINGS, **settings}
            with Jvm(self.version, Path(scratch), all_settings, arguments, whole=True) as jvm:
                if killed:
                    jvm.wait_ready()
                    time.sleep(_WRITING_S)
                    jvm.kill()
                    return {}
                jvm.finish()
            facts: dict[str, Any] = json.loads(file.read_bytes())
            return facts

    def write_tiered(self, root: Path, tree: Path, count: int, *, is_killed: bool = False) -> None:
        """Let a store with a tier in files below `tree` take messages (see Tiered.java); one minute, for the upload."""
        words = ["tiered-kill" if is_killed else "tiered-write", str(root), str(count)]
        with self._jvm(words, tiered_settings(self.version, tree)) as jvm:
            jvm.finish()

    def read_tiered(self, root: Path, tree: Path, settings: dict[str, str] | None = None) -> list[dict[str, Any]]:
        """What consumers get of each queue: offsets with a digest of all but the place; a start may change the tier."""
        queues: list[dict[str, Any]] = self.ask_tiered(root, tree, settings)["queues"]
        return queues

    def ask_tiered(self, root: Path, tree: Path, settings: dict[str, str] | None = None) -> dict[str, Any]:
        """The same as ``queues``, and as ``keys`` the digests of the messages that are found by each key."""
        with TemporaryDirectory(prefix="rmqtool-harness-") as scratch:
            file = Path(scratch, "answer.json")
            given = {**tiered_settings(self.version, tree), **(settings or {})}
            with self._jvm(["tiered-read", str(root), str(file)], given) as jvm:
                jvm.finish()
            answer: dict[str, Any] = json.loads(file.read_bytes())
            return answer

    def write_pair(self, root: Path) -> None:
        """Let a master and a slave under a controller write below `root` (5.x); see Pair.java for the copies there."""
        with TemporaryDirectory(prefix="rmqtool-harness-") as scratch:
            settings = {**GEOMETRY, "deleteWhen": "24", "diskMaxUsedSpaceRatio": "95"}
            with Jvm(self.version, Path(scratch), settings, ["pair", str(root)], whole=True) as jvm:
                jvm.finish()

    def write_slave(self, root: Path) -> None:
        """Let a master with clients and its slave write the stores ``master`` and ``slave`` below `root`."""
        with TemporaryDirectory(prefix="rmqtool-harness-") as scratch:
            settings = {**SETTINGS, **SHOP_SETTINGS, "enableLmq": "false", "enableMultiDispatch": "false"}
            with Jvm(self.version, Path(scratch), settings, ["slave", str(root)], whole=True) as jvm:
                jvm.finish()

    def _run_whole(
        self, command: list[str], root: Path, settings: dict[str, str] | None = None, *more: str
    ) -> dict[str, Any]:
        with TemporaryDirectory(prefix="rmqtool-harness-") as scratch:
            file = Path(scratch, "facts.json")
            arguments = [*command, str(root), str(file), *more]
            all_settings = {**SETTINGS, **SHOP_SETTINGS, **(settings or {})}
            with Jvm(self.version, Path(scratch), all_settings, arguments, whole=True) as jvm:
                jvm.finish()
            facts: dict[str, Any] = json.loads(file.read_bytes())
            return facts

    def oracle(self, root: Path) -> dict[str, Any]:
        """All that the release says about the store at `root`, asked on a copy."""
        with TemporaryDirectory(prefix="rmqtool-harness-") as scratch:
            copy = Path(scratch, "store")
            copied(root, copy)
            return {"version": self.version, **_with_reads(self._answer("oracle", copy))}

    def recover(self, root: Path) -> dict[str, Any]:
        """Start and stop on `root` itself; what the start leaves."""
        return self._answer("recover", root)

    def expire(self, root: Path) -> dict[str, Any]:
        """Start on `root` itself and let the cleaner delete the first commit log file; what is left at the top."""
        return self._answer("expire", root)

    def destroy(self, root: Path) -> dict[str, Any]:
        """Let the store at `root` destroy itself; what is left at the top."""
        return self._answer("destroy", root)

    def ask(self, root: Path, questions: dict[str, Any], settings: dict[str, str] | None = None) -> dict[str, Any]:
        """Start on `root` itself, put all questions (see Questions.java) to the store, stop; the answers in order."""
        return self.ask_each([(root, questions)], settings)[0]

    def ask_each(
        self, stores: Sequence[tuple[Path, dict[str, Any]]], settings: dict[str, str] | None = None
    ) -> list[dict[str, Any]]:
        """`ask` for each store with its own questions, in one process."""
        with TemporaryDirectory(prefix="rmqtool-harness-") as scratch:
            files = [Path(scratch, f"{number}.jsonl") for number in range(len(stores))]
            for file, (_, questions) in zip(files, stores, strict=True):
                with file.open("w", encoding="utf-8") as lines:  # line by line: the JVM holds one at a time
                    for kind, asked in questions.items():
                        lines.writelines(f"{json.dumps([kind, each])}\n" for each in asked)
            names = Path(scratch, "stores.txt")
            rows = zip((root for root, _ in stores), files, strict=True)
            names.write_text("".join(f"{root}\t{file}\n" for root, file in rows), encoding="utf-8")
            with self._jvm(["ask", str(names), ""], settings) as jvm:
                jvm.finish()
            return [_answers(file, questions) for file, (_, questions) in zip(files, stores, strict=True)]

    def filter_rows(self, root: Path, settings: dict[str, str]) -> int:
        """Let the store at `root` clean itself and its queues in RocksDB once; where its log begins then."""
        with TemporaryDirectory(prefix="rmqtool-harness-") as scratch:
            file = Path(scratch, "answer.json")
            with self._jvm(["filter", str(root), str(file)], settings) as jvm:
                jvm.finish()
            minimum: int = json.loads(file.read_bytes())["min_offset"]
            return minimum

    def judge(self, roots: Sequence[Path]) -> list[dict[str, Any]]:
        """Start on each of `roots` itself, whatever state it is in: what the start did, or why there was none."""
        with TemporaryDirectory(prefix="rmqtool-harness-") as scratch:
            names = Path(scratch, "roots.txt")
            names.write_text("".join(f"{root}\n" for root in roots), encoding="utf-8")
            starts: list[dict[str, Any]] = self._answer("judge", names)["starts"]
            return starts

    def survey(
        self,
        stores: Sequence[tuple[Path, Iterable[str]]],
        settings: dict[str, str] | None = None,
        queues: Sequence[Iterable[tuple[str, int]]] | None = None,
    ) -> list[dict[str, Any]]:
        """Start a whole broker on each store itself: what its users have then, by the keys given; see Survey.java.

        With `queues` of each store also the answer to each pull from them and each query (ClientView.java).
        """
        with TemporaryDirectory(prefix="rmqtool-harness-") as scratch:
            file, names = Path(scratch, "answer.json"), Path(scratch, "stores.txt")
            with names.open("w", encoding="utf-8") as lines:
                for number, (root, keys) in enumerate(stores):
                    asked = Path(scratch, f"{number}.keys")
                    asked.write_text("".join(f"{key}\n" for key in keys), encoding="utf-8")
                    lines.write(f"{root}\t{asked}{_pulled(scratch, number, queues)}\n")
            arguments = ["survey", str(names), str(file)]
            all_settings = {**SETTINGS, **SHOP_SETTINGS, **(settings or {})}
            with Jvm(self.version, Path(scratch), all_settings, arguments, whole=True) as jvm:
                jvm.finish()
            surveys: list[dict[str, Any]] = json.loads(file.read_bytes())["surveys"]
            return surveys

    def survey_copies(
        self,
        stores: Sequence[tuple[Path, Iterable[str]]],
        settings: dict[str, str],
        queues: Sequence[Iterable[tuple[str, int]]] | None = None,
    ) -> list[dict[str, Any]]:
        """`survey` of copies, since it changes stores: one of which the process dies takes no others along."""
        try:
            with TemporaryDirectory(prefix="rmqtool-survey-") as scratch:
                copies = [
                    (copied(root, Path(scratch, str(number))), keys) for number, (root, keys) in enumerate(stores)
                ]
                return self.survey(copies, settings, queues) if copies else []
        except HarnessError as error:
            if len(stores) == 1:
                return [{"refuses": f"the process ends: {str(error)[-300:]}"}]
            half = len(stores) // 2
            parts = (slice(half), slice(half, None))
            return [each for part in parts
                    for each in self.survey_copies(stores[part], settings, queues and queues[part])]  # fmt: skip

    def clean(self, scenarios: Path) -> list[dict[str, Any]]:
        """Run the cleaner for each of ``scenarios.json`` in a directory; see `tests.real_broker.cleaning`."""
        answers: list[dict[str, Any]] = self._answer("clean", scenarios)["answers"]
        return answers

    def decode(self, texts: Sequence[tuple[str, str]]) -> list[str]:
        """What the managers of the release say to texts of config files, each with the file's name."""
        with TemporaryDirectory(prefix="rmqtool-harness-") as scratch:
            lines = [f"{name}\t{text}".replace("\n", "\1") for name, text in texts]
            file = Path(scratch, "texts")
            file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            answers = self._answer("decode", file)["answers"]
            return [answers[line] for line in lines]

    @contextmanager
    def hold(
        self, root: Path, messages_per_second: int = 0, settings: dict[str, str] | None = None, *, many: bool = False
    ) -> Iterator[int]:
        """Keep a store running on `root`, yield its process id, stop it cleanly at the end, unless it is killed.

        The messages go to one queue, or to `many`, of more and more topics.
        """
        with self._jvm(["load" if many else "hold", str(root), str(messages_per_second)], settings) as jvm:
            jvm.wait_ready()
            yield jvm.pid
            jvm.finish()

    @contextmanager
    def hold_pair(self, root: Path, kind: Literal["Slave", "Pair"], messages_per_second: int) -> Iterator[list[Path]]:
        """Keep a master and its slave running below `root`, by a controller for a ``Pair`` (5.x); yield both stores."""
        names = ("master", "slave") if kind == "Slave" else ("a", "b")
        settings = {**SETTINGS, **SHOP_SETTINGS, **LONG_LIVED}
        with TemporaryDirectory(prefix="rmqtool-harness-") as scratch:
            arguments = ["hold", str(root), kind, str(messages_per_second)]
            with Jvm(self.version, Path(scratch), settings, arguments, whole=True) as jvm:
                jvm.wait_ready()
                yield [root / name for name in names]
                jvm.finish()

    def write_same(
        self, root: Path, count: int, settings: dict[str, str], *, first: int = 0, killed: bool = False
    ) -> None:
        """Append at least `count` messages of one size, numbered from `first` on, and stop, or kill the process."""
        wanted = _appended(root, b"KEYS\1same-") + count
        with self._jvm(["same", str(root), str(first)], settings) as jvm:
            jvm.wait_ready()
            until = time.monotonic() + _WRITING_AT_MOST_S
            while _appended(root, b"KEYS\1same-") < wanted:
                if time.monotonic() > until:
                    raise HarnessError(f"{root} has not {count} messages yet")
                time.sleep(_POLL_S)
            if killed:
                jvm.kill()
            else:
                jvm.finish()

    def fill(self, root: Path, count: int, settings: dict[str, str], *, killed: bool = False) -> None:
        """Write so many messages of 1.2 KB as fast as possible, and stop, or kill the process."""
        with self._jvm(["fill", str(root), str(count)], settings) as jvm:
            jvm.wait_ready()
            if killed:
                jvm.kill()
            else:
                jvm.finish()

    def duration(self, root: Path, settings: dict[str, str]) -> dict[str, float]:
        """Let the store at `root` load: seconds of CPU as ``cpu``, and as ``wall``."""
        seconds: dict[str, float] = self._answer("duration", root, settings)
        return seconds

    def append(self, root: Path, count: int, settings: dict[str, str], messages_per_second: int = 300) -> None:
        """Append at least `count` messages, and stop cleanly."""
        count += _appended(root)
        with self.hold(root, messages_per_second, settings):
            until = time.monotonic() + _WRITING_AT_MOST_S
            while _appended(root) < count:
                if time.monotonic() > until:
                    raise HarnessError(f"{root} has not {count} messages yet")
                time.sleep(_POLL_S)

    def append_and_kill(self, root: Path, size: int, settings: dict[str, str]) -> None:
        """Append messages until the log has `size` bytes, and kill the process."""
        with self._jvm(["hold", str(root), "20000"], settings) as jvm:
            jvm.wait_ready()
            until = time.monotonic() + _WRITING_AT_MOST_S
            while sum(1 << 16 for _ in (root / "commitlog").iterdir()) < size:
                if time.monotonic() > until:
                    raise HarnessError(f"{root} has not {size} bytes of messages yet")
                time.sleep(_POLL_S)
            jvm.kill()

    def _answer(self, command: str, root: Path, settings: dict[str, str] | None = None) -> dict[str, Any]:
        with TemporaryDirectory(prefix="rmqtool-harness-") as scratch:
            file = Path(scratch, "answer.json")
            if self.user is not None:
                os.chown(scratch, self.user, self.user)
            with self._jvm([command, str(root), str(file)], settings) as jvm:
                jvm.finish()
            answer: dict[str, Any] = json.loads(file.read_bytes())
            return answer

    @contextmanager
    def _jvm(self, arguments: list[str], settings: dict[str, str] | None = None) -> Iterator[Jvm]:
        with (
            TemporaryDirectory(prefix="rmqtool-harness-") as scratch,
            Jvm(self.version, Path(scratch), {**SETTINGS, **(settings or {})}, arguments, user=self.user) as jvm,
        ):
            yield jvm


def tiered_settings(version: str, tree: Path) -> dict[str, str]:
    """Settings of a store whose messages go to small segments below `tree` soon."""
    package = "posix." if parse_version(version) < parse_version("5.3.0") else ""
    return {
        "messageStorePlugIn": "org.apache.rocketmq.tieredstore.TieredMessageStore",
        "tieredBackendServiceProvider": f"org.apache.rocketmq.tieredstore.provider.{package}PosixFileSegment",
        "tieredStoreFilePath": str(tree),
        "brokerName": "broker-a",
        "brokerClusterName": "LabCluster",
        "mappedFileSizeCommitLog": "32768",
        "tieredStoreCommitLogMaxSize": "20000",
        "tieredStoreConsumeQueueMaxSize": "1000",
        "tieredStoreGroupCommitTimeout": "1000",
        "tieredStoreIndexFileMaxHashSlotNum": "50",
        "tieredStoreIndexFileMaxIndexNum": "1000",
    }


def _answers(file: Path, questions: dict[str, Any]) -> dict[str, Any]:
    with Path(f"{file}.answers").open(encoding="utf-8") as lines:
        answers = {kind: [json.loads(next(lines)) for _ in asked] for kind, asked in questions.items()}
    return {kind: answers.get(kind, []) for kind in _QUESTIONS}


def _pulled(scratch: str, number: int, queues: Sequence[Iterable[tuple[str, int]]] | None) -> str:
    """The column that names the queues of a store."""
    if queues is None:
        return ""
    file = Path(scratch, f"{number}.queues")
    file.write_text("".join(f"{topic}\t{queue}\n" for topic, queue in queues[number]), encoding="utf-8")
    return f"\t{file}"


def dledger_settings() -> dict[str, str]:
    """Settings of a DLedger group of one on loopback."""
    return group_settings(1)[0]


def group_settings(nodes: int) -> list[dict[str, str]]:
    """Settings of each node of a DLedger group on loopback."""
    peers = ";".join(f"n{number}-127.0.0.1:{_free_port()}" for number in range(nodes))
    common = {"enableDLegerCommitLog": "true", "dLegerGroup": "harness", "dLegerPeers": peers}
    return [{**common, "dLegerSelfId": f"n{number}"} for number in range(nodes)]


def _free_port() -> int:
    """A port that nobody listens on, and that the system gives to nobody who asks for any."""
    for port in random.sample(range(11_000, 32_000), 100):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise HarnessError("no port is free")


def _appended(root: Path, sign: bytes = b"KEYS\1live-") -> int:
    """Messages in the log that `hold` has appended (Live.java), or others with a sign."""
    return sum(file.read_bytes().count(sign) for file in (root / "commitlog").glob("*"))


def _with_reads(oracle: dict[str, Any]) -> dict[str, Any]:
    """`oracle` with what consumers and queries get beside what was loaded; 5.x answers both only after a start."""
    recovered = oracle["recovered"]
    reachable = {_queue_name(queue): queue["reachable"] for queue in recovered["queues"]}
    for queue in oracle["queues"]:
        queue["reachable"] = reachable.get(_queue_name(queue), [])
    oracle["index"]["queries"] = recovered["index"]["queries"]
    return oracle


def _queue_name(queue: dict[str, Any]) -> tuple[str, str, int]:
    return queue["kind"], queue["topic"], queue["queue_id"]
