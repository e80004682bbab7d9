"""The command line of exports: what it writes and says, its exit statuses, its options. The engine is the local one."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pyarrow.parquet as pq
import pytest

from rmqtool.base.errors import Exit
from rmqtool.cli import cli
from rmqtool.show.output import Style
from rmqtool.store.message_reader import EXPORT_COLUMNS, STORE_COLUMN
from tests.building import LogBuilder, write_log
from tests.commands.running import ROOT, Result, command_named, environment, listing, rmqtool, spawn
from tests.conftest import GoldenStore
from tests.export.exporting import manifest_of, rows_of
from tests.golden import stores
from tests.unchanged import unchanged

SECONDS = 200  # that a process may take on a busy machine


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing waits for the disk."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    messages: list[dict[str, Any]] = [
        {
            "topic": f"t{number % 3}",
            "queue_id": number % 2,
            "properties": {"TAGS": "ab"[number % 2], "KEYS": f"k{number}"},
        }
        for number in range(60)
    ]
    return LogBuilder().add_all(messages).write(tmp_path / "brokers" / "a" / "store")


def export(store: Path, output: Path, *options: str | Path) -> Result:
    with unchanged(store):
        return rmqtool("export", store, "--output", output, "--engine", "local", *options)


@pytest.mark.slow
def test_every_golden_store(golden_store: GoldenStore, tmp_path: Path) -> None:
    """Exit 0, the manifest without its lists as JSON, and a check that finds nothing."""
    for name in stores.names()[::3]:
        found = export(golden_store(name), tmp_path / name, "--json")
        assert found.status == Exit.OK, name
        result, manifest = found.document["result"], manifest_of(tmp_path / name)
        assert result["rows"] == manifest["rows"] == len(rows_of(tmp_path / name))
        assert result["files_count"] == len(manifest["files"])
        assert "queues" not in result
        compared = rmqtool("export", golden_store(name), "--check", tmp_path / name, "--json")
        assert (compared.status, compared.document["result"]["check"]["rows_compared"]) == (Exit.OK, result["rows"])


def test_text(store: Path, output: Path) -> None:
    """What was done, in a few lines; the rest with -v."""
    lines = export(store, output).out.splitlines()
    assert lines[0].startswith("exported     60 messages in 1 file of ")
    end = manifest_of(output)["source"][0]["next_physical_offset"]
    assert lines[1:] == [f"output       {output}", f"store        a, offsets 0 to {end}"]
    again = export(store, output, "--mode", "incremental", "-v").out
    assert again.startswith("exported     nothing is new\nin all       60 messages in 1 file")
    assert "queue        t0 0: 10 rows" in again
    assert "the export matches the log" in rmqtool("export", store, "--check", output).out


def test_damage_is_told(tmp_path: Path, output: Path) -> None:
    """Exit 3: where, how much, why, and that the rest is there."""
    builder = LogBuilder().add_all([{}] * 20)
    wrong = builder.add(body_crc=1)
    images = builder.images()
    at = builder.offsets[4] + 30
    images[0] = images[0][:at] + b"\xff" + images[0][at + 1 :]
    found = export(write_log(tmp_path / "store", images), output)
    assert found.status == Exit.LOSSY
    assert "skipped      1 range of" in found.out
    assert f"{builder.offsets[4]} to {builder.offsets[5]}: physical-offset" in found.out
    assert f"1 body with a CRC mismatch, exported unchanged; physical offsets {wrong}" in found.out
    assert len(rows_of(output)) == 20
    assert export(tmp_path / "store", output, "--mode", "incremental").status == Exit.OK


@pytest.mark.parametrize(
    ("options", "passes"),
    [
        (["--topic", "t0", "--topic", "t1"], lambda row: row["topic"] in ("t0", "t1")),
        (["--queue", "1"], lambda row: row["queue_id"] == 1),
        (["--tag", "a"], lambda row: row["tags"] == "a"),
        (["--key", "k5"], lambda row: row["keys"] == ["k5"]),
        (["--from-offset", "1000", "--to-offset", "5000"], lambda row: 1000 <= row["physical_offset"] < 5000),
        (["--to", "2000-01-01T00:00:00Z"], lambda row: False),
    ],
)
def test_filters(options: list[str], passes: Callable[[Any], bool], store: Path, tmp_path: Path) -> None:
    """Each as in every command; the manifest says which, and a check uses them."""
    export(store, tmp_path / "all")
    export(store, tmp_path / "some", *options)
    assert rows_of(tmp_path / "some") == [row for row in rows_of(tmp_path / "all") if passes(row)]
    assert rmqtool("export", store, "--check", tmp_path / "some").status == Exit.OK


def test_columns_bodies_partitions_and_compression(store: Path, output: Path) -> None:
    """In the order that is given."""
    export(store, output, "--columns", "body,topic", "--columns", "queue_id", "--partition-by", "topic,queue",
           "--compression", "gzip:9", "--store-column")  # fmt: skip
    manifest = manifest_of(output)
    assert [column["name"] for column in manifest["columns"]] == ["body", "topic", "queue_id", "store"]
    assert len(manifest["files"]) == 6
    assert (output / "by_topic=t1" / "by_queue=0").is_dir()
    metadata = pq.read_metadata(output / manifest["files"][0]["path"])
    assert metadata.row_group(0).column(0).compression == "GZIP"
    export(store, output, "--body", "none", "--mode", "overwrite")
    assert "body" not in [column["name"] for column in manifest_of(output)["columns"]]


@pytest.mark.parametrize("form", ["csv", "ndjson"])
def test_text_formats(form: str, store: Path, output: Path) -> None:
    """Files that any program reads, the manifest that says so, and a check that proves them."""
    columns = ["--columns", "topic,physical_offset,properties.KEYS,file,body", "--body-format", "text"]
    found = export(store, output, "--format", form, "--compression", "gzip", *columns, "--json")
    result = found.document["result"]
    assert (result["format"], result["body_format"], result["rows"]) == (form, "text", 60)
    path = min(output.glob(f"*.{form}.gz"))
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    first = lines[0] if form == "csv" else ",".join(json.loads(lines[0]))
    assert first == "topic,physical_offset,properties.KEYS,file,body" + (",body_base64" if form == "csv" else "")
    assert rmqtool("export", store, "--check", output).status == Exit.OK
    again = export(store, output, "--mode", "incremental", *columns[:2])
    assert (again.status, f"other format: {form}" in again.err) == (Exit.USAGE, True)


@pytest.mark.parametrize(
    ("options", "is_told"),
    [
        (["--format", "csv"], True),
        (["--format", "ndjson"], True),
        (["--format", "csv", "--body-format", "base64"], False),
        (["--format", "csv", "--body", "none"], False),
        (["--format", "csv", "--columns", "topic"], False),
        (["--format", "csv", "--from", "2099-01-01"], False),
        ([], False),
    ],
)
def test_a_text_file_names_the_option_for_readable_bodies(
    options: list[str], is_told: bool, store: Path, output: Path
) -> None:
    """Where bodies are base64 and nobody asked for that."""
    found = rmqtool("export", store, "--output", output, "--engine", "local", *options)
    assert ("bodies are base64; --body-format text" in found.err) == is_told


def test_a_pattern_and_names(store: Path, tmp_path: Path, output: Path) -> None:
    """Stores that a pattern fits, each with its directory's name, or the one that is given."""
    LogBuilder().add_all([{}] * 5).write(tmp_path / "brokers" / "b" / "store")
    found = rmqtool("export", f"{tmp_path}/brokers/*/store", "--output", output, "--engine", "local", "--json")
    assert found.document["store"] == f"{tmp_path}/brokers/*/store"
    names = [row["store"] for row in rows_of(output)]
    assert (names.count("a"), names.count("b")) == (60, 5)
    named = rmqtool("export", f"x={store}", "--output", tmp_path / "x", "--engine", "local", "--store-column")
    assert named.status == Exit.OK
    assert rows_of(tmp_path / "x")[0]["store"] == "x"
    nothing = rmqtool("export", f"{tmp_path}/nobody/*", "--output", tmp_path / "y", "--engine", "local")
    assert (nothing.status, "no directory matches" in nothing.err) == (Exit.FAILED, True)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--columns", "nope"], "no column is named 'nope'"),
        (["--columns", "body", "--body", "none"], "no column is left"),
        (["--include", "none"], "is not one of prepared, rolled-back"),
        (["--partition-by", "tag"], "not one of topic, date, hour, queue"),
        (["--compression", "rar"], "no compression is named 'rar'"),
        (["--format", "csv", "--compression", "brotli"], "csv files are not compressed with brotli"),
        (["--format", "xlsx"], "'xlsx' is not one of 'parquet', 'csv', 'ndjson'"),
        (["--body-format", "text"], "--body-format is for CSV and NDJSON"),
        (["--compression", "zstd:99"], "levels 1 to 22"),
        (["--compression", "snappy:1"], "snappy has no levels"),
        (["--split-size", "5"], "not a size of at least 1MiB"),
        (["--conf", "x"], "is not NAME=VALUE"),
        (["--jobs", "0"], "--jobs"),
    ],
)
def test_what_does_not_fit_is_a_usage_error(options: list[str], text: str, store: Path, output: Path) -> None:
    """Exit 2 with a sentence, before anything is made."""
    found = export(store, output, *options)
    assert (found.status, found.out) == (Exit.USAGE, "")
    assert text in found.err
    assert not output.exists()


