"""A quiet Spark context: the JVM's output goes to a file, and errors become a sentence."""

from __future__ import annotations

import atexit
import logging
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rmqtool
from rmqtool.base.errors import RmqtoolError
from rmqtool.base.new_files import own_directory
from rmqtool.spark.gateway import Launch, is_submitted, spark_conf

if TYPE_CHECKING:
    from pyspark import SparkContext

_PACKAGE = Path(rmqtool.__file__).parent


def is_on_this_machine(master: str) -> bool:
    """Whether a master starts its workers here, as children of this process."""
    return master.startswith("local")


def package_zip(directory: str) -> Path:
    """A zip of this package in a directory, `rmqtool.formats` included wherever it stands."""
    path = Path(directory, "rmqtool.zip")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for folder, _, files in os.walk(_PACKAGE, followlinks=True):
            for name in sorted(files):
                if name.endswith(".py"):
                    file = Path(folder, name)
                    archive.write(file, Path(_PACKAGE.name, file.relative_to(_PACKAGE)))
    return path


def ship(context: SparkContext) -> None:
    """Send the package to the executors of a context, once."""
    _ship(context.applicationId, context)


@cache
def _ship(application: str, context: SparkContext) -> None:
    stack = ExitStack()
    atexit.register(stack.close)  # executors that come later fetch it too
    context.addPyFile(str(package_zip(stack.enter_context(own_directory("rmqtool-package-")))))


def other_python(context: SparkContext) -> str | None:
    """The Python of the PATH, where a session on this machine takes it though it is of another environment."""
    if not is_on_this_machine(context.master) or context.getConf().get("spark.pyspark.python"):
        return None
    found = shutil.which("python3") or "python3"
    is_ours = os.path.dirname(found) == os.path.dirname(sys.executable)
    return None if "PYSPARK_PYTHON" in os.environ or is_ours else found


def share_python_path() -> None:
    """Let workers that inherit this process's environment import this very package."""
    parent = str(_PACKAGE.parent)
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if parent not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([parent, *filter(None, paths)])


_LOG4J = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""
_LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",  # rows never come to the JVM; measured: 272 MiB
    "spark.python.daemon.module": "rmqtool.spark.daemon",  # starts in half the time
}
_ALWAYS = {
    "spark.app.name": "rmqtool",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # A context that lives for seconds: it starts a third sooner with a small compiler and one collector thread.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}
_ALL_CORES = "local[*]"
_MODULE = re.compile(r"No module named '([\w.]+)'")
_NO_WORKER = re.compile(r"\.daemon's|Python worker (?:exited unexpectedly|failed to connect)")
_NO_PROGRAM = re.compile(r'Cannot run program "([^"]+)"')
_CAUSE = re.compile(r"^(?:: |Caused by: )?(?:[\w$]+\.)+[\w$]*(?:Exception|Error): (.+)$", re.MULTILINE)
_GREETINGS = ("WARNING:", "NOTE:", "Using ", "Picked up ")


class SparkError(RmqtoolError):
    """Spark could not start, or could not finish the job."""

    kind = "spark"


@contextmanager
def starting_spark(master: str | None, conf: Mapping[str, str]) -> Iterator[Callable[[], AbstractContextManager[Any]]]:
    """Start a JVM in the background; yields a function that waits for it and makes a SparkContext.

    Context and JVM are ended with the context's block, at the latest with this one. Raises JavaError and SparkError.
    Without a `master` it is all cores of this machine; `conf` overrides our settings. Under spark-submit its JVM and
    settings are used: only a `master` and `conf` override these.
    """
    try:
        import pyspark  # noqa: F401 - whether it is there
    except ImportError as error:
        hint = "pip install 'rmqtool[spark]', or use --engine local, which needs neither Spark nor Java"
        raise SparkError("pyspark is not installed", hint=hint) from error
    folder = Path(tempfile.mkdtemp(prefix="rmqtool-spark-"))
    log = folder / "spark.log"
    keeps_log = False
    try:
        settings = _settings(master, conf, folder)
        with _quiet_py4j(), closing(Launch(settings, log)) as launch:
            yield lambda: _running(settings, launch, log)
    except SparkError as error:
        keeps_log = log.exists() and log.stat().st_size > 0
        if keeps_log and error.hint is None:
            error.hint = f"Spark's own log: {log}"
        raise
    finally:
        if not keeps_log:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def spark_context(master: str | None, conf: Mapping[str, str]) -> Iterator[Any]:
    """A SparkContext with its own JVM, both ended with the block; waits until it is ready."""
    with starting_spark(master, conf) as start, start() as context:
        yield context


@contextmanager
def _quiet_py4j() -> Iterator[None]:
    """Silence py4j, which logs a trace of each interruption, also to the root logger."""
    root, handler = logging.getLogger(), logging.NullHandler()
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)


