"""broker.conf, read as `java.util.Properties` reads it."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from rmqtool.base.errors import UsageError
from rmqtool.rules.broker_conf import BrokerConf, parse_broker_conf, read_broker_conf
from rmqtool.rules.versions import parse_version

# A file, and the settings that java.util.Properties finds in it (`test_java_agrees` asks it).
CASES: dict[str, tuple[str, dict[str, str]]] = {
    "a usual file": (
        "brokerName = broker-a\n# a comment\n\nstorePathRootDir=/data/store\nmaxIndexNum: 1000\n",
        {"brokerName": "broker-a", "storePathRootDir": "/data/store", "maxIndexNum": "1000"},
    ),
    "nothing": ("", {}),
    "blank lines": ("\n \n\t\f\n\r\n", {}),
    "comments": ("#a=1\n!b=2\n  # c=3\n\t! d=4\ne=#5\nf#=6\n", {"e": "#5", "f#": "6"}),
    "separators": ("a=1\nb:2\nc 3\nd\t4\ne\f5\nf = 6\ng : 7\nh \t 8\n", dict(zip("abcdefgh", "12345678", strict=True))),
    "a second separator is the value's": (
        "a==1\nb:=2\nc = = 3\nd := 4\n",
        {"a": "=1", "b": "=2", "c": "= 3", "d": "= 4"},
    ),
    "no value": ("a\nb=\nc :\nd   \n", {"a": "", "b": "", "c": "", "d": ""}),
    "no name": ("=1\n", {"": "1"}),
    "trailing blanks stay": ("a=1 \nb=2\t\n", {"a": "1 ", "b": "2\t"}),
    "line ends": ("a=1\r\nb=2\rc=3\n\rd=4", {"a": "1", "b": "2", "c": "3", "d": "4"}),
    "the last one wins": ("a=1\nb=2\na=3\n", {"a": "3", "b": "2"}),
    "continued": ("a=1,\\\n   2,\\\r\n\t3\nb=4\n", {"a": "1,2,3", "b": "4"}),
    "continued with CR": ("a=1\\\r2\n", {"a": "12"}),
    "a continued name": ("na\\\n  me=1\n", {"name": "1"}),
    "an even number of backslashes": ("a=1\\\\\nb=2\n", {"a": "1\\", "b": "2"}),
    "three backslashes": ("a=1\\\\\\\nb=2\n", {"a": "1\\b=2"}),
    "an empty line continues": ("a=1\\\n\nb=2\n", {"a": "1", "b": "2"}),
    "a blank line continues": ("a=1\\\n  \nb=2\n", {"a": "1", "b": "2"}),
    "a comment does not continue": ("# a \\\nb=2\n", {"b": "2"}),
    "no comment inside a value": ("a=1\\\n#b=2\n", {"a": "1#b=2"}),
    "a backslash at the end": ("a=1\\", {"a": "1"}),
    "a line of one backslash": ("\\\na=1\n", {"a": "1"}),
    "escapes": ("a=\\t\\n\\r\\f\\x\\\\\\=\\:\\#\n", {"a": "\t\n\r\fx\\=:#"}),
    "escapes in a name": ("a\\ b\\=c\\:d = 1\n\\#e=2\n", {"a b=c:d": "1", "#e": "2"}),
    "a backslash before the separator": ("a\\\\=1\n", {"a\\": "1"}),
    "unicode": ("a=\\u6570\\u636e\nb=\\u0041\n\\u0063=3\n", {"a": "数据", "b": "A", "c": "3"}),
    "a pair of surrogates": ("a=\\ud83d\\ude00\n", {"a": "😀"}),
    "escaped twice": ("a=\\\\u0041\n", {"a": "\\u0041"}),
    "what Java takes for no blank": ("a\x0bb=1\n\x85c=2\n\xa0d=3\n", {"a\x0bb": "1", "\x85c": "2", "\xa0d": "3"}),
}

_MAIN = """
import java.io.*;
import java.nio.file.*;
import java.util.*;