def test_where_to_write(store: Path, output: Path, tmp_path: Path) -> None:
    """One of --output and --check; not into a store; not over what is there."""
    assert rmqtool("export", store).status == Exit.USAGE
    assert rmqtool("export", store, "--output", output, "--check", output).status == Exit.USAGE
    inside = export(store, store / "out")
    assert (inside.status, "inside a store" in inside.err) == (Exit.USAGE, True)
    assert export(store, output).status == Exit.OK
    again = export(store, output, "--json")
    assert (again.status, again.document["error"]["kind"]) == (Exit.USAGE, "usage")
    assert rmqtool("export", store, "--check", tmp_path / "nothing").status == Exit.FAILED
    assert rmqtool("export", tmp_path, "--output", tmp_path / "x", "--engine", "local").status == Exit.NOT_A_STORE


def test_a_difference_is_exit_1(store: Path, output: Path) -> None:
    """With a finding for a person and for a program."""
    export(store, output)
    path = output / manifest_of(output)["files"][0]["path"]
    pq.write_table(pq.read_table(path).slice(1), path)
    found = rmqtool("export", store, "--check", output, "--json")
    assert found.status == Exit.FINDINGS
    assert {finding["code"] for finding in found.document["findings"]} == {"export.file", "export.missing"}
    assert "1 message of the log is not in the export" in rmqtool("export", store, "--check", output).out


