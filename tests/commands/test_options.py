"""Options: where they may stand, the environment, help, and that each is documented."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import click.testing
import pytest

from rmqtool.base.errors import Exit
from rmqtool.cli import cli
from rmqtool.commands import help_page
from tests.building import LogBuilder
from tests.commands.running import ROOT, command_named, inspect, rmqtool
from tests.dledger_building import entry_log
from tests.replay.fake_cluster import FakeCluster
from tests.unchanged import unchanged
from tests.verify.small_store import small_store

ESCAPE = "\x1b["
COMMANDS = {"": cli, **{name: command_named(name) for name in cli.modules}}
NO_STORE = ("explain", "help", "version", "completion")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "store" / "consumequeue" / "orders" / "0").mkdir(parents=True)
    with unchanged(LogBuilder().add_all([{}, {}, {}]).write(tmp_path / "store")) as store:
        yield store


@pytest.mark.parametrize(
    ("name", "option"),
    [
        (name, option)
        for name, command in COMMANDS.items()
        for option in command.params
        if isinstance(option, click.Option) and option.required
    ],
)
def test_an_option_that_is_needed_is_asked_for(name: str, option: click.Option, store: Path) -> None:
    """None is no value of it."""
    run = rmqtool(name, store)
    assert run.status == Exit.USAGE
    assert f"Missing option '{option.opts[-1]}'" in run.err or f"/ '{option.opts[-1]}'" in run.err


@pytest.mark.parametrize(("name", "meant"), [("query", "--key"), ("copy", "--output"), ("status", None)])
def test_what_a_second_argument_was_meant_for(name: str, meant: str | None, store: Path) -> None:
    run = rmqtool(name, store, "order-42")
    assert run.status == Exit.USAGE
    assert run.err.endswith(f"rmqtool {name} STORE {meant} order-42\n" if meant else f"rmqtool {name} --help\n")


@pytest.mark.slow
def test_global_options_on_both_sides(store: Path) -> None:
    """Before and after the command they mean the same, and the last of two counts."""
    log = store / "commitlog"
    assert rmqtool("--json", "inspect", log).out == rmqtool("inspect", "--json", log).out
    assert rmqtool("inspect", log, "--json").out == rmqtool("inspect", "--json", log).out
    assert rmqtool("--color", "always", "inspect", log).out == rmqtool("inspect", log, "--color", "always").out
    assert ESCAPE in rmqtool("--color", "always", "inspect", log).out
    assert ESCAPE not in rmqtool("--color", "always", "inspect", log, "--color", "never").out
    assert rmqtool("-q", "inspect", store).err == rmqtool("inspect", store, "-q").err == ""
    assert rmqtool("-v", "inspect", store).out == rmqtool("inspect", store, "-v").out


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("RMQTOOL_JSON", "1", ["--json", "inspect", "{}"]),
        ("RMQTOOL_COLOR", "always", ["--color", "always", "inspect", "{}/commitlog"]),
        ("RMQTOOL_VERBOSE", "1", ["-v", "inspect", "{}"]),
        ("RMQTOOL_INSPECT_SCAN", "1", ["inspect", "{}", "--scan"]),
        ("RMQTOOL_INSPECT_AS", "store", ["inspect", "{}/commitlog", "--as", "store"]),
        ("RMQTOOL_INSPECT_LIMIT", "2", ["inspect", "{}/commitlog", "--limit", "2"]),
        ("RMQTOOL_INSPECT_FROM_OFFSET", "1", ["inspect", "{}/commitlog", "--from-offset", "1"]),
        ("RMQTOOL_INSPECT_TO_OFFSET", "200", ["inspect", "{}/commitlog", "--to-offset", "200"]),
        ("RMQTOOL_INSPECT_TOPIC", "no-such-topic", ["inspect", "{}/commitlog", "--topic", "no-such-topic"]),
        ("RMQTOOL_INSPECT_EXCLUDE_TOPIC", "o*", ["inspect", "{}/commitlog", "--exclude-topic", "o*"]),
        ("RMQTOOL_INSPECT_QUEUE", "7", ["inspect", "{}/commitlog", "--queue", "7"]),
        ("RMQTOOL_INSPECT_TAG", "red", ["inspect", "{}/commitlog", "--tag", "red"]),
        ("RMQTOOL_INSPECT_KEY", "k", ["inspect", "{}/commitlog", "--key", "k"]),
        ("RMQTOOL_INSPECT_TRANSACTION", "commit", ["inspect", "{}/commitlog", "--transaction", "commit"]),
        ("RMQTOOL_INSPECT_FROM", "2026-11-21T00:00:00Z", ["inspect", "{}/commitlog", "--from", "2026-11-21T00:00:00Z"]),
        ("RMQTOOL_INSPECT_TO", "5", ["inspect", "{}/commitlog", "--to", "5"]),
        ("RMQTOOL_INSPECT_TIME_ZONE", "Nowhere", ["inspect", "{}/commitlog", "--time-zone", "Nowhere"]),
        ("RMQTOOL_INSPECT_REVERSE", "1", ["inspect", "{}/commitlog", "--reverse"]),
        ("RMQTOOL_INSPECT_FOLLOW", "1", ["inspect", "{}/consumequeue", "--follow"]),
        ("RMQTOOL_INSPECT_HEX", "1", ["inspect", "{}/commitlog", "--hex"]),
        ("RMQTOOL_INSPECT_COLUMNS", "topic", ["inspect", "{}/commitlog", "--columns", "topic"]),
        ("RMQTOOL_INSPECT_FORMAT", "csv", ["inspect", "{}/commitlog", "--format", "csv"]),
        ("RMQTOOL_INSPECT_COUNT", "1", ["inspect", "{}/commitlog", "--count"]),
        ("RMQTOOL_INSPECT_SLOTS", "1", ["inspect", "{}/commitlog", "--slots"]),
        ("RMQTOOL_INSPECT_BODY", "none", ["inspect", "{}/commitlog", "--body", "none"]),
        ("RMQTOOL_INSPECT_BODY_FORMAT", "hex", ["inspect", "{}/commitlog", "--body-format", "hex"]),
        ("RMQTOOL_INSPECT_DECODER", "wc -c", ["inspect", "{}/commitlog", "--decoder", "wc -c"]),
        ("RMQTOOL_INSPECT_REDACT", "bodies,hosts", ["inspect", "{}/commitlog", "--redact", "bodies,hosts"]),
        ("RMQTOOL_INSPECT_REDACT_AS", "hash", ["inspect", "{}/commitlog", "--redact-as", "hash"]),
        ("RMQTOOL_INSPECT_REDACT_SALT", "x", ["inspect", "{}/commitlog", "--redact-salt", "x"]),
        ("RMQTOOL_INSPECT_BROKER_VERSION", "3.9", ["inspect", "{}", "--broker-version", "3.9"]),
        ("RMQTOOL_INSPECT_LIMIT_RATE", "none", ["inspect", "{}", "--limit-rate", "none"]),
        ("RMQTOOL_INSPECT_BROKER_CONF", "/nowhere", ["inspect", "{}", "--broker-conf", "/nowhere"]),
    ],
)
def test_options_from_the_environment(
    store: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, line: list[str]
) -> None:
    """Every option may stand in the environment, and does the same there; the plain command does another thing."""
    expected = rmqtool(*(word.format(store) for word in line))
    path = next(word for word in line if "{}" in word).format(store)
    plain = rmqtool("inspect", path)
    monkeypatch.setenv(name, value)
    found = rmqtool("inspect", path)
    assert (found.status, found.out) == (expected.status, expected.out)
    assert (found.out, found.err) != (plain.out, plain.err)


def test_every_option_is_tried_in_the_environment() -> None:
    """The list above leaves out no option of inspect but those that end at once, or show nothing in a short run."""
    parameters = test_options_from_the_environment.pytestmark[0].args[1]  # type: ignore[attr-defined]
    tried = {word for _, _, line in parameters for word in line if word.startswith("-")}
    shown_elsewhere = {"--help", "--quiet", "--verbose", "--progress", "--no-pager", "--int64", "--jobs"}
    shown_elsewhere |= {"--warning", "--critical"}  # limits of a plug-in
    options = long_options(command_named("inspect")) - shown_elsewhere
    assert options <= tried


def test_the_command_line_comes_before_the_environment(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An option that stands on the command line wins, on whichever side of the command."""
    monkeypatch.setenv("RMQTOOL_COLOR", "always")
    monkeypatch.setenv("RMQTOOL_INSPECT_COLOR", "always")
    monkeypatch.setenv("RMQTOOL_JSON", "0")
    log = store / "commitlog"
    assert ESCAPE not in rmqtool("--color", "never", "inspect", log).out
    assert ESCAPE not in rmqtool("inspect", log, "--color", "never").out
    assert rmqtool("--json", "inspect", store).document["exit"]["code"] == Exit.OK


