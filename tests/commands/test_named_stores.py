"""`rmqtool verify @orders-a`: stores by the names of `rmqtool.toml`, with what else they need."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from rmqtool.base.errors import Exit
from rmqtool.commands.named_stores import names
from tests.commands.running import ROOT, Result, command_named, environment, finish, rmqtool, spawn
from tests.verify.small_store import small_store

EXAMPLE = ROOT / "examples/store"
TIME = "2023-11-15 06:13:21"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory for settings; the working directory is another one, with a store."""
    (tmp_path / "home/rmqtool").mkdir(parents=True)
    (tmp_path / "work").mkdir()
    small_store(tmp_path / "work/store")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "home/rmqtool"


def write(text: str, directory: Path = Path()) -> None:
    (directory / "rmqtool.toml").write_text(text, encoding="utf-8")


def test_a_store_by_name(home: Path) -> None:
    """Its path is seen from the file; commands that are named next have the path."""
    write('[stores.orders-a]\npath = "store"\n')
    found = rmqtool("verify", "@orders-a", "-q")
    assert (found.status, found.out) == (Exit.OK, "clean: clients lose nothing; nothing to do\n")
    assert "verify store" in rmqtool("status", "@orders-a").out


def test_a_part_of_a_store(home: Path) -> None:
    """What follows the name is a path in the store."""
    write('[stores.orders-a]\npath = "store"\n')
    assert rmqtool("inspect", "@orders-a/commitlog", "--count", "--json").lines
    assert rmqtool("inspect", "@orders-a").out.startswith("store        store")


@pytest.mark.slow
def test_options_of_the_store(home: Path) -> None:
    """Release, broker.conf, zone and memory; those of all stores stand above them; the command line comes first."""
    Path("broker.conf").write_text("deleteWhen=05\n", encoding="utf-8")
    write('time_zone = "+08:00"\n[stores.a]\npath = "store"\nbroker_version = "4.9.7"\nbroker_conf = "broker.conf"\n')
    plan = rmqtool("clean", "@a", "-n").out
    assert "deleteWhen is '05'" in plan
    assert "+08:00 (Asia" in plan or "+08:00" in plan
    assert "a broker 4.9.7 would" in rmqtool("verify", "@a").out
    assert "a broker 5.3.3 would" in rmqtool("verify", "@a", "--broker-version", "5.3.3").out
    assert "+00:00" in rmqtool("clean", "@a", "-n", "--time-zone", "UTC").out
    assert "+00:00" in rmqtool("--time-zone", "UTC", "clean", "@a", "-n").out
    write('[stores.a]\npath = "store"\nbroker-version = "4.9.7"\n')
    assert "a broker 4.9.7 would" in rmqtool("verify", "@a").out
    write('[stores.a]\npath = "store"\nmemory = "1MiB"\n')
    assert "memory" in rmqtool("verify", "@a").err


@pytest.mark.parametrize(
    "order", [("--from", "2023-11-15 06:13:21", "@a/commitlog"), ("@a/commitlog", "--from", "2023-11-15 06:13:21")]
)
def test_times_that_are_given_are_in_the_zone_of_the_store(order: tuple[str, ...], home: Path) -> None:
    """Wherever they stand."""
    write('[stores.a]\npath = "store"\ntime_zone = "+08:00"\n')
    first = rmqtool("inspect", *order, "--json").lines[0]
    utc = rmqtool("inspect", "store/commitlog", "--json", "--time-zone", "UTC", "--from", "2023-11-14 22:13:21").lines[
        0
    ]
    assert first == utc