@pytest.mark.slow
def test_several_processes_write_what_one_writes(store: Path, tmp_path: Path) -> None:
    """And a rate limit holds for all of them together."""
    builder = LogBuilder(1 << 26)
    builder.add_all([{"body": bytes(1 << 20), "queue_offset": number} for number in range(70)])
    store = builder.write(tmp_path / "large")
    for jobs in ("1", "3"):
        process = spawn("export", store, "--output", tmp_path / jobs, "--engine", "local", "-j", jobs,
                        "--split-size", "16MiB", env=environment())  # fmt: skip
        process.communicate(timeout=SECONDS)
        assert process.returncode == Exit.OK
    assert rows_of(tmp_path / "1") == rows_of(tmp_path / "3")
    assert len(manifest_of(tmp_path / "3")["files"]) == 5


@pytest.mark.one_in(2)
@pytest.mark.slow
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, Exit.INTERRUPTED), (signal.SIGTERM, Exit.TERMINATED)])
def test_an_interruption_leaves_nothing(number: signal.Signals, status: Exit, tmp_path: Path, output: Path) -> None:
    """Neither a file nor a process, whether the workers are told too or not."""
    store = LogBuilder(1 << 26).add_all([{"body": bytes(1 << 20)}] * 62).write(tmp_path / "large")
    process = spawn("export", store, "--output", output, "--engine", "local", "-j", "2", "--split-size", "4MiB",
                    "--limit-rate", "4MiB", env=environment(), start_new_session=True)  # fmt: skip
    deadline = time.monotonic() + SECONDS
    while not list(output.glob("_temporary/*/*.parquet")) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(process.pid, number) if number == signal.SIGINT else process.send_signal(number)
    out, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, out) == (status, b"")
    assert b"Traceback" not in err
    assert not output.exists()