def test_the_environment_waits_for_a_path_that_it_fits(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit in the environment is for listings: an overview is as without it, and so for the others."""
    expected = inspect(store).out, inspect(store, part="commitlog").out
    monkeypatch.setenv("RMQTOOL_INSPECT_LIMIT", "7")
    monkeypatch.setenv("RMQTOOL_INSPECT_SCAN", "1")
    monkeypatch.setenv("RMQTOOL_VERSION", "5.3")
    assert inspect(store, part="commitlog").out == expected[1]
    monkeypatch.delenv("RMQTOOL_INSPECT_SCAN")
    assert inspect(store).out == expected[0]


def test_a_wrong_value_in_the_environment_is_a_usage_error(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RMQTOOL_INSPECT_LIMIT", "many")
    found = inspect(store, part="commitlog")
    assert found.status == Exit.USAGE
    assert "--limit" in found.err


@pytest.mark.parametrize("color", ["auto", "never", "always"])
def test_colour_of_errors_and_text(store: Path, monkeypatch: pytest.MonkeyPatch, color: str) -> None:
    """Outside a terminal only `always` colours, errors as well as data, and NO_COLOR does not overrule it."""
    monkeypatch.setenv("NO_COLOR", "1")
    wanted = color == "always"
    assert (ESCAPE in inspect(store, "--color", color).out) == wanted
    assert (ESCAPE in inspect(store, "--color", color, part="commitlog").out) == wanted
    assert (ESCAPE in inspect(store, "--color", color, part="nowhere").err) == wanted


def test_quiet_and_verbose(store: Path) -> None:
    """Quiet leaves out the notes and nothing else, verbose shows each queue, and the two undo each other."""
    plain = inspect(store)
    assert plain.err.count("rmqtool inspect") == 2
    assert inspect(store, "-q").out == plain.out
    assert inspect(store, "-q").err == ""
    assert inspect(store, "-v").out != plain.out
    assert inspect(store, "-q", "-v") == plain


def test_without_a_command_there_is_help() -> None:
    """The bare name of the program shows its help."""
    assert rmqtool().out == rmqtool("--help").out == rmqtool("-h").out
    assert rmqtool().status == Exit.OK


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_examples_and_exit_statuses(name: str) -> None:
    """Help of every command has lines to copy and what its exit statuses mean, in lines of 80 columns."""
    found = rmqtool(*name.split(), "--help")
    assert found.status == Exit.OK
    examples = found.out[found.out.index("Examples:") : found.out.index("\nOptions")].splitlines()[1:]
    assert any("rmqtool " in line for line in examples)
    statuses = re.findall(r"^  (\d+) +\S", found.out[found.out.index("Exit statuses:") :], re.MULTILINE)
    needed = {"0", "2"} if name in NO_STORE else {"0", "4", "6"}
    assert needed <= set(statuses) <= {str(int(status)) for status in Exit}
    assert [line for line in found.out.splitlines() if len(line) > 80] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_examples_in_help_are_command_lines(name: str, store: Path, tmp_path: Path) -> None:
    """What the help shows is accepted when its store is there."""
    epilog = COMMANDS[name].epilog or ""
    places: dict[str, object] = {
        "/data/rocketmq/store": store,
        "/brokers/*/store": store,
        "/slave/store": store,
        "/mnt/tier": tmp_path / "tier",
    }
    places |= {"s3://backups/broker-a/store": store, "s3://backups/store": store, "s3://lake/all": tmp_path / "table"}
    places |= {"hdfs://namenode:8020/backups/store": store, "s3://backups/broker-a": tmp_path / "elsewhere"}
    places |= {"/lake": tmp_path / "lake", "/data/new": tmp_path / "new", "/tmp/plan.json": tmp_path / "plan"}
    places |= {"/dumps/disk.img": tmp_path / "broker.conf", "report.html": tmp_path / "report.html"}
    places["case.tar.gz"] = tmp_path / "case.tar.gz"
    (tmp_path / "tier").mkdir()
    if name == "convert":
        places["/data/rocketmq/store"] = entry_log(10).write(tmp_path / "node")
    if name == "cut":  # each example takes something of what is left
        places["/data/rocketmq/store"] = small_store(tmp_path / "log")
        places |= {"3198209": 4096, "2026-11-29T12:00:00Z": "2023-11-14T22:13:25Z", "last-100": "last-2"}
    if name == "salvage":
        places |= {f"/data/{node}/store": entry_log(10).write(tmp_path / node) for node in ("n0", "n1")}
    places |= {
        "/data/rocketmq/new-store": tmp_path / "restored",
        "/data/slave": tmp_path / "slave",
        "/backup/store": tmp_path / "backup",
    }
    (conf := tmp_path / "broker.conf").touch()
    with FakeCluster() as cluster:
        places["localhost:9876"] = cluster.address
        if name == "replay":
            rmqtool("export", store, "--output", tmp_path / "lake" / "orders")
        for line in re.findall(r"^  rmqtool ((?:.*\\\n)*.+)$", epilog, re.MULTILINE):
            shutil.rmtree(tmp_path / "restored", ignore_errors=True)  # two examples restore to the same place
            words = line.replace("\\\n", " ").split("|")[0].split(" > ")[0]
            if words.startswith("sql ") and "--master" in words:
                continue  # tests of Spark have it
            for shown, there in places.items():
                words = words.replace(shown, str(there))
            more = ["--engine", "local"] if words.startswith("export ") else []  # a Spark starts in tests of its own
            more = ["--broker-conf", str(conf)] if words.startswith("repair ") else more  # the store has no index
            more += ["--yes"] if "--send" in words else []
            answers = (0, 1, 2) if "nagios" in words else (Exit.OK, Exit.FINDINGS)
            assert rmqtool(*shlex.split(words), *more).status in answers, line


def long_options(command: click.Command) -> set[str]:
    return {
        name for param in command.get_params(click.Context(command)) for name in param.opts if name.startswith("--")
    }


def documents() -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_is_documented(name: str) -> None:
    """The name of the command, and all its long options, stand in the README or in docs."""
    text = documents()
    assert f"rmqtool {name}" in text
    written = set(re.findall(r"--[a-z][a-z0-9-]*", text))
    assert long_options(COMMANDS[name]) - written == set()


def test_docs_name_no_option_that_is_not_there() -> None:
    """An option in the page of a command is one of the program."""
    known = set().union(*(long_options(command) for command in COMMANDS.values()))
    for name in ("inspect", "query"):
        text = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
        assert set(re.findall(r"--[a-z][a-z0-9-]*", text)) <= known


def test_exit_statuses_are_documented() -> None:
    """The page for programs has every exit status with its name."""
    text = (ROOT / "docs" / "json.md").read_text(encoding="utf-8")
    assert [status for status in Exit if f"| {int(status)} | `{status.label}` |" not in text] == []


@pytest.mark.parametrize("name", cli.modules)
def test_the_help_of_the_program_tells_each_command_as_it_tells_itself(name: str) -> None:
    """It loads none of them: the first sentence of each is told twice."""
    command = command_named(name)
    assert command.name == name
    assert command.get_short_help_str(1000) == cli.modules[name][0]
    shown = rmqtool("--help").out
    assert re.search(rf"^  {name} +{re.escape(cli.modules[name][0][:20])}", shown, re.MULTILINE)


@pytest.mark.slow
def test_help_loads_no_command() -> None:
    """Neither a command's module nor what only commands need."""
    code = "import sys; from rmqtool.cli import run; run(['--help']); sys.stderr.write(' '.join(sys.modules))"
    command = [sys.executable, "-c", code]
    loaded = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stderr.split()
    assert "rmqtool.commands.help_page" in loaded
    assert not {name for name in loaded if name.startswith("rmqtool.commands.")} - {
        "rmqtool.commands.completion",
        "rmqtool.commands.ending",
        "rmqtool.commands.help_page",
        "rmqtool.commands.options",
    }
    assert not {"rich", "numpy", "construct", "rmqtool.findings.catalogue"} & set(loaded)


def test_a_command_that_is_none() -> None:
    """It is named, and the help is pointed to."""
    found = rmqtool("inspekt")
    assert found.status == Exit.USAGE
    assert "inspekt" in found.err


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("verfy", "no command verfy (did you mean verify?)"),
        ("verify --limit 3", "No such option '--limit'. Did you mean '--max-examples'?"),
        ("query --since -1h", "No such option '--since'. Did you mean '--from'?"),
        ("verify --since -1h", "No such option '--since'."),
        ("inspect --group g", "No such option '--group'. It is one of rmqtool query and rmqtool pending."),
        ("query --message 1", "No such option '--message'. Did you mean '--msg-id'?"),
        ("query --topic orders", "--scan reads all messages that match the filters"),
        ("rebuild", "no command rebuild (did you mean rebuild-cq or rebuild-index?)"),
        ("zzz", "no command zzz\n"),
    ],
)
def test_an_unknown_command_gets_the_nearest_names(word: str, said: str) -> None:
    found = rmqtool(*word.split(), "store")
    assert found.status == Exit.USAGE
    assert said in found.err


