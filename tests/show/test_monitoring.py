"""What monitoring and code hosts read: OpenMetrics, the answer of a plug-in, SARIF."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rmqtool.base.errors import Exit, RmqtoolError
from rmqtool.inspect.overview import overview_of
from rmqtool.show.monitoring import Metrics, PluginStatus, unknown_answer
from rmqtool.store.store import open_store
from tests.commands.many_queues import many_queues
from tests.commands.running import Result, rmqtool
from tests.conftest import GoldenStore
from tests.unchanged import unchanged
from tests.verify.damages import log_file, overwrite
from tests.verify.small_store import small_store

SAMPLE = re.compile(r'([a-z_]+)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\[\\n"])*",?)+)\})? (-?[0-9.e+]+)')
COMMENT = re.compile(r"# (TYPE|UNIT|HELP) ([a-z_]+) (.+)")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return small_store(tmp_path / "store")


@pytest.fixture
def damaged(store: Path) -> Path:
    overwrite(store, f"commitlog/{log_file(store, 0).name}", 100, b"\0" * 40)
    return store


def run(command: str, store: Path, form: str) -> Result:
    with unchanged(store):
        return rmqtool(command, store, "--format", form)


def samples(text: str) -> dict[tuple[str, str], float]:
    """Each sample by name and labels, of a text that keeps the rules of OpenMetrics."""
    found: dict[tuple[str, str], float] = {}
    families: list[str] = []
    lines = text.splitlines()
    assert (lines[-1], text[-1]) == ("# EOF", "\n")
    for line in lines[:-1]:
        if comment := COMMENT.fullmatch(line):
            kind, name, value = comment.groups()
            assert kind != "UNIT" or name.endswith(f"_{value}")
            if kind == "TYPE":
                assert name not in families
                families.append(name)
            assert name == families[-1]
            continue
        sample = SAMPLE.fullmatch(line)
        assert sample, line
        name, labels, value = sample.groups()
        assert name == families[-1]
        assert (name, labels) not in found
        found[name, labels] = float(value)
    return found


def value_of(text: str, name: str, *labels: str) -> float:
    """The one sample that has the labels."""
    (value,) = [
        value for (each, shown), value in samples(text).items() if each == name and all(one in shown for one in labels)
    ]
    return value


@pytest.mark.slow
def test_figures_of_a_verification(store: Path) -> None:
    """Verdict, findings by code, and what a start would do."""
    sound = run("verify", store, "openmetrics")
    assert sound.status == Exit.OK
    assert value_of(sound.out, "rmqtool_verify_verdict", 'rmqtool_verify_verdict="clean"') == 1
    overwrite(store, f"commitlog/{log_file(store, 0).name}", 100, b"\0" * 40)
    bad = run("verify", store, "openmetrics")
    assert bad.status == Exit.FINDINGS
    assert value_of(bad.out, "rmqtool_verify_verdict", 'rmqtool_verify_verdict="corrupt"') == 1
    assert value_of(bad.out, "rmqtool_verify_verdict", 'rmqtool_verify_verdict="clean"') == 0
    assert value_of(bad.out, "rmqtool_start_refused") == 0
    document = rmqtool("verify", store, "--json").document
    for finding in document["findings"]:
        assert f'code="{finding["code"]}"' in bad.out
    assert value_of(bad.out, "rmqtool_verify_messages") == document["result"]["messages"]


def test_figures_of_an_overview(store: Path) -> None:
    """What the JSON has: sizes, offsets, lag."""
    figures, result = run("inspect", store, "openmetrics"), rmqtool("inspect", store, "--json").document["result"]
    assert value_of(figures.out, "rmqtool_commit_log_max_offset_bytes") == result["commit_log"]["max_offset"]
    for queue in result["queues"]:
        labels = f'topic="{queue["topic"]}"', f'queue_id="{queue["queue_id"]}"'
        assert value_of(figures.out, "rmqtool_queue_max_offset", *labels) == queue["max_offset"]


def test_labels_of_any_text() -> None:
    """Names may hold what the format needs to be escaped."""
    metrics = Metrics("s", "verify")
    metrics.add("a", "b\nc", 1, topic='"\\\n|\ud800')
    lines = ["# TYPE a gauge", "# HELP a b\\nc", 'a{store="s",topic="\\"\\\\\\n|?"} 1']
    assert metrics.text().splitlines()[:3] == lines


@pytest.mark.slow
def test_a_plug_in(store: Path) -> None:
    """One line with figures; its statuses are those of plug-ins."""
    for command in ("verify", "inspect", "status"):
        answer = run(command, store, "nagios")
        assert answer.status == PluginStatus.OK
        assert re.fullmatch(r"RMQTOOL OK - [^|]+ \| (\w+=[0-9.]+(B|s|%)? ?)+\n", answer.out), answer.out
    (store / "abort").touch()
    assert run("verify", store, "nagios").status in (PluginStatus.WARNING, PluginStatus.CRITICAL)
    log_file(store, 0).write_bytes(b"")
    answer = run("verify", store, "nagios")
    assert answer.status == PluginStatus.CRITICAL
    [line] = answer.out.splitlines()
    assert "the broker would refuse to start: " in line
    assert "commitlog.empty-file" in line


@pytest.mark.parametrize("command", ["verify", "inspect", "status"])
@pytest.mark.parametrize(
    "words",
    [
        ("no/such/store", "--format", "nagios"), (".", "--format=nagios"),
        (".", "--format", "nagios", "--nonsense"), (".", "--format", "nagios", "--broker-conf", "no.conf"),
        ("--format", "nagios"),
    ],
)  # fmt: skip
def test_a_plug_in_that_cannot_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, words: tuple[str, ...]
) -> None:
    """An unmounted disk, what is no store, a wrong command line: one line, and UNKNOWN."""
    monkeypatch.chdir(tmp_path)
    answer = rmqtool(command, *words)
    assert (answer.status, len(answer.out.splitlines())) == (PluginStatus.UNKNOWN, 1)
    assert answer.out.startswith("RMQTOOL UNKNOWN - ")


def test_a_plug_in_that_the_environment_asks_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As each option."""
    monkeypatch.setenv("RMQTOOL_VERIFY_FORMAT", "nagios")
    assert rmqtool("verify", tmp_path).out.startswith("RMQTOOL UNKNOWN - ")
    assert rmqtool("inspect", tmp_path).status == Exit.NOT_A_STORE


