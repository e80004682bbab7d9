"""Fixtures of all tests: stores that real brokers wrote, and the proof that reading changes none of them."""

from __future__ import annotations

import gc
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from functools import cache
from importlib.util import find_spec
from itertools import chain, count, groupby, zip_longest
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple
from unittest.mock import patch
from zlib import crc32

import pytest
from hypothesis import settings, strategies

from tests import bytecode
from tests.golden import stores
from tests.sampling import ALL, examples
from tests.unchanged import unchanged

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import Scheduling

GoldenStore = Callable[[str], Path]

_LONGEST_SHOWN = 20_000  # characters

_MARKERS = ("broker", "spark", "slow", "rare")
"""Those of tests that a quick run leaves out; the longest first."""
_QUICK_STORES = {"4.4.0-killed", "4.9.7-trimmed", "5.3.3-empty", "5.3.3-shop", "5.5.0-clean"}
"""Golden stores, one of each kind."""
_STORE_NAME = re.compile("|".join(map(re.escape, stores.names())))
_RUN_RELEASES = {"4.9.7", "5.5.0"}
"""Releases that tests start, in turns: the last of 4.x and the newest; what the others did, the golden stores hold."""
_RELEASE = re.compile(r"\d+\.\d+\.\d+")
_BUDGET = 0.15
"""CPU seconds of one quick test and of the processes that it starts."""


class Sample(NamedTuple):
    """Of the cases of one test, one in `every` is run, and no fewer than `least`; all in `make everything`."""

    every: int
    least: int


_QUICK_SAMPLE = {len(_MARKERS): Sample(3, least=2)}
_SAMPLES = {len(_MARKERS): Sample(2, least=2), _MARKERS.index("slow"): Sample(4, least=1)}
"""By the rank of a test."""
_ALL_CASES = Sample(1, least=1)
_HEADROOM = 6
"""On a busy machine the same work takes more CPU time, and the first test that needs a module pays for its import."""
_MAX_WORKERS = 8
SERVERS = {"cluster", "hdfs", "s3", "spark"}
"""Fixtures that are made once in each worker that needs them, and take longer than most modules."""
WITH_SERVERS = (
    ("tests/export/test_delta_table.py", "tests/other_machines/"),
    (
        "tests/spark/test_other_machines.py",
        "tests/spark/test_pool.py",
        "tests/spark/test_source.py",
        "tests/spark/test_sql.py",
    ),
)
"""How the modules begin whose tests use them: one worker does all of a group, which takes longest, and begins first."""
_PARSING = (
    "tests/findings/test_catalogue.py",
    "tests/findings/test_sentence.py",
    "tests/findings/test_unread_sentences.py",
    "tests/test_architecture.py",
    "tests/test_layers.py",
    "tests/words/",
)
"""Modules that look at each node of the sources, which are parsed once in one worker."""
_MEMORY = Path("/dev/shm")
_ROOM = 2 << 30
"""Bytes that must be free in memory for tests to keep their stores there; they need a tenth."""
_DISK = "RMQTOOL_TEST_DISK"
"""The variable with the directory for what stays on the disk."""

UNAVAILABLE = "no real broker: "
"""How the reason begins for which a test of the real releases was skipped."""

# People see times in the zone of their machine; what tests expect is in UTC.
os.environ["TZ"] = "UTC"
time.tzset()

# Where dateutil is not installed, pyarrow looks for it at nearly each call, which then takes ten times as long.
if find_spec("dateutil") is None:
    sys.modules["dateutil"] = None  # type: ignore[assignment]

# A shell's background jobs ignore SIGINT, and what the tests start would inherit that; a handler is not inherited.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # what runs under nohup
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# The same examples in each run; and no deadline, for the first example pays for imports, and machines are shared.
settings.register_profile("rmqtool", deadline=None, derandomize=True, max_examples=examples(100))
settings.register_profile("quick", settings.get_profile("rmqtool"), max_examples=20)
settings.load_profile("rmqtool")


@pytest.fixture(scope="session", autouse=True)
def _all_characters() -> None:
    """Have hypothesis make its table of characters: in a fresh clone that takes longer than a quick test may."""
    strategies.text().validate()