OTHER_MEANINGS = {
    "--as": "a location is read as a kind, a copy is made for a role",
    "--at": "query asks for a moment, a log is cut at a place",
    "--body-format": "a file keeps what is not text as base64, text output shows it as hex",
    "--columns": "export has columns that no listing shows",
    "--engine": "an export takes Spark where it is worth it, diff and verify where it is asked for",
    "--fast": "diff leaves out other reading than verify",
    "--format": "what can be made of a listing, of a verdict, and of an export",
    "--group": "query answers about one group, pending filters by some",
    "--jobs": "an export takes all cores",
    "--limit": "a listing stops, a summary goes on counting",
    "--only": "diff chooses a side, verify codes",
    "--raw": "salvage reads a file of raw bytes, a copy is left as after a crash",
    "--scan": "an overview counts, a query searches",
    "--to": "filters end at a time, rebuild-cq brings queues to files or to RocksDB",
    "--trace": "query traces what it finds, a report the messages that are named",
}


def test_one_option_has_one_type_and_one_meaning() -> None:
    """In all commands, but for those that are named here with the reason."""
    found: dict[str, set[tuple[object, ...]]] = {}
    for name in cli.modules:
        for option in command_named(name).params:
            if isinstance(option, click.Option):
                kind = "PATH" if isinstance(option.type, click.Path) else repr(option.type)
                told = (option.help, kind, option.metavar, *option.opts)
                found.setdefault(max(option.opts, key=len), set()).add(told)
    assert {name for name, told in found.items() if len(told) > 1} - {"--output"} == OTHER_MEANINGS.keys()


