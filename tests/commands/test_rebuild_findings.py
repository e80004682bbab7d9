"""What a rebuild tells of a log: each code is caused, and a log without oddities tells none of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtool.findings.catalogue import CATALOGUE
from tests.commands.running import rmqtool
from tests.rebuild.causes import CAUSES, Cause
from tests.unchanged import unchanged
from tests.verify.small_store import small_store


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.code)
def test_causes(cause: Cause, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan tells the code, and that of the small store does not."""
    monkeypatch.chdir(tmp_path)
    store = cause.build(tmp_path / "store")
    assert cause.code in codes(cause, store)
    twin = cause._replace(options=tuple(option for option in cause.options if option == "--append-order"))
    if cause.code != "rebuild.version-assumed":  # it is told of every store before 5.4.0
        assert cause.code not in codes(twin, small_store(tmp_path / "twin"))


def codes(cause: Cause, store: Path) -> set[str]:
    with unchanged(store):
        result = rmqtool(cause.command, store, "--dry-run", "--json", *cause.options)
    return {finding["code"] for finding in result.document["findings"]}


def test_each_code_is_caused() -> None:
    """Of all that only rebuilds tell."""
    of_logs = {"commitlog.skipped", "commitlog.neutralised", "commitlog.not-neutralised"}
    of_releases = {"rebuild.version-needed"}  # tests/scenarios/test_unnamed_releases.py
    of_rocksdb = {"rebuild.rocksdb-unreadable"}  # tests/rebuild/test_rocksdb.py
    of_rebuilds = {code for code in CATALOGUE if code.startswith("rebuild.")} - of_releases - of_rocksdb
    assert of_rebuilds | of_logs == {cause.code for cause in CAUSES}
