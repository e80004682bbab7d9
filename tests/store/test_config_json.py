"""The broker's JSON files: fastjson's dialect, and which of a file and its .bak counts."""

from __future__ import annotations

import json
import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.rules import config_shapes
from rmqtool.rules.config_shapes import shape_rules
from rmqtool.rules.versions import FASTJSON_2, OLDEST, Version
from rmqtool.store import config_json
from rmqtool.store.config_json import backup_problem_of, load_config, parse_fastjson, read_config_file
from tests.store.other_process import JAVA, another_process
from tests.unchanged import unchanged

GOOD = b'{"a":1}'
BAK = b'{"b":2}'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{0:250,1:251}", {"0": 250, "1": 251}),
        ('{"t@g":{0:1,\n\t1:2\n\t}\n}', {"t@g": {"0": 1, "1": 2}}),
        ("{ 0 : 1 , -2\n:\t3}", {"0": 1, "-2": 3}),
        ('{"0":1,1:2}', {"0": 1, "1": 2}),
        ('{"a":"{1:","b":",2:"}', {"a": "{1:", "b": ",2:"}),
        ('{"a\\"{1:":{2:3}}', {'a"{1:': {"2": 3}}),
        ('{"a\\\\":{2:3}}', {"a\\": {"2": 3}}),
        ('{"{1:2":{3:"x"}}', {"{1:2": {"3": "x"}}),
        ("[{1:[2,3]},4]", [{"1": [2, 3]}, 4]),
        ('{"a":[1,2],"b":-3.5e2}', {"a": [1, 2], "b": -350.0}),
        ('{"%RETRY%g@g":{},"订单@组":{0:7}}', {"%RETRY%g@g": {}, "订单@组": {"0": 7}}),
        ("{9223372036854775807:9223372036854775808}", {"9223372036854775807": 1 << 63}),
        ('{1:2,"1":3}', {"1": 3}),
        ('{"a":"1:2"}', {"a": "1:2"}),
        ("{}", {}),
    ],
)
def test_names_that_are_numbers(text: str, expected: object) -> None:
    """Whole numbers may be names without quotes; in strings nothing is touched."""
    assert parse_fastjson(text) == expected


any_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.integers().map(str), inner, max_size=3),
    max_leaves=12,
)


@pytest.mark.slow
@given(any_json, st.sampled_from([None, "\t"]), st.booleans())
def test_json_is_read_as_json(value: Any, indent: str | None, ascii_only: bool) -> None:
    """Whatever JSON says, strings that look like the dialect among it, comes back."""
    assert parse_fastjson(json.dumps(value, indent=indent, ensure_ascii=ascii_only)) == value


@pytest.mark.parametrize(
    "text", ["", "{", "{1}", "{#}", "{1.5:2}", "{1:2]", "{1:2}}", '{"a', "{'a:1}", "[" * 100_000, '{"a":' * 100_000]
)
def test_what_is_no_json(text: str) -> None:
    """Anything else is a ValueError, deep nesting too."""
    with pytest.raises(ValueError, match=r"\S"):
        parse_fastjson(text)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config" / "x.json"


def write(path: Path, main: bytes | None, bak: bytes | None) -> None:
    path.parent.mkdir(exist_ok=True)
    for file, data in ((path, main), (path.with_name("x.json.bak"), bak)):
        if data is not None:
            file.write_bytes(data)


def loaded(path: Path) -> tuple[str | None, dict[str, Any], str | None]:
    with unchanged(path.parent):
        config = load_config(path)
    return config.path.name if config.path else None, config.content, config.problem


def test_the_file_itself(path: Path) -> None:
    """A good file counts, whatever its .bak is."""
    for bak in (None, BAK, b"{", b""):
        write(path, GOOD, bak)
        assert loaded(path) == ("x.json", {"a": 1}, None)


def test_no_file_at_all(path: Path) -> None:
    """Neither file, nor their directory: nothing is configured, and nothing wrong."""
    path.parent.mkdir()
    assert loaded(path) == (None, {}, None)
    path.parent.rmdir()
    assert load_config(path).problem is None


def test_a_missing_file(path: Path) -> None:
    """The .bak counts, as after a crash between two renames."""
    write(path, None, BAK)
    assert loaded(path) == ("x.json.bak", {"b": 2}, None)


@pytest.mark.parametrize("main", [b"", b"\n"])
def test_an_empty_file(path: Path, main: bytes) -> None:
    """An empty file gives way to the .bak and is told."""
    write(path, main, BAK)
    assert loaded(path) == ("x.json.bak", {"b": 2}, "the file is empty")
    write(path, main, b"")
    assert loaded(path) == (None, {}, "the file is empty")


def test_a_backup_of_zeros(path: Path) -> None:
    """After a power failure both may be: every release refuses to start."""
    write(path, b"\0" * 99, b"\0" * 99)
    assert load_config(path).has_bad_backup
    assert backup_problem_of(path) == "nothing but zeros"


@pytest.mark.parametrize(
    ("main", "problem"),
    [
        (b"{", "not JSON: "),
        (GOOD[:-1], "not JSON: "),
        (GOOD + GOOD, "not JSON: "),
        (b"[" * 100_000, "not JSON: "),
        (b"\0" * 4096, "nothing but zeros"),
        (b" \0\t\r\n", "nothing but zeros"),
        (b"\xff\xfe{\0", "not JSON: "),
        (b"[1]", "a JSON object was expected"),
        (b"7", "a JSON object was expected"),
    ],
)
def test_a_broken_file(path: Path, main: bytes, problem: str) -> None:
    """A file that cannot be decoded gives way to the .bak, and is told whether there is one or not."""
    write(path, main, BAK)
    name, content, told = loaded(path)
    assert (name, content) == ("x.json.bak", {"b": 2})
    assert told is not None
    assert told.startswith(problem)
    write(path, main, b"[")
    assert loaded(path) == (None, {}, told)