@pytest.fixture(autouse=True)
def _nobody_maps_stores(request: pytest.FixtureRequest) -> Iterator[None]:
    """Before this process writes a store, it would read the maps of all processes twice, which takes 20 ms.

    Tests of RocketMQ itself do so, as does every process that a test starts.
    """
    is_real = request.node.get_closest_marker("broker") is not None
    with nullcontext() if is_real else patch("rmqtool.transaction.session._PROC", Path("/nowhere")):
        yield


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> GoldenStore:
    """Give a golden store by name to copy from; unpacked once a session."""

    @cache
    def unpack(name: str) -> Path:
        return stores.unpack(name, tmp_path_factory.mktemp("golden"))

    return unpack


@pytest.fixture
def public_path() -> Iterator[Path]:
    """A temporary directory that every user may enter; those above `tmp_path` are for its owner alone."""
    with TemporaryDirectory() as directory:
        path = Path(directory)
        path.chmod(0o755)
        yield path


@pytest.fixture
def on_disk() -> Iterator[Path]:
    """A temporary directory on the disk, whose files are written, synced and renamed otherwise than those in memory."""
    with TemporaryDirectory(dir=os.environ.get(_DISK)) as directory:
        yield Path(directory)


@pytest.fixture
def golden_store(unpacked: GoldenStore) -> Iterator[GoldenStore]:
    """Give a golden store by name to read; after each test that did so, nothing in it must have changed."""
    with ExitStack() as stack:

        @cache
        def use(name: str) -> Path:
            return stack.enter_context(unchanged(unpacked(name)))

        yield use


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of `make quick`."""
    parser.addoption(
        "--quick",
        action="store_true",
        help=f"run only tests without a marker of {', '.join(_MARKERS)}, on one golden store of each kind; "
        f"each may take {_BUDGET} s of CPU time",
    )


def pytest_configure(config: pytest.Config) -> None:
    """A quick run has fewer examples of each property; stores are in memory, where they cost least.

    Among all tests those of the rooms that write a store keep theirs on the disk, see `on_disk`.
    """
    if config.getoption("--quick"):
        settings.load_profile("quick")
    else:
        os.environ.setdefault(_DISK, tempfile.gettempdir())  # workers inherit it, and so do those that they start
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        bytecode.prepare(config)
    if _has_room(_MEMORY):
        tempfile.tempdir = os.environ["TMPDIR"] = str(_MEMORY)


def _has_room(memory: Path) -> bool:
    """Whether stores have room there, and the programs that some tests write may run."""
    if not memory.is_dir() or shutil.disk_usage(memory).free < _ROOM:
        return False
    return not os.statvfs(memory).f_flag & os.ST_NOEXEC


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Two workers more than cores where tests wait for brokers: each second one of these waits."""
    return min((os.cpu_count() or 1) + 2 * (not config.getoption("--quick")), _MAX_WORKERS)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    """A worker does a module at a time, and those of a group of WITH_SERVERS and of _PARSING as if each were one."""
    if config.getvalue("dist") != "loadscope":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Modules(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            module = super()._split_scope(nodeid)
            return next((group[0] for group in (*WITH_SERVERS, _PARSING) if module.startswith(group)), module)

    return Modules(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose what is run, long modules first: no worker shall wait for another at the end.

    Modules that wait for Java take turns with those that compute, so that the cores are busy meanwhile.
    """
    chosen = _in_turns([item for item in items if (_is_quick if config.getoption("--quick") else _is_run)(item)])
    config.hook.pytest_deselected(items=list({*items} - {*chosen}))
    ranks: dict[Path, int] = {}
    for item in chosen:
        ranks[item.path] = min(ranks.get(item.path, len(_MARKERS)), _rank(item))
    sizes = Counter(item.path for item in chosen if _rank(item) == ranks[item.path])
    modules = sorted(ranks, key=lambda path: (ranks[path], -sizes[path]))
    waiting = sum(rank < _MARKERS.index("slow") for rank in ranks.values())
    turns = chain.from_iterable(zip_longest(modules[:waiting], modules[waiting:]))
    places = {path: place for place, path in enumerate(turns)}
    items[:] = sorted(chosen, key=lambda item: (not _is_with_servers(item.nodeid), places[item.path]))


def _is_with_servers(nodeid: str) -> bool:
    return any(map(nodeid.startswith, WITH_SERVERS))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector from going through thousands of tests again and again, while they are found too."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def _rank(item: pytest.Item) -> int:
    return next((rank for rank, marker in enumerate(_MARKERS) if item.get_closest_marker(marker)), len(_MARKERS))


def _is_quick(item: pytest.Item) -> bool:
    return _rank(item) == len(_MARKERS) and _QUICK_STORES.issuperset(_STORE_NAME.findall(item.name))


def _is_run(item: pytest.Item) -> bool:
    started = _RELEASE.findall(item.name) if item.get_closest_marker("broker") else []
    usual = _RUN_RELEASES.issuperset(started) and not item.get_closest_marker("rare")
    return usual or ALL in os.environ


def _in_turns(items: list[pytest.Item]) -> list[pytest.Item]:
    """Of the same long test for several releases, or stores of them, only one, not the same of each test.

    Of what then is left of many cases of one kind (`one_in`), one in so many; and of any table some. Who names files or
    tests gets all that is run of them.
    """
    if ALL in os.environ or not items:
        return items
    config = items[0].config
    if config.getoption("--quick"):
        return _some_of_each(items, _QUICK_SAMPLE)
    if config.args != config.getini("testpaths"):
        return items

    def kind_of(item: pytest.Item) -> str:
        return _RELEASE.sub("RELEASE", item.nodeid) if _rank(item) < len(_MARKERS) else item.nodeid

    groups = [(name, list(group)) for name, group in groupby(sorted(items, key=kind_of), key=kind_of)]
    chosen = {group[crc32(name.encode()) % len(group)] for name, group in groups}
    places: defaultdict[str, Iterator[int]] = defaultdict(count)
    items = [item for item in items if item in chosen and next(places[_test_of(item)]) % _every(item) == 0]
    return _some_of_each(items, _SAMPLES)


def _some_of_each(items: list[pytest.Item], samples: Mapping[int, Sample]) -> list[pytest.Item]:
    """Of the cases of each test those that `samples` have for its rank.

    In the order of a hash of their names: with each n-th of two tables crossed some pairs would never meet.
    """
    cases: defaultdict[tuple[str, Sample], list[pytest.Item]] = defaultdict(list)
    for item in items:
        cases[_test_of(item), samples.get(_rank(item), _ALL_CASES)].append(item)
    left = {
        item
        for (_, sample), group in cases.items()
        for item in sorted(group, key=lambda item: crc32(item.nodeid.encode()))[
            max(sample.least, ceil(len(group) / sample.every)) :
        ]
    }
    return [item for item in items if item not in left]


def _test_of(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def _every(item: pytest.Item) -> int:
    marker = item.get_closest_marker("one_in")
    return marker.args[0] if marker else 1


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fail a test of a quick run that takes more than its budget.

    Without collecting garbage: what others left would be finalized wherever a test is, deep in JSON of it too.
    """
    before = _cpu_seconds()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
    taken = _cpu_seconds() - before
    marker = item.get_closest_marker("budget")
    budget: float = marker.args[0] if marker else _BUDGET
    if item.config.getoption("--quick") and taken > budget * _HEADROOM:
        pytest.fail(f"took {taken:.2f} s of CPU time, {budget} s are allowed: mark it slow", pytrace=False)


def _cpu_seconds() -> float:
    return sum(os.times()[:4])


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """Of large values show where they differ first: a difference of all lines of both can take hours to find."""
    if op != "==" or max(len(repr(left)), len(repr(right))) < _LONGEST_SHOWN:
        return None
    return ["both are large; they differ first at", *_difference(left, right)]


def _difference(left: object, right: object) -> list[str]:
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        left, right = dict(left), dict(right)
        keys = [key for key in {**left, **right} if key not in left or key not in right or left[key] != right[key]]
        return _at(keys[0], left.get(keys[0]), right.get(keys[0])) if keys else []
    if isinstance(left, Sequence) and isinstance(right, Sequence):
        number = next((i for i, (one, other) in enumerate(zip(left, right, strict=False)) if one != other), None)
        number = min(len(left), len(right)) if number is None else number
        return _at(f"{number} of {len(left)} and {len(right)}", left[number : number + 1], right[number : number + 1])
    return _at(type(left).__name__, left, right)


def _at(place: object, left: object, right: object) -> list[str]:
    return [str(place), *(repr(value)[:_LONGEST_SHOWN] for value in (left, right))]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say that broker tests did not run, and what to install."""
    reasons = [
        report.longrepr[2]
        for report in terminalreporter.stats.get("skipped", [])
        if isinstance(report.longrepr, tuple) and UNAVAILABLE in report.longrepr[2]
    ]
    if reasons:
        terminalreporter.section("live broker tests did NOT run", sep="!", red=True)
        terminalreporter.line(f"{len(reasons)} tests skipped. {reasons[0]}")