def test_no_summary_is_cut_at_80_columns() -> None:
    shown = click.testing.CliRunner(env={"COLUMNS": "80"}).invoke(cli, ["--help"]).output
    assert max(map(len, shown.splitlines())) <= 80
    assert "..." not in shown.replace("[ARGS]...", "")


def test_help_is_at_most_100_columns_wide_and_groups_options() -> None:
    """Examples stand before the options, and the ranges of numbers are not told."""
    for name in cli.modules:
        shown = click.testing.CliRunner(env={"COLUMNS": "200"}).invoke(cli, [name, "--help"]).output
        assert max(map(len, shown.splitlines())) <= 100
        assert shown.index("Examples:") < shown.index("Options of every command") < shown.index("Exit statuses:")
        assert "x<=" not in shown
        assert "x>=" not in shown


def test_options_stand_in_one_order_everywhere() -> None:
    """Those that all commands share, in every help; of a rebuild ``--to`` is a place and no time."""
    shared = ["--dry-run", "--yes", "--topic", "--jobs", "--broker-version", "--broker-conf", "--limit-rate", "--json"]
    for name in cli.modules:
        shown = click.testing.CliRunner(env={"COLUMNS": "200"}).invoke(cli, [name, "--help"]).output
        listed = [
            word
            for line in shown[shown.index("\nExamples") :].splitlines()
            for word in re.findall(r"^  (?:-\w, )?(--[a-z-]+)", line)
        ]
        assert [word for word in listed if word in shared] == [word for word in shared if word in listed], name
    rebuild = click.testing.CliRunner().invoke(cli, ["rebuild-cq", "--help"]).output
    assert rebuild.index("--to [") < rebuild.index("Which messages:")