def test_the_environment_comes_before_the_file(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write('[stores.a]\npath = "store"\nbroker_version = "4.9.7"\n')
    monkeypatch.setenv("RMQTOOL_VERIFY_BROKER_VERSION", "5.1.4")
    assert "a broker 5.1.4 would" in rmqtool("verify", "@a").out


def test_the_file_of_the_working_directory_comes_first(home: Path) -> None:
    """Stores of the other one are there, too."""
    write(f'[stores.a]\npath = "{EXAMPLE}"\n[stores.b]\npath = "{EXAMPLE}"\n', home)
    write('[stores.a]\npath = "store"\n')
    assert rmqtool("inspect", "@a").out.startswith("store        store,")
    assert rmqtool("inspect", "@b").out.startswith(f"store        {EXAMPLE}")
    assert names() == ["@a", "@b"]


@pytest.mark.slow
def test_several_stores(home: Path, tmp_path: Path) -> None:
    """Of diff and salvage, and those with a name before them of an export."""
    write(f'[stores.a]\npath = "store"\n[stores.b]\npath = "{EXAMPLE}"\n')
    assert rmqtool("diff", "@a", "@a").status == Exit.OK
    assert rmqtool("diff", "@a", "@b").status == Exit.FINDINGS
    assert rmqtool("salvage", "@a", "--output", tmp_path / "new", "--dry-run").status in (Exit.OK, Exit.FINDINGS)
    exported = rmqtool("export", "x=@a", "@b", "--output", tmp_path / "lake", "--engine", "local", "--json")
    assert exported.document["result"]["rows"] > 100


@pytest.mark.slow
def test_sql_of_a_store_by_name(home: Path) -> None:
    """Alone or with a name before it; a statement is none, whatever signs it has."""
    write('[stores.a]\npath = "store"\n')
    found = rmqtool("sql", "@a", "x=@a", "select count(distinct store) as stores, '=@a' as sign from queues")
    assert (found.status, found.out) == (Exit.OK, "stores,sign\n2,=@a\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[stores.a\n", "rmqtool.toml: is not TOML: "),
        ("\xff", "rmqtool.toml: is not UTF-8 at byte 0"),
        ("stores = 3\n", "stores are tables: [stores.NAME]"),
        ('[stores]\na = "store"\n', "stores are tables: [stores.NAME]"),
        ("[stores.a]\n", "[stores.a]: path is missing, the directory of the store"),
        ("[stores.a]\npath = 3\n", "[stores.a]: path is a text, not 3"),
        ('[stores.a]\npath = "store"\njobs = "2"\n', "[stores.a]: jobs is a whole number, not '2'"),
        ('[stores.a]\npath = "store"\njobs = true\n', "[stores.a]: jobs is a whole number, not True"),
        ('[stores.a]\npath = "store"\nbroker_versoin = "5"\n', "[stores.a]: no setting broker_versoin"),
        ('[stores.a]\npath = "store"\nrelease = "5"\n', "did you mean broker_version?"),
        ('[stores.a]\npath = "store"\nbroker_version = "five"\n', "[stores.a]: broker_version: "),
        ('[stores.a]\npath = "store"\ntime_zone = "Mars"\n', "[stores.a]: time_zone: "),
        ('zone = "UTC"\n[stores.a]\npath = "store"\n', "above the stores: no setting zone"),
        ('path = "store"\n[stores.a]\n', "above the stores: path is of one store"),
        ('[stores.a]\npath = "store"\nmemory = "much"\n', "'much' is not a size"),
        ('[stores.a]\npath = "nowhere"\n', "nowhere"),
    ],
)  # fmt: skip
def test_bad_files(text: str, said: str, home: Path) -> None:
    """One sentence that says where and what; no traceback."""
    Path("rmqtool.toml").write_bytes(text.encode("latin-1"))
    found = rmqtool("verify", "@a")
    assert found.status in (Exit.USAGE, Exit.NOT_A_STORE, Exit.FAILED)
    assert said in found.err
    assert found.out == ""


def test_unknown_names(home: Path) -> None:
    """Are told with those that there are, or where the file would be."""
    found = rmqtool("verify", "@orders")
    assert found.status == Exit.USAGE
    assert "no store @orders: there is no rmqtool.toml" in found.err
    assert f"it would be rmqtool.toml or {home / 'rmqtool.toml'}; a directory of that name is ./@orders" in found.err
    write('[stores.orders-a]\npath = "store"\n[stores.shop]\npath = "store"\n')
    assert "did you mean @orders-a?" in rmqtool("verify", "@orders").err
    assert "there are @orders-a, @shop" in rmqtool("verify", "@x").err
    write("")
    assert "it has no table [stores.NAME]" in rmqtool("verify", "@x").err
    assert rmqtool("verify", "@x", "--json").document["error"]["kind"] == "usage"


def test_a_directory_with_such_a_name(home: Path) -> None:
    """Is one after ./."""
    os.rename("store", "@store")
    assert rmqtool("verify", "./@store", "-q").status == Exit.OK


def test_no_file_is_written_to_a_store_by_name(home: Path) -> None:
    """Names are arguments only."""
    write('[stores.a]\npath = "store"\n')
    assert rmqtool("export", "store", "--output", "@a", "--engine", "local").status == Exit.OK
    assert Path("@a/_manifest.json").exists()


def test_shells_complete_names(home: Path) -> None:
    """And nothing where the file cannot be read."""
    write('[stores.orders-a]\npath = "store"\n[stores.shop]\npath = "store"\n')
    command = command_named("verify")
    argument: Any = next(each for each in command.params if each.name == "path")
    context = command.make_context("verify", [], resilient_parsing=True)
    assert [each.value for each in argument.type.shell_complete(context, argument, "@o")] == ["@orders-a"]
    write("[")
    assert argument.type.shell_complete(context, argument, "@o") == []


@pytest.mark.slow
def test_processes_read_it(home: Path) -> None:
    """As the console script does; JSON names the path."""
    write('[stores.a]\npath = "store"\n')
    process = spawn("inspect", "@a", "--json", cwd=Path.cwd(), env=environment())
    found: Result = finish(process)
    assert json.loads(found.out)["store"] == "store"
