"""Each damage is found under its code, at its place, and nothing else is told that is above information."""

from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path

import pytest

from rmqtool.findings.finding import Finding
from rmqtool.formats.file_name import file_name
from tests.verify.damages import DAMAGES
from tests.verify.small_store import FILE_SIZE, small_store
from tests.verify.verifying import codes_of, verify


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return small_store(tmp_path / "store")


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", DAMAGES)
def test_damages_are_found(name: str, store: Path) -> None:
    """By one process, and by the code that the catalogue explains."""
    damage = DAMAGES[name]
    damage.apply(store)
    outcome = verify(store)
    found = [finding for finding in outcome.findings if finding.code == damage.code]
    assert found, codes_of(outcome, info=True)
    if damage.exact:
        told = {code for code in codes_of(outcome) if not code.startswith("start.")}  # what a start makes of it
        assert told == {damage.code}
    if damage.offset is not None:
        assert damage.offset in {finding.offset for finding in found}
    assert outcome.verdict in ("dirty", "corrupt")
    assert {each.code: numbers for each in outcome.findings if (numbers := numbers_without_a_fact(each))} == {}


_HEX, _TIME = re.compile(r"0x[0-9a-f]+"), re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")
_RELEASE = re.compile(r"\b\d+\.\d+\.\d+\b")
_WORDS = frozenset({"__CRC32#"})  # of templates, whose digits are no fact


def numbers_without_a_fact(finding: Finding) -> set[int]:
    """Numbers and times of a sentence that are not among the facts of the finding, for programs."""
    says, document = finding.message, json.dumps(finding.as_json() | {"message": "", "effect": "", "remedy": ""})
    for word in _WORDS:
        says = says.replace(word, "")
    shown = {int(number, 16) for number in _HEX.findall(says)}
    shown |= {_milliseconds(time) for time in _TIME.findall(says)}
    says = _RELEASE.sub("", _TIME.sub("", _HEX.sub("", says)))
    shown |= {int(number) for number in re.findall(r"\d+", says)}
    return shown - {int(number) for number in re.findall(r"\d+", document)}


def _milliseconds(time: str) -> int:
    return round(datetime.fromisoformat(time.replace("Z", "+00:00")).timestamp() * 1000)


def test_the_file_that_does_not_fit_the_others_is_named(store: Path) -> None:
    """Not those of which there are more."""
    DAMAGES["renamed file"].apply(store)
    misaligned = [each.file for each in verify(store).findings if each.code == "commitlog.misaligned-file"]
    assert misaligned == [f"commitlog/{file_name(FILE_SIZE + 100)}"]