def failure(error: Exception) -> SparkError:
    """The error of a failed job, in a sentence taken from Java's and Python's traces."""
    text = str(error)
    if "PYTHON_VERSION_MISMATCH" in text:
        versions = re.findall(r"(?:Python in worker|worker).{0,40}?(\d+\.\d+)", text)
        theirs = f"{versions[0]}, not " if versions else "not "
        ours = f"{sys.version_info[0]}.{sys.version_info[1]}"
        message = f"the workers' Python is {theirs}{ours} as here: Spark needs the same"
        return SparkError(message, hint="set PYSPARK_PYTHON to a Python of this version that the workers have")
    if match := _NO_PROGRAM.search(text):
        message = f"the workers have no program {match[1]}"
        return SparkError(message, hint="set PYSPARK_PYTHON to the Python that the workers have")
    if match := _MODULE.search(text):
        hint = (
            "install numpy, pyarrow, isal, zlib-ng and construct in the workers' Python, "
            "or send an environment: docs/export.md"
        )
        return SparkError(f"the workers' Python has no module {match[1]}", hint=hint)
    if "No space left on device" in text:
        hint = "Spark keeps its own files in SPARK_LOCAL_DIRS (default: /tmp)"
        return SparkError("no space is left on a disk that Spark uses", hint=hint)
    if "SparkEnv" in text and "is null" in text:
        message = "Spark was ended while it started: its master does not answer, or has refused it"
        return SparkError(message, hint="see whether --master is right, and can be reached from here")
    causes = _CAUSE.findall(text)
    if causes and _NO_WORKER.search(causes[-1]):
        python = os.environ.get("PYSPARK_PYTHON", "python3")
        hint = "set PYSPARK_PYTHON to a Python of the same version as here, with pyspark's and rmqtool's dependencies"
        return SparkError(f"the workers' Python, {python}, does not start or was ended from outside", hint=hint)
    return SparkError(f"Spark failed: {(causes or text.strip().splitlines() or ['no reason is given'])[-1]}")


def _settings(master: str | None, conf: Mapping[str, str], folder: Path) -> dict[str, str]:
    if is_submitted():
        return {**({} if master is None else {"spark.master": master}), **conf}
    master = master or _ALL_CORES
    (folder / "log4j2.properties").write_text(_LOG4J)
    settings = {"spark.master": master, **_ALWAYS}
    settings["spark.driver.extraJavaOptions"] += f" -Dlog4j2.configurationFile=file:{folder / 'log4j2.properties'}"
    if is_on_this_machine(master):
        settings.update(_LOCAL)
        # Else Spark takes `python3` from the PATH, which is another than that of a virtual environment.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        share_python_path()
    return {**settings, **conf}


@contextmanager
def _running(settings: Mapping[str, str], launch: Launch, log: Path) -> Iterator[Any]:
    from py4j.protocol import Py4JError
    from pyspark import SparkContext
    from pyspark.errors import PySparkException

    context = None
    try:
        gateway = launch.gateway()
        with _own_interruption():
            context = SparkContext(conf=spark_conf(settings), gateway=gateway)
        if server := getattr(context, "_accumulatorServer", None):
            server.handle_error = lambda *_: None  # its connection ends with the JVM, which is reported elsewhere
        if is_submitted() or not is_on_this_machine(context.master) or context.master.startswith("local-cluster"):
            ship(context)
        yield context
    except (Py4JError, PySparkException, ConnectionError) as error:
        if launch.was_ended:
            hint = "a process that the system ends has often met its memory limit; --engine local needs no JVM"
            raise SparkError("Spark's JVM was ended from outside", hint=hint) from error
        if "JAVA_GATEWAY_EXITED" in str(error):
            raise _not_started(launch, log) from error
        raise failure(error) from error
    finally:
        _stop(context, launch)


@contextmanager
def _own_interruption() -> Iterator[None]:
    """Keep our handler of Ctrl-C: pyspark's first calls Java, which fails during another call."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if handler is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)


def _stop(context: Any, launch: Launch) -> None:
    """End context and JVM in whatever state they are."""
    from pyspark import SparkContext

    if context is not None:
        _let_go_of_accumulators(context)
        with suppress(Exception):
            context.stop()
    launch.close()
    if launch.is_ours:
        SparkContext._gateway = SparkContext._jvm = None  # another context in this process starts another JVM


def _let_go_of_accumulators(context: Any) -> None:
    """Do not wait for the accumulator server, which checks once a second whether to end: we have no accumulators.

    A server with a socket in a directory is waited for, as it removes the socket at its end.
    """
    server = getattr(context, "_accumulatorServer", None)
    if server is not None and isinstance(server.server_address, tuple):
        context._accumulatorServer = None
        threading.Thread(target=server.shutdown, daemon=True).start()


def _not_started(launch: Launch, log: Path) -> SparkError:
    """The error for a JVM that did not start, with the first line of its output that is no usual greeting."""
    if launch.ended_without_error:
        arguments = os.environ.get("PYSPARK_SUBMIT_ARGS")
        hint = f"PYSPARK_SUBMIT_ARGS is {arguments!r}: unset it" if arguments else None
        return SparkError("Spark's JVM ended before it was ready, and reported no error", hint=hint)
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
    words = next((line for line in lines if line and not line.startswith(_GREETINGS)), "it said nothing")
    return SparkError(f"Spark's JVM did not start: {words}")