public class Main {
    public static void main(String[] names) throws Exception {
        for (String name : names) {
            Properties properties = new Properties();
            try (Reader reader = Files.newBufferedReader(Path.of(name))) {
                properties.load(reader);
            }
            StringBuilder text = new StringBuilder("{");
            for (String key : new TreeSet<>(properties.stringPropertyNames())) {
                text.append(text.length() > 1 ? "," : "").append(quoted(key)).append(":");
                text.append(quoted(properties.getProperty(key)));
            }
            System.out.println(text.append("}"));
        }
    }

    private static String quoted(String text) {
        StringBuilder quoted = new StringBuilder("\\"");
        for (char unit : text.toCharArray()) {
            quoted.append(String.format("\\\\u%04x", (int) unit));
        }
        return quoted.append("\\"").toString();
    }
}
"""


@pytest.mark.parametrize("name", CASES)
def test_java_properties(name: str) -> None:
    """Names and values are those that Java finds."""
    text, expected = CASES[name]
    assert parse_broker_conf(text).settings == expected


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("java") is None, reason="needs Java")
def test_java_agrees(tmp_path: Path) -> None:
    """What the cases expect is what `java.util.Properties` says."""
    (tmp_path / "Main.java").write_text(_MAIN, encoding="utf-8")
    files = []
    for number, (text, _) in enumerate(CASES.values()):
        files.append(tmp_path / f"{number}.conf")
        files[-1].write_bytes(text.encode())
    command = ["java", "-XX:TieredStopAtLevel=1", str(tmp_path / "Main.java"), *map(str, files)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if "error: " in answer.stderr or "compiler" in answer.stderr:
        pytest.skip("needs a JDK")
    found = [json.loads(line) for line in answer.stdout.splitlines()]
    assert dict(zip(CASES, found, strict=True)) == {name: expected for name, (_, expected) in CASES.items()}


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\u", "a=\\u00zz", "\\uxyz1=1"])
def test_a_broken_escape_is_refused(text: str) -> None:
    """Java reads no such file, so that a broker does not start with it."""
    with pytest.raises(UsageError, match="four hexadecimal digits"):
        parse_broker_conf(text)


def test_half_a_pair_of_surrogates() -> None:
    """Half a character can be no part of a path, and is replaced."""
    assert parse_broker_conf("a=x\\ud83dy").settings == {"a": "x\ufffdy"}


@pytest.mark.parametrize("data", [bytes(4096), b"brokerName=a\n\0\0\0", b"\x7fELF\2\1\1\0"])
def test_a_file_that_is_no_text(tmp_path: Path, data: bytes) -> None:
    """Its settings would be the defaults, without a word."""
    path = tmp_path / "broker.conf"
    path.write_bytes(data)
    with pytest.raises(UsageError, match="bytes of zeros"):
        read_broker_conf(path)


def test_text_of_a_setting() -> None:
    """The first name that is set counts, without blanks around it; an empty value is none."""
    conf = BrokerConf({"new": " 1 ", "old": "2", "empty": " "})
    assert conf.text("new", "old") == "1"
    assert conf.text("missing", "old") == "2"
    assert conf.text("empty", "old") == "2"
    assert conf.text("missing", "empty") is None
    assert BrokerConf().text("new") is None


@pytest.mark.parametrize(
    ("value", "expected"), [("1", 1), ("+600", 600), ("007", 7), (str((1 << 31) - 1), (1 << 31) - 1), ("٣", 3)]
)
def test_sizes(value: str, expected: int) -> None:
    """A size is a positive Java int."""
    assert BrokerConf({"size": value}).size("size") == expected


@pytest.mark.parametrize(
    "value", ["600 ", "1\t", "1.5", "1k", "0x10", "1_000", "1 2", str(1 << 31), "9" * 5000, "1 # one", "", " "]
)
def test_sizes_that_no_broker_reads(value: str) -> None:
    """What is no Java int leaves the default as it is, without a word (`MixAll#properties2Object`)."""
    conf = BrokerConf({"maxIndexNum": value})
    assert conf.size("maxIndexNum", "other") is None
    assert conf.size_or_default(("maxIndexNum",), 7) == (7 if value.strip() else None)


def test_names_and_blanks_by_release() -> None:
    """A release reads its own spelling of a name; before 5.2.0 blanks around text are part of it."""
    conf = BrokerConf({"mapedFileSizeCommitLog": "65536", "storePathCommitLog": "/log ", "brokerRole": "SLAVE "})
    names = ("mappedFileSizeCommitLog", "mapedFileSizeCommitLog")
    sizes = {text: conf.for_release(parse_version(text)).size(*names) for text in ("4.4.0", "4.7.1", "5.5.0")}
    assert sizes == {"4.4.0": 65536, "4.7.1": None, "5.5.0": None}
    assert conf.size(*names) == 65536
    assert conf.for_release(parse_version("5.1.4")).text("storePathCommitLog") == "/log "
    assert conf.for_release(parse_version("5.2.0")).text("storePathCommitLog") == "/log"
    assert conf.text("brokerRole") == "SLAVE"


@pytest.mark.parametrize("value", ["0", "-1"])
def test_bad_sizes(value: str) -> None:
    """A number that is none of bytes is refused and shown, with the setting's name."""
    with pytest.raises(UsageError, match="maxIndexNum must be a whole number from 1 to 2147483647") as caught:
        BrokerConf({"maxIndexNum": value}).size("maxIndexNum", "other")
    assert repr(value) in caught.value.message


@pytest.mark.parametrize(("value", "expected"), [
    ("true", True), ("TRUE", True), ("false", False), ("true ", False), ("true\t", False), ("", False), ("1", False),
    (None, True),
])  # fmt: skip
def test_what_is_on(value: str | None, expected: bool) -> None:
    """Run with MixAll of 4.4.0, 4.9.7 and 5.5.0: a blank behind true, and an empty value, are false."""
    conf = BrokerConf({} if value is None else {"enableLmq": value})
    assert conf.is_on("enableLmq", default=True) == expected


def test_a_missing_size() -> None:
    """A setting that is not given has no size."""
    assert BrokerConf({"size": ""}).size("size") is None


@pytest.mark.parametrize(
    ("paths", "read_only", "expected"),
    [
        (None, None, ()),
        ("/a", None, ("/a",)),
        (" /a ", None, ("/a",)),
        ("/a", "/r", ("/a",)),
        (None, "/r", ()),
        ("/a,/b", None, ("/a", "/b")),
        ("/a,/b", "/r,/s", ("/a", "/b", "/r", "/s")),
        ("/a,/b", "/b,/r,/r", ("/a", "/b", "/r")),
        ("/a,,/b,", "", ("/a", "/b")),
        ("/a,", "/r", ("/a", "/r")),
        ("/a, /b", None, ("/a", " /b")),
    ],
)
def test_commit_log_paths(paths: str | None, read_only: str | None, expected: tuple[str, ...]) -> None:
    """Several paths are separated by commas, elements not trimmed; read-only ones count only beside several."""
    given = {"storePathCommitLog": paths, "readOnlyCommitLogStorePaths": read_only}
    conf = BrokerConf({name: value for name, value in given.items() if value is not None})
    assert conf.commit_log_paths == expected


def test_index_geometry() -> None:
    """What is not given is the default, as for the broker."""
    assert BrokerConf({"maxHashSlotNum": "50", "maxIndexNum": "1000"}).index_geometry == (50, 1000)
    assert BrokerConf({"maxHashSlotNum": "50"}).index_geometry == (50, 20_000_000)
    assert BrokerConf({"maxIndexNum": "1000"}).index_geometry == (5_000_000, 1000)
    assert BrokerConf().index_geometry is None
    assert BrokerConf({"maxHashSlotNum": "many", "maxIndexNum": "1000"}).index_geometry == (5_000_000, 1000)
    with pytest.raises(UsageError):
        _ = BrokerConf({"maxHashSlotNum": "0", "maxIndexNum": "1000"}).index_geometry
