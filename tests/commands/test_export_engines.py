"""Which engine exports where nobody said it: Spark is for what it is worth starting for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from rmqtool.base.errors import UsageError
from rmqtool.commands import export
from rmqtool.commands.export import ExportChoices, export_engine
from rmqtool.show.output import Style

GIB = 1 << 30
NOT_GIVEN: dict[str, Any] = {
    "engine": "auto",
    "master": None,
    "conf": {},
    "jobs": None,
    "memory": None,
    "limit_rate": None,
}


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """One with pyspark and Java, where nothing was submitted."""
    monkeypatch.setattr(export, "find_spec", lambda name: name == "pyspark")
    monkeypatch.setenv("JAVA_HOME", "/java")
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setattr("rmqtool.spark.session.starting_spark", _NoSpark)


class _NoSpark:
    def __init__(self, *_: object) -> None:
        raise NotImplementedError


def engine_for(size: int, **options: Any) -> str:
    try:
        given = cast(ExportChoices, SimpleNamespace(**NOT_GIVEN | options))
        with export_engine(Style(), given, size):
            return "local"
    except NotImplementedError:
        return "spark"


@pytest.mark.parametrize(
    ("size", "options", "expected"),
    [
        (GIB - 1, {}, "local"),
        (GIB, {}, "spark"),
        (GIB, {"jobs": 2}, "local"),
        (GIB, {"memory": 512 << 20}, "local"),
        (1, {"master": "yarn"}, "spark"),
        (1, {"conf": {"spark.executor.memory": "1g"}}, "spark"),
        (1, {"engine": "spark"}, "spark"),
        (GIB, {"engine": "local"}, "local"),
    ],
)
def test_the_engine(size: int, options: dict[str, Any], expected: str) -> None:
    assert engine_for(size, **options) == expected


def test_memory_is_not_for_spark() -> None:
    """Which has settings of its own."""
    with pytest.raises(UsageError, match="--memory is for --engine local"):
        engine_for(GIB, engine="spark", memory=512 << 20)


def test_what_was_submitted_runs_on_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1234")
    assert engine_for(1) == "spark"


def test_without_spark_or_java_it_works_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "find_spec", lambda _: None)
    assert engine_for(GIB) == "local"
    monkeypatch.undo()
    monkeypatch.setattr(export, "find_spec", lambda _: True)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setenv("PATH", "")
    assert engine_for(GIB) == "local"


def test_the_choice_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """But not where it was made on the command line."""
    engine_for(2 * GIB)
    engine_for(GIB // 2)
    engine_for(1, engine="local")
    assert capsys.readouterr().err.splitlines() == [
        "2.00 GiB of log: Spark is used (to avoid it: --engine local)",
        "512 MiB of log: Spark is not used (to use it: --engine spark)",
    ]