@pytest.mark.parametrize("torn", [None, b"", GOOD[:-1]])
@pytest.mark.parametrize("runs", [True, False])
def test_a_file_that_a_running_broker_writes(
    path: Path, torn: bytes | None, runs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read again until it is whole, and its .bak as well; what stays broken is told after all."""
    write(path, torn, BAK[:-1])
    lock = path.parents[1] / "lock"
    lock.touch()
    pauses = []

    def written(seconds: float) -> None:
        pauses.append(seconds)
        write(path, GOOD, BAK)

    with another_process(lock, JAVA) if runs else nullcontext():
        monkeypatch.setattr("rmqtool.store.config_json.time.sleep", written if torn is not None else pauses.append)
        file, problem = load_config(path), backup_problem_of(path)
    if torn is None and runs:
        assert len(pauses) == 20
    if torn is not None and runs:
        assert (file.path, file.problem, problem, len(pauses)) == (path, None, None, 1)
    else:
        assert file.path is None
        assert problem is not None


def test_null_is_decoded_to_nothing(path: Path) -> None:
    """`ConfigManager#decode` of ``null`` loads nothing and raises nothing: the .bak does not count."""
    write(path, b"null", BAK)
    assert loaded(path) == ("x.json", {}, None)


def test_a_broken_bak(path: Path) -> None:
    """Without the file a .bak that cannot be decoded is the problem."""
    write(path, None, b"{")
    name, content, problem = loaded(path)
    assert (name, content) == (None, {})
    assert problem is not None
    assert problem.startswith("not JSON: ")


def test_invalid_utf_8(path: Path) -> None:
    """Bytes that are no UTF-8 are replaced, as Java does, and do not hide the rest."""
    write(path, b'{"a\xff":{0:1},"\xed\xa0\x80":2}', None)
    assert loaded(path) == ("x.json", {"a\ufffd": {"0": 1}, "\ufffd": 2}, None)


def test_what_is_no_file(path: Path) -> None:
    """A directory in place of the file is told, and the .bak counts."""
    write(path, None, BAK)
    path.mkdir()
    assert loaded(path) == ("x.json.bak", {"b": 2}, "a directory where a file should be")


def test_a_file_in_place_of_the_directory(path: Path) -> None:
    """A file where config/ should be is told, not taken for an empty configuration."""
    path.parent.write_bytes(b"")
    config = load_config(path)
    assert (config.path, config.content) == (None, {})
    assert config.problem == "cannot read: not a directory"


def test_a_huge_file_is_refused(path: Path) -> None:
    """A file that is larger than any broker writes is not read into memory."""
    write(path, b"", BAK)
    with path.open("r+b") as file:
        file.truncate((256 << 20) + 1)
    assert loaded(path) == ("x.json.bak", {"b": 2}, "larger than 268435456 bytes")


@pytest.mark.slow
def test_a_large_file_is_decoded_once_while_somebody_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And its shape is checked once for all releases that decode alike; another content is decoded again."""
    path = tmp_path / "topics.json"
    decoded: list[int] = []
    checked: list[int] = []
    topics = {f"topic-{number:06}": {"readQueueNums": 8, "writeQueueNums": 8, "perm": 6} for number in range(20_000)}
    path.write_text(json.dumps({"topicConfigTable": topics}))

    def counting(name: str, calls: list[int]) -> None:
        work = getattr(config_json, name)

        def call(*arguments: Any) -> Any:
            calls.append(1)
            return work(*arguments)

        monkeypatch.setattr(config_json, name, call)

    counting("_decoded", decoded)
    counting("shape_problem", checked)
    first = load_config(path)
    for version in (Version(4, 9, 7), Version(4, 9, 4), Version(5, 3, 3), Version(5, 3, 4)):
        assert load_config(path, version).content is first.content
    assert len(decoded) == 1
    assert len(checked) == 1 + len({shape_rules(Version(4, 9, 7)), shape_rules(Version(5, 3, 3))})
    changed = read_config_file(path)
    changed["topicConfigTable"] = {}
    assert load_config(path).content["topicConfigTable"] == topics
    path.write_text(json.dumps({"topicConfigTable": {**topics, "one-more": {}}}))
    assert "one-more" in load_config(path).content["topicConfigTable"]
    assert len(decoded) == 2


def test_all_changes_of_shapes_are_known() -> None:
    """Releases between two of them decode alike."""
    tables = [table for tables in config_shapes._FILES.values() for table in tables]
    assert {table.since for table in tables} <= {OLDEST, *config_shapes._CHANGES}
    source = Path(config_shapes.__file__).read_text()
    found = re.search(r"^_CHANGES = \((.*)\)$", source, re.MULTILINE)
    assert found
    assert set(re.findall(r"version [<>]=? ([\w.]+)", source)) <= {"change", "table.since", *found[1].split(", ")}


def test_what_only_some_releases_read(path: Path) -> None:
    """Comments and commas too many are read as the library of the release reads them; without one as any does."""
    write(path, b'{// by hand\n"a":1,}\0\0', BAK)
    assert loaded(path) == ("x.json", {"a": 1}, None)
    for text, before, since in ((b"{a:1}", True, False), (b'{"a":1 "b":2}', False, True), (b"{x", False, False)):
        write(path, text, BAK)
        read = [load_config(path, version).path == path for version in (Version(5, 3, 4), FASTJSON_2)]
        assert read == [before, since]
        assert (load_config(path).path == path) == (before or since)
