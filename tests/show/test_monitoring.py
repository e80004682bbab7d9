"""What monitoring and code hosts read: OpenMetrics, the answer of a plug-in, SARIF."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rmqtool.base.errors import Exit
from rmqtool.show.nagios import PluginStatus
from rmqtool.show.open_metrics import Family
from tests.commands.running import Result, rmqtool
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
    family = Family("a", "b\nc")
    family.add(1, topic='"\\\n|\ud800')
    assert list(family.lines()) == ["# TYPE a gauge", "# HELP a b\\nc", 'a{topic="\\"\\\\\\n|?"} 1']


def test_a_plug_in(store: Path) -> None:
    """One line with figures; its statuses are those of plug-ins."""
    for command in ("verify", "inspect"):
        answer = run(command, store, "nagios")
        assert answer.status == PluginStatus.OK
        assert re.fullmatch(r"RMQTOOL OK - [^|]+ \| (\w+=[0-9.]+(B|s)? ?)+\n", answer.out), answer.out
    (store / "abort").touch()
    assert run("verify", store, "nagios").status == PluginStatus.WARNING
    log_file(store, 0).write_bytes(b"")
    answer = run("verify", store, "nagios")
    assert answer.status == PluginStatus.CRITICAL
    assert "the broker would refuse to start | " in answer.out.splitlines()[0]
    assert "error: commitlog.empty-file commitlog/" in answer.out


def test_a_plug_in_and_what_is_no_store(tmp_path: Path) -> None:
    """Any status above 3 is unknown to monitoring."""
    assert rmqtool("verify", tmp_path, "--format", "nagios").status > PluginStatus.UNKNOWN


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
    assert done.status == Exit.USAGE
    assert f"--format {form} does not go with {other}" in done.out + done.err


def test_figures_are_of_whole_stores(store: Path) -> None:
    done = rmqtool("inspect", store / "commitlog", "--format", "nagios")
    assert done.status == Exit.USAGE
    assert "is for a whole store" in done.err