def test_options_of_every_command_are_one_line_unless_the_help_is_verbose() -> None:
    """Their names; the help of the program, and a verbose one, explain them. A command's own groups come first."""
    short = rmqtool("query", "--help").out
    assert (
        "\nOptions of every command (rmqtool --help explains them):\n  --json, --int64, --time-zone, --color" in short
    )
    assert "Colour text" not in short
    for words in (["query", "--help", "--verbose"], ["-v", "query", "--help"], ["query", "-v", "-h"], ["--help"]):
        assert "Colour text" in rmqtool(*words).out
    assert short.index("  --key KEY ") < short.index("  --unique-key KEY ") < short.index("  --topic TOPIC ")
    assert rmqtool("verify", "--help").out.index("  --fast ") < rmqtool("verify", "--help").out.index("  --topic ")


def test_every_name_of_a_group_is_an_option() -> None:
    """An option that is renamed does not fall out of its group."""
    options = {name.removeprefix("--") for command in COMMANDS.values() for name in long_options(command)}
    own = [command.groups for command in COMMANDS.values() if isinstance(command, help_page.HelpPage)]
    groups = [help_page._GROUPS, *own]
    assert {name for group in groups for names in group.values() for name in names} <= options


def test_help_version_and_completion_are_commands() -> None:
    """As people type them."""
    assert rmqtool("help").out == rmqtool("--help").out
    assert rmqtool("help", "verify").out == rmqtool("verify", "--help").out
    assert "did you mean verify" in rmqtool("help", "verfy").err
    assert rmqtool("version").out == rmqtool("--version").out == rmqtool("-V").out
    assert rmqtool("version", "--json").document["result"]["version"] in rmqtool("-V").out
    assert "complete -o nosort -F _rmqtool_completion rmqtool" in rmqtool("completion", "bash").out