def test_a_plug_in_and_names_with_control_characters(store: Path) -> None:
    """They stand in the line as escapes: a monitoring server takes no NUL."""
    for name in ("a\tb\nc", "a|b", "\x1b[31m", "x\u202ey"):
        (store / "commitlog" / name).touch()
    for command in ("verify", "inspect", "status"):
        [line] = run(command, store, "nagios").out.splitlines()
        assert line.isprintable()
        assert line.count("|") == 1
    assert unknown_answer("a\0b | \x07").text == "RMQTOOL UNKNOWN - a\\x00b / \\x07\n"


LAG, USED, AGE = 358, 83.5, 600.0


@pytest.mark.parametrize(
    ("limits", "status"),
    [
        ((), PluginStatus.OK),
        (("--warning", "lag=358", "--critical", "lag=1000"), PluginStatus.OK),
        (("--warning", "lag=357", "--critical", "lag=1000"), PluginStatus.WARNING),
        (("--warning", "lag=100", "--critical", "lag=357"), PluginStatus.CRITICAL),
        (("--critical", "357"), PluginStatus.CRITICAL),
        (("--warning", "disk=83%"), PluginStatus.WARNING),
        (("--warning", "disk=80,lag=10", "--critical", "disk=83.4"), PluginStatus.CRITICAL),
        (("--critical", "disk=83.5"), PluginStatus.OK),
        (("--warning", "age=9m"), PluginStatus.WARNING),
        (("--warning", "age=11m", "--warning", "lag=1000"), PluginStatus.OK),
    ],
)
def test_limits(store: Path, monkeypatch: pytest.MonkeyPatch, limits: tuple[str, ...], status: PluginStatus) -> None:
    """What is above a limit decides, and stands in the line with its limits."""
    measured = {"lag": LAG, "disk": USED, "age": AGE}
    monkeypatch.setattr("rmqtool.show.monitoring._measured", lambda overview, now: measured)
    answer = rmqtool("inspect", store, "--format", "nagios", *limits)
    assert answer.status == status
    assert "lag=358" in answer.out
    assert ("--critical" not in limits) or re.search(r"(lag|disk)=[0-9.]+%?;\d*;[0-9.]+", answer.out)


@pytest.mark.parametrize(
    ("limits", "status"),
    [
        ((), PluginStatus.OK),
        (("--warning", "lag=20"), PluginStatus.OK),
        (("--warning", "lag=19"), PluginStatus.WARNING),
        (("--warning", "lag=1,disk=1%", "--critical", "lag=19"), PluginStatus.CRITICAL),
        (("--critical", "age=1m"), PluginStatus.CRITICAL),
    ],
)
def test_limits_of_a_status(tmp_path: Path, limits: tuple[str, ...], status: PluginStatus) -> None:
    """As those of inspect."""
    store = many_queues(tmp_path / "many", 20)
    answer = rmqtool("status", store, "--format", "nagios", *limits)
    assert answer.status == status
    assert answer.out.startswith(f"RMQTOOL {status.name} - broker not running")
    assert " lag=20" in answer.out


