"""One Java process of the harness: its options, its log, its end."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

from tests.copies import copied
from tests.real_broker.classes import class_path
from tests.real_broker.loopback import JOIN, SECOND_ADDRESS, UNAVAILABLE
from tests.real_broker.shared_classes import archive_of, making, taking
from tests.real_broker.tools import HarnessError, HarnessUnavailable, cache, tool
from tests.real_broker.versions import features

TIMEOUT_S = 240
_WHOLE_TIMEOUT_S = 800  # a whole broker takes one to two minutes, and waits for what its clients do
_READY = "harness: ready"
_NO_NETWORK = "a whole broker needs a network namespace of its own (Linux, root)"
_POLL_S = 0.01
_LAST_LINES = 40
_OPENED = ("java.nio", "java.lang", "java.lang.reflect", "java.util", "java.net", "java.util.concurrent")
_OPENED_INTERNALS = ("sun.nio.ch", "jdk.internal.ref", "jdk.internal.misc")
OPENED = tuple(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in (*_OPENED, *_OPENED_INTERNALS))
QUIET_DISK = (  # how full this machine's disk is must not matter
    "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",
    "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.99",
)
_WHOLE_SETTINGS = {
    # Until this many ms have passed since its start, TransactionMetricsFlushService (5.x) spins; by default 3000.
    "transactionMetricFlushInterval": "100",
}
_TLS = "tls.server.mode"
_LOGBACK = Path(__file__).parent / "logback.xml"
_LOOPBACK = Path(__file__).parent / "loopback.py"


class Jvm:
    """A run of the harness's main class; `scratch` takes its settings, its log and what it thinks is home.

    A `whole` broker runs with a name server and clients, where there is no network but loopback: that of the process
    `network`, where one is given. With `user`, an id of user and group, it runs as that one; this process must be root.
    """

    def __init__(
        self,
        version: str,
        scratch: Path,
        settings: dict[str, str],
        arguments: list[str],
        whole: bool = False,
        user: int | None = None,
        network: int | None = None,
    ) -> None:
        self._log = scratch / "jvm.log"
        self._timeout_s = _WHOLE_TIMEOUT_S if whole else TIMEOUT_S
        settings_file = scratch / "store.properties"
        written = {**_WHOLE_SETTINGS, **settings} if whole else settings
        settings_file.write_text("".join(f"{key}={value}\n" for key, value in written.items()), encoding="utf-8")
        classes = class_path(version, whole, tiered=arguments[0].startswith("tiered-"))
        if user is not None:
            classes = _readable(classes, scratch)
            _give(scratch, user)
        self._shared = _Shared(version, classes, scratch) if user is None else None
        options = _options(features(version, settings), scratch, settings_file, classes)
        options += self._shared.options if self._shared else []
        command = [tool("java"), *options, "WholeMain" if whole else "Main", *arguments]
        if network is not None:
            command = [sys.executable, str(_LOOPBACK), JOIN, str(network), *command]
        elif whole:
            traced = [SECOND_ADDRESS] if settings.get("traceTopicEnable") == "true" else []
            command = [sys.executable, str(_LOOPBACK), *traced, *command]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                cwd=scratch,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                user=user,
                group=user,
                extra_groups=None if user is None else (),
            )

    def __enter__(self) -> "Jvm":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def wait_ready(self) -> None:
        """Return when the store is up."""
        self._wait_for(_READY, "ready")

    def ask(self, line: str, answer: str) -> None:
        """Write a line to its input, and return when its log holds the answer."""
        if self._process.stdin is not None:
            self._process.stdin.write(f"{line}\n".encode())
            self._process.stdin.flush()
        self._wait_for(answer, f"done with {line!r}")

    def _wait_for(self, sign: str, what: str) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while sign not in self._log.read_text(encoding="utf-8", errors="replace"):
            if self._process.poll() is not None:
                if self._process.returncode == UNAVAILABLE:
                    raise HarnessUnavailable(_NO_NETWORK)
                raise self._error(f"ended with {self._process.returncode} before it was {what}")
            if time.monotonic() > deadline:
                raise self._error(f"is not {what} after {TIMEOUT_S} s")
            time.sleep(_POLL_S)

    def finish(self) -> None:
        """Close its input, which ends a held store, and wait for a successful end."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            status = self._process.wait(self._timeout_s)
        except subprocess.TimeoutExpired:
            raise self._error(f"has not ended after {self._timeout_s} s") from None
        if status == UNAVAILABLE:
            raise HarnessUnavailable(_NO_NETWORK)
        if status != 0:
            raise self._error(f"ended with {status}")
        if self._shared:
            self._shared.keep()

    def kill(self) -> None:
        """End it at once, as ``kill -9`` does; nothing when it has ended."""
        self._process.kill()
        self._process.wait(TIMEOUT_S)
        if self._process.stdin is not None:
            self._process.stdin.close()

    def _error(self, what: str) -> HarnessError:
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return HarnessError("\n".join([f"the Java process {what}; its last lines:", *lines[-_LAST_LINES:]]))


class _Shared:
    """The classes of a class path as the first JVM that ends by itself leaves them."""

    def __init__(self, version: str, classes: str, scratch: Path) -> None:
        self._archive = archive_of(cache() / version, classes)
        self._new = None if self._archive.exists() else scratch / "classes.jsa"

    @property
    def options(self) -> list[str]:
        """Those of a JVM that takes the classes from the archive, or makes it."""
        return taking(self._archive) if self._new is None else making(self._new)

    def keep(self) -> None:
        """Put a new archive where the next JVM looks; another may have done so meanwhile."""
        if self._new is not None and self._new.exists():
            whole = self._archive.with_name(f"{self._archive.name}.{os.getpid()}")
            shutil.copyfile(self._new, whole)
            whole.replace(self._archive)


def _readable(classes: str, scratch: Path) -> str:
    """The class path with copies in `scratch` of what may lie in a directory that only root enters."""
    found = []
    for number, entry in enumerate(classes.split(":")):
        directory = Path(entry.removesuffix("/*"))
        target = scratch / "classes" / str(number)
        copied(directory, target)
        found.append(f"{target}/*" if entry.endswith("/*") else str(target))
    return ":".join(found)


def _give(scratch: Path, user: int) -> None:
    for path in (scratch, *scratch.rglob("*")):
        os.chown(path, user, user)


def _options(found: frozenset[str], scratch: Path, settings_file: Path, classes: str) -> list[str]:
    return [
        "-Xmx384m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",  # a run is short: compile fast rather than well
        *OPENED,
        "-XX:-UsePerfData",
        f"-Duser.home={scratch}",  # logs go below it
        f"-Drocketmq.home.dir={scratch}",
        f"-Djava.io.tmpdir={scratch}",  # so do the native libraries that lz4 and zstd unpack
        "-Dfile.encoding=UTF-8",
        f"-Dlogback.configurationFile={_LOGBACK}",
        f"-Drmq.logback.configurationFile={_LOGBACK}",
        *QUIET_DISK,
        *_without_tls(),
        f"-Dharness.settings={settings_file}",
        f"-Dharness.features={','.join(sorted(found))}",
        "-cp",
        classes,
    ]


def _without_tls() -> list[str]:
    """Else each server makes an RSA key when it starts: half of what a start takes, and nobody asks for it."""
    return [] if _TLS in os.environ.get("JAVA_TOOL_OPTIONS", "") else [f"-D{_TLS}=disabled"]