IN_ENVIRONMENT = {
    "--output": "/lake",
    "--check": "/lake",
    "--mode": "append",
    "--columns": "topic,body",
    "--body": "stored",
    "--include": "prepared,rolled-back",
    "--partition-by": "topic,date",
    "--compression": "gzip:9",
    "--format": "csv",
    "--body-format": "json",
    "--decoder": "wc -c",
    "--redact": "keys,hosts",
    "--redact-as": "hash",
    "--redact-salt": "salt",
    "--engine": "local",
    "--master": "spark://m:7077",
    "--conf": "a=b",
    "--jobs": "3",
    "--split-size": "64MiB",
    "--topic": "orders",
    "--exclude-topic": "orders_*",
    "--queue": "3",
    "--tag": "red",
    "--key": "k",
    "--transaction": "commit",
    "--from": "2026-11-21T00:00:00Z",
    "--to": "5",
    "--from-offset": "1",
    "--to-offset": "200",
    "--limit-rate": "1MiB",
    "--broker-version": "5.3",
    "--broker-conf": str(ROOT / "Makefile"),
    "--store-column": "",
    "--memory": "300MiB",
    "--dry-run": "",
    "--table": "delta",
    "--tiered-path": "/mnt/tier",
}


def parsed(*arguments: str) -> dict[str, str]:
    """What `export` is called with, as text."""
    with click.Context(cli, info_name="rmqtool", obj=Style(), **cli.context_settings) as parent:
        found = command_named("export").make_context("export", ["store", *arguments], parent=parent).params
    return {name: re.sub(" at 0x[0-9a-f]+", "", repr(value)) for name, value in found.items()}