def test_a_lag_that_is_not_known_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """UNKNOWN where it may be above a limit; above it is above it."""
    store = many_queues(tmp_path / "many", 20)
    monkeypatch.setattr("rmqtool.report.status.SECONDS", 0)
    monkeypatch.setattr("rmqtool.report.status._ALWAYS", 12)
    assert rmqtool("status", store, "--format", "nagios").status == PluginStatus.OK
    assert rmqtool("status", store, "--format", "nagios", "--warning", "lag=10").status == PluginStatus.UNKNOWN
    assert rmqtool("status", store, "--format", "nagios", "--warning", "lag=2").status == PluginStatus.WARNING
    assert rmqtool("status", store, "--warning", "lag=2").status == Exit.USAGE
    assert rmqtool("status", store, "--watch", "--format", "nagios").status == PluginStatus.UNKNOWN


def test_limits_of_what_is_not_known(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No figure, no answer: UNKNOWN, unless something else is wrong."""
    monkeypatch.setattr(
        "rmqtool.show.monitoring._measured", lambda overview, now: {"lag": 5, "disk": None, "age": None}
    )
    for limits, status in ((("age=5m",), PluginStatus.UNKNOWN), (("age=5m", "lag=4"), PluginStatus.WARNING),
                           (("lag=6",), PluginStatus.OK)):  # fmt: skip
        words = [word for limit in limits for word in ("--warning", limit)]
        assert rmqtool("inspect", store, "--format", "nagios", *words).status == status


@pytest.mark.parametrize("limit", ["lags=4", "lag=x", "disk=high", "age=4", "lag="])
def test_wrong_limits(store: Path, limit: str) -> None:
    """They are named."""
    answer = rmqtool("inspect", store, "--format", "nagios", "--warning", limit)
    assert answer.status == PluginStatus.UNKNOWN
    assert rmqtool("inspect", store, "--warning", "lag=4").status == Exit.USAGE


def test_the_lag_of_a_store(golden_store: GoldenStore) -> None:
    """It is the sum of what groups have not consumed, the disk is that of the store."""
    root = golden_store("5.3.3-shop")
    overview = overview_of(open_store(root))
    lags = [lag for each in overview.snapshot.committed.offsets if (lag := overview.lag(each) or 0) > 0]
    assert sum(lags)
    for limit, status in ((sum(lags), PluginStatus.OK), (sum(lags) - 1, PluginStatus.CRITICAL)):
        answer = rmqtool("inspect", root, "--format", "nagios", "--critical", f"lag={limit}")
        assert answer.status == status, answer.out
    assert f"lag={sum(lags)};;{limit}" in answer.out
    assert re.search(r"disk=\d", answer.out)
    assert re.search(r"age=\d+", answer.out)


@pytest.mark.slow
def test_sarif(damaged: Path) -> None:
    """Each finding is a result of its rule, in a file below the store."""
    done = run("verify", damaged, "sarif")
    assert done.status == Exit.FINDINGS
    (report,) = json.loads(done.out)["runs"]
    rules = report["tool"]["driver"]["rules"]
    findings = rmqtool("verify", damaged, "--json").document["findings"]
    assert [result["ruleId"] for result in report["results"]] == [finding["code"] for finding in findings]
    for result, finding in zip(report["results"], findings, strict=True):
        assert rules[result["ruleIndex"]]["id"] == finding["code"]
        assert result["level"] == {"info": "note"}.get(finding["severity"], finding["severity"])
        place = result["locations"][0]["physicalLocation"]["artifactLocation"] if "locations" in result else None
        assert place == (finding["file"] and {"uri": finding["file"], "uriBaseId": "STORE"})
    assert report["originalUriBaseIds"]["STORE"]["uri"] == f"file://{damaged}/"


@pytest.mark.parametrize(
    ("command", "form", "other"),
    [("verify", "junit", "--json"), ("verify", "nagios", "--json"), ("inspect", "openmetrics", "--json"),
     ("inspect", "nagios", "--scan")],
)  # fmt: skip
def test_one_form_at_a_time(store: Path, command: str, form: str, other: str) -> None:
    """Which of them was meant is not guessed."""
    done = rmqtool(command, store, "--format", form, other)
    assert done.status == (PluginStatus.UNKNOWN if other == "--scan" else Exit.USAGE)
    assert f"--format {form} does not go with {other}" in done.out + done.err


def test_figures_are_of_whole_stores(store: Path) -> None:
    done = rmqtool("inspect", store / "commitlog", "--format", "openmetrics")
    assert done.status == Exit.USAGE
    assert "is for a whole store" in done.err
    done = rmqtool("inspect", store / "commitlog", "--format", "nagios")
    assert done.status == PluginStatus.UNKNOWN
    assert "is for a whole store" in done.out


def test_a_plug_in_of_what_could_not_be_read(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read that failed, whoever could do without it, is no OK, in line and status."""
    monkeypatch.setattr("rmqtool.show.monitoring.failed_so_far", lambda: [RmqtoolError("cannot read")])
    for command in ("verify", "inspect", "status"):
        answer = run(command, store, "nagios")
        assert answer.status == PluginStatus.UNKNOWN
        assert answer.out.startswith("RMQTOOL UNKNOWN - ")
