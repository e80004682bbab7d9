"""A whole broker that serves programs of this machine, in a network of its own: where a replay is sent to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.commands.running import rmqtool
from tests.real_broker.harness import GEOMETRY
from tests.real_broker.jvm import Jvm
from tests.real_broker.loopback import JOIN, UNAVAILABLE, enter
from tests.real_broker.tools import HarnessError, HarnessUnavailable

NAME_SERVER = "127.0.0.1:9876"
_LOOPBACK = Path(__file__).parent / "loopback.py"
SETTINGS = {
    **GEOMETRY,
    "mappedFileSizeCommitLog": "1048576",
    "maxHashSlotNum": "5000",
    "maxIndexNum": "20000",
    "deleteWhen": "24",
    "diskMaxUsedSpaceRatio": "95",
    "autoCreateTopicEnable": "false",
    "waitTimeMillsInSendQueue": "1000",
    "timerWheelEnable": "true",
    "mappedFileSizeTimerLog": "5200",
    "timerFlushIntervalMs": "60000",  # each goes through the whole wheel, which nobody reads
    "flushConsumerOffsetInterval": "500",
}
_REPLAY_TIMEOUT_S = 300
_HOLD = "import sys; print('here', flush=True); sys.stdin.read()"


class Served:
    """A broker with its name server, which can be killed and started again in the same network."""

    def __init__(
        self,
        version: str,
        root: Path,
        scratch: Path,
        settings: Mapping[str, str],
        files: Mapping[str, str],
        network: int,
    ) -> None:
        self.version = version
        self._root = root
        self._scratch = scratch
        self._settings = {**SETTINGS, **settings}
        self._files = files
        self._network = network
        self._jvm: Jvm | None = None
        self._starts = 0
        self._asked = 0

    def start(self) -> None:
        """Start it, again after `kill` or `stop`."""
        self._starts += 1
        self._asked = 0
        scratch = self._scratch / f"start-{self._starts}"
        (scratch / "conf").mkdir(parents=True)
        for name, text in self._files.items():
            (scratch / "conf" / name).write_text(text, encoding="utf-8")
        arguments = ["serve", str(self._root)]
        self._jvm = Jvm(self.version, scratch, self._settings, arguments, whole=True, network=self._network)
        self._jvm.wait_ready()

    def declare(self, topic: str, queues: int) -> None:
        """Make a topic, or register it again after a start."""
        self._ask("topic", topic, str(queues))

    def declare_batch(self, topic: str) -> None:
        """Make a topic with a batch consume queue."""
        self._ask("batch-topic", topic)

    def send_timers(self, topic: str, count: int, delay_ms: int) -> None:
        """Send messages that are due some time from now on (5.x)."""
        self._ask("timers", topic, str(count), str(delay_ms))

    def permit(self, topic: str, permission: int) -> None:
        """Set the permission of a topic (`PermName`): 4 is to read only."""
        self._ask("permission", topic, str(permission))

    def fill_disk(self, *, full: bool) -> None:
        """Let it find its disk full, or no longer full."""
        self._ask("disk", "full" if full else "ok")

    def pause(self) -> None:
        """Let it stand still, as in a long collection of garbage."""
        if self._jvm is not None:
            os.kill(self._jvm.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on after `pause`."""
        if self._jvm is not None:
            os.kill(self._jvm.pid, signal.SIGCONT)

    def consume(self, topic: str, count: int, group: str | None = None) -> list[dict[str, Any]]:
        """All messages of a topic, at least `count`, as a real consumer gets them, by default of a new group."""
        file = self._scratch / f"consumed-{self._starts}-{self._asked}.json"
        self._ask("consume", group or file.stem, topic, str(count), str(file))
        found: list[dict[str, Any]] = json.loads(file.read_bytes())
        return found

    def program(self, *words: object) -> list[str]:
        """A command line in the broker's network."""
        return [sys.executable, str(_LOOPBACK), JOIN, str(self._network), *map(str, words)]

    def command(self, *arguments: object) -> list[str]:
        """The command line of rmqtool in the broker's network."""
        return self.program(sys.executable, "-m", "rmqtool", *arguments)

    def replay(self, source: Path, *options: object) -> subprocess.CompletedProcess[str]:
        """Run `rmqtool replay` against it; in this process where that may enter its network, which takes root."""
        if os.geteuid() != 0:
            command = self.command("replay", source, "--nameserver", NAME_SERVER, *options)
            return subprocess.run(command, capture_output=True, text=True, timeout=_REPLAY_TIMEOUT_S, check=False)
        words: tuple[str | Path, ...] = ("replay", source, "--nameserver", NAME_SERVER, *map(str, options))
        with open("/proc/self/ns/net", "rb") as ours, open(f"/proc/{self._network}/ns/net", "rb") as its:
            enter(its)
            try:
                found = rmqtool(*words)
            finally:
                enter(ours)
        return subprocess.CompletedProcess(words, found.status, found.out, found.err)

    def kill(self) -> None:
        """End it as ``kill -9`` does."""
        if self._jvm is not None:
            self._jvm.kill()

    def stop(self) -> None:
        """Let it end cleanly."""
        if self._jvm is not None:
            self._jvm.finish()

    def _ask(self, *words: str) -> None:
        self._asked += 1
        if self._jvm is None:
            raise HarnessError("the broker is not started")
        self._jvm.ask("\t".join(words), f"harness: done {self._asked}\n")


@contextmanager
def served(
    version: str, root: Path, settings: Mapping[str, str] | None = None, files: Mapping[str, str] | None = None
) -> Iterator[Served]:
    """Run a broker of a release on `root`, with `files` in its directory conf; it is killed at the end."""
    root.mkdir(exist_ok=True)
    with TemporaryDirectory(prefix="rmqtool-served-") as scratch, _network() as network:
        broker = Served(version, root, Path(scratch), settings or {}, files or {}, network)
        try:
            broker.start()
            yield broker
        finally:
            broker.kill()


@contextmanager
def _network() -> Iterator[int]:
    """A process that holds a network with nothing but loopback; its id."""
    command = [sys.executable, str(_LOOPBACK), sys.executable, "-c", _HOLD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        try:
            if holder.stdout is None or holder.stdout.readline() != "here\n":
                if holder.wait(10) == UNAVAILABLE:
                    raise HarnessUnavailable("a broker that serves needs a network namespace of its own (Linux, root)")
                raise HarnessError("no network for the broker")
            yield holder.pid
        finally:
            holder.kill()


def wait_for(what: str, is_so: Any, patience: float = 60) -> None:
    """Return when `is_so` says so."""
    deadline = time.monotonic() + patience
    while not is_so():
        if time.monotonic() > deadline:
            raise HarnessError(f"{what}: not within {patience} s")
        time.sleep(0.01)