@pytest.mark.parametrize("option", IN_ENVIRONMENT)
def test_options_in_the_environment(option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is what it is on the command line."""
    value = IN_ENVIRONMENT[option]
    given = parsed(option, *([value] if value else []))
    assert given != parsed()
    monkeypatch.setenv(f"RMQTOOL_EXPORT_{option[2:].replace('-', '_').upper()}", value or "1")
    assert parsed() == given


def test_no_option_is_missing_in_the_environment() -> None:
    """The global ones are tested with those of every command."""
    told = {"--json", "--int64", "--color", "--progress", "--no-pager", "--quiet", "--verbose", "--help"}
    told |= {"--version", "--time-zone"}
    names = {option.opts[-1] for option in command_named("export").params if option.opts[-1].startswith("--")}
    assert names - told == set(IN_ENVIRONMENT)


def test_every_option_is_documented() -> None:
    """In docs/export.md or with those of every command; and every exit status of the help."""
    text = (ROOT / "docs" / "export.md").read_text() + (ROOT / "docs" / "inspect.md").read_text()
    text += (ROOT / "docs" / "filters.md").read_text()
    names = [name for option in command_named("export").params for name in option.opts if name.startswith("--")]
    assert [name for name in names if name not in text] == []


def test_the_manifest_is_json_that_anyone_reads(store: Path, output: Path) -> None:
    """Names as documented."""
    export(store, output)
    text = (ROOT / "docs" / "export.md").read_text()
    manifest = json.loads((output / "_manifest.json").read_text())
    told = {"schema", "rmqtool", "columns", "body", "include", "filters", "partition_by", "compression", "scanned"}
    assert [name for name in manifest if name not in told and f"`{name}`" not in text] == []


def test_the_page_has_each_column() -> None:
    """The table of docs/export.md, in the order of the columns of an export."""
    table = (ROOT / "docs" / "export.md").read_text().partition("| column |")[2].partition("\n\n")[0]
    names = [name for row in table.split("\n")[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert sorted(names) == sorted([*EXPORT_COLUMNS, STORE_COLUMN])


def test_an_export_of_no_message_says_what_it_left(output: Path, golden_store: GoldenStore) -> None:
    """It is an export, too, which the next one finds there: how to go on is said."""
    store, options = golden_store("5.3.3-single"), ("--output", output, "--format", "csv", "--engine", "local")
    found = rmqtool("export", store, *options, "--from", "2030-01-01")
    assert found.status == Exit.FINDINGS
    assert f"{output} now holds an empty export: --mode overwrite replaces it" in found.err
    again = rmqtool("export", store, *options, "--mode", "overwrite")
    assert again.status == Exit.OK
    assert "empty export" not in again.err


@pytest.mark.slow
@pytest.mark.parametrize(
    "filters",
    [
        ["--topic", "orders"], ["--exclude-topic", "orders"], ["--exclude-topic", "*o*"], ["--queue", "1"],
        ["--tag", "Aa || BB"], ["--transaction", "commit"], ["--transaction", "prepared", "--transaction", "rollback"],
        ["--transaction", "none", "--include", "prepared"], ["--from-offset", "1000", "--to-offset", "60000"],
    ],
)  # fmt: skip
def test_what_a_filter_leaves_out_is_not_missing(filters: list[str], golden_store: GoldenStore, tmp_path: Path) -> None:
    """A check reads the log with the filters of the export."""
    store = golden_store("5.3.3-clean")
    assert rmqtool("export", store, "--output", tmp_path / "out", "--engine", "local", *filters).status == Exit.OK
    checked = rmqtool("export", store, "--check", tmp_path / "out")
    assert (checked.status, "the export matches the log" in checked.out) == (Exit.OK, True), checked.out


@pytest.mark.slow
def test_records_of_one_type(golden_store: GoldenStore, tmp_path: Path) -> None:
    """Who filters for records that no consumer sees gets them; the manifest says it; listings do the same."""
    store, out = golden_store("5.3.3-clean"), tmp_path / "out"
    records = listing(store).of_kind("message")
    for kinds in (["prepared"], ["commit", "rollback"], ["none"]):
        filters = [word for kind in kinds for word in ("--transaction", kind)]
        expected = sum(each["transaction"] in kinds for each in records)
        assert expected > 0
        line: list[str | Path] = ["export", store, "--output", out, "--mode", "overwrite", "--engine", "local"]
        exported = rmqtool(*line, *filters, "--json").document["result"]
        assert (exported["rows"], exported["filters"]["transaction"]) == (expected, kinds)
        counted = rmqtool("inspect", store / "commitlog", "--count", "--json", *filters)
        assert counted.lines[0]["counts"]["message"] == expected
        found = rmqtool("query", store, "--scan", "--json", "--body", "none", *filters).of_kind("message")
        assert {each["transaction"] for each in found} == set(kinds)
    refused = rmqtool("inspect", store / "consumequeue", "--transaction", "none")
    assert (refused.status, "--transaction" in refused.err) == (Exit.USAGE, True)


def test_a_dry_run_makes_nothing(store: Path, output: Path) -> None:
    """What is to be read, and where; neither the output nor a directory above it is made."""
    done = export(store, output / "below", "--dry-run")
    assert (done.status, output.exists()) == (Exit.OK, False)
    assert re.search(r"would read +\d.* of log in 1 part, with processes of this machine", done.out)
    assert re.search(r"output +.*below, is empty", done.out)
    assert "nothing was written" in done.err


def test_a_dry_run_foresees_the_run(store: Path, output: Path) -> None:
    """Its bytes are those that the run reads, its rows those that are there; the output stays as it is."""
    plan = json.loads(export(store, output, "-n", "--json").out)["result"]["plan"]
    assert plan["rows_there"] is None
    made = json.loads(export(store, output, "--json").out)["result"]
    assert plan["source"][0]["next_physical_offset"] == made["source"][0]["next_physical_offset"]
    assert plan["bytes_to_read"] == made["source"][0]["next_physical_offset"]
    assert plan["columns"] == [column["name"] for column in made["columns"]]
    with unchanged(output):
        refused = export(store, output, "-n")
        idle = json.loads(export(store, output, "-n", "--mode", "incremental", "--json").out)["result"]["plan"]
        again = json.loads(export(store, output, "-n", "--mode", "overwrite", "--json").out)["result"]["plan"]
    assert (refused.status, "already has an export" in refused.err) == (Exit.USAGE, True)
    assert (idle["rows_there"], idle["bytes_to_read"], idle["splits"]) == (60, 0, 0)
    assert (again["rows_there"], again["bytes_to_read"]) == (60, plan["bytes_to_read"])


def test_a_dry_run_after_an_interrupted_commit(store: Path, output: Path) -> None:
    """The run would finish that commit first: its rows count as there."""
    export(store, output)
    manifest = (output / "_manifest.json").read_text()
    journal = output / "_temporary" / "commit.json"
    journal.parent.mkdir()
    journal.write_text(json.dumps({"moves": [], "removed": [], "manifest": json.loads(manifest)}))
    (output / "_manifest.json").unlink()
    plan = json.loads(export(store, output, "-n", "--mode", "incremental", "--json").out)["result"]["plan"]
    assert (plan["rows_there"], plan["splits"]) == (60, 0)
    assert journal.exists()


def test_a_check_has_no_dry_run(store: Path, output: Path) -> None:
    done = rmqtool("export", store, "--check", output, "--dry-run")
    assert (done.status, "--check writes nothing" in done.err) == (Exit.USAGE, True)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--memory", "10MiB"), "--memory 10.0 MiB is too little"),
        (("--engine", "spark", "--memory", "1GiB"), "is for --engine local"),
    ],
)
def test_a_dry_run_refuses_what_the_run_does(
    store: Path, output: Path, options: tuple[str, ...], expected: str
) -> None:
    done = export(store, output, "--dry-run", *options)
    assert (done.status, expected in done.err) == (Exit.USAGE, True)


@pytest.mark.parametrize("name", ["file", "file/below", "dangling"])
def test_a_dry_run_into_no_directory(store: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for more in ((), ("--dry-run",)):
        done = export(store, tmp_path / name, *more)
        assert (done.status, str(tmp_path / name) in done.err) == (Exit.FAILED, True)


@pytest.mark.parametrize("journal", ["[1]", '{"moves": [], "removed": []}', '{"manifest": {"schema": 1}}', "{"])
@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_a_damaged_record_of_a_commit(store: Path, output: Path, journal: str, more: tuple[str, ...]) -> None:
    """It is as if there were none."""
    (output / "_temporary").mkdir(parents=True)
    (output / "_temporary" / "commit.json").write_text(journal)
    assert export(store, output, *more).status == Exit.OK


def test_half_a_manifest(store: Path, output: Path) -> None:
    output.mkdir()
    (output / "_manifest.json").write_text('{"schema": "rmqtool.export-manifest/1"}')
    for more in ((), ("--dry-run",)):
        done = export(store, output, "--mode", "incremental", *more)
        assert (done.status, "not a manifest" in done.err) == (Exit.FAILED, True)


@pytest.mark.slow
def test_a_check_that_cannot_compare_rows_does_not_vouch_for_them(golden_store: GoldenStore, tmp_path: Path) -> None:
    """Hashes of values say nothing without the salt: the result speaks of what was compared."""
    store, hashed = golden_store("5.3.3-clean"), ("--redact", "keys", "--redact-as", "hash", "--redact-salt", "salt")
    assert rmqtool("export", store, "--output", tmp_path / "out", "--engine", "local", *hashed).status == Exit.OK
    for options, result in (
        ((), "what was compared matches the log"),
        (hashed, "the export matches the log"),
    ):
        checked = rmqtool("export", store, "--check", tmp_path / "out", *options)
        assert (checked.status, result in checked.out) == (Exit.OK, True), checked.out
