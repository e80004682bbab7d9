"""`--decoder` on the command line: what is shown of decoded bodies, and what is refused."""

from __future__ import annotations

import base64
import csv
import gzip
import io
import json
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rmqtool.base.errors import Exit
from tests.building import LogBuilder
from tests.commands.running import (
    ROOT,
    Result,
    environment,
    errors_of,
    finish,
    inspect,
    listing,
    query,
    rmqtool,
    spawn,
    validator,
)
from tests.conftest import GoldenStore
from tests.decoding import DIGESTS, assert_gone, digest, install_decoders, pids_in
from tests.export.exporting import manifest_of, rows_of
from tests.golden import stores
from tests.unchanged import unchanged

GOLDEN = "5.5.0-clean"
SELECTIVE = "sh -c 'read -r a; case $a in bad*) echo no such field >&2; exit 1;; esac; echo \"<$a>\"'"
"""Bodies that begin with ``bad`` cannot be decoded."""
FIRST_FAILURE = "at offset {}: exit status 1: no such field"


@pytest.fixture
def log() -> LogBuilder:
    """Two bodies that can be decoded, one that cannot be, and one that cannot be decompressed."""
    builder = LogBuilder()
    for number, body in enumerate((b"one\n", b"bad body", b"\xffthree", b"not zlib")):
        properties = {"KEYS": "secret-key", "TAGS": "secret-tag", "card": "4111-1111"}
        builder.add(body=body, queue_offset=number, properties=properties, sys_flag=number == 3)
    return builder


@pytest.fixture
def store(log: LogBuilder, tmp_path: Path) -> Path:
    return log.write(tmp_path / "store")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "site").mkdir()
    monkeypatch.syspath_prepend(install_decoders(tmp_path / "site"))


def export(store: Path, output: Path, *options: str | Path) -> Result:
    with unchanged(store):
        return rmqtool("export", store, "--output", output, "--engine", "local", *options)


def counting(tmp_path: Path) -> str:
    """A decoder that leaves a line for each body."""
    return f"sh -c 'echo x >> {tmp_path}/bodies; cat'"


def bodies_seen(tmp_path: Path) -> int:
    path = tmp_path / "bodies"
    return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.mark.slow
@pytest.mark.parametrize("body", ["decompressed", "stored", "none"])
def test_bodies_arrive_decompressed(body: str, golden_store: GoldenStore) -> None:
    """All of a real store, of each compression, whatever body is shown; the lines are what the schema says."""
    records = stores.oracle(GOLDEN)["records"]
    assert len({record["sys_flag"] & 0x701 for record in records}) > 3
    expected = [digest(base64.b64decode(record["body_base64"])) for record in records]
    found = listing(golden_store(GOLDEN), "--decoder", DIGESTS, "--body", body)
    assert (found.status, found.err) == (Exit.OK, "")
    messages = found.of_kind("message")
    assert [message["body_decoded"] for message in messages] == expected
    assert all(("body" in message) == (body != "none") for message in messages)


@pytest.mark.slow
@pytest.mark.parametrize("body", ["decompressed", "stored", "none"])
def test_a_query_decodes_what_an_export_does(body: str, golden_store: GoldenStore) -> None:
    """One compressed body of each kind, asked for by its offset."""
    store = golden_store(GOLDEN)
    records = {record["sys_flag"] & 0x701: record for record in stores.oracle(GOLDEN)["records"]}
    for record in records.values():
        options = ["--offset", str(record["physical_offset"]), "--decoder", DIGESTS, "--body", body]
        found = query(store, *options, "--json")
        assert found.lines[0]["body_decoded"] == digest(base64.b64decode(record["body_base64"]))
        assert ("body" in found.lines[0]) == (body != "none")


def test_text_shows_the_decoded_body(store: Path, log: LogBuilder) -> None:
    """And the body itself where it could not be decoded, with the reason."""
    found = inspect(store, "--decoder", SELECTIVE, part="commitlog")
    assert found.status == Exit.LOSSY
    assert "ok  decoded\n    <one>\n" in found.out
    assert "ok  not decoded: exit status 1: no such field\n    bad body\n" in found.out
    assert "not decoded: the body cannot be decompressed\n    not zlib\n" in found.out
    assert f"3 of 4 bodies could not be decoded; the first: commitlog/{'0' * 20} " in found.err
    assert FIRST_FAILURE.format(log.offsets[1]) in found.err
    asked = query(store, "--offset", str(log.offsets[1]), "--decoder", SELECTIVE)
    assert "ok  not decoded: exit status 1: no such field\n    bad body\n" in asked.out
    assert f"the body could not be decoded: commitlog/{'0' * 20} {FIRST_FAILURE.format(log.offsets[1])}" in asked.err


def test_text_of_a_decoder_is_shown_harmlessly(store: Path) -> None:
    """What would change the terminal is shown as it is written."""
    colored = "printf \\\\033[31mred"
    for found in (
        query(store, "--offset", "0", "--decoder", colored),
        inspect(store, "--limit", "1", "--decoder", colored, "--format", "table", part="commitlog"),
    ):
        assert "red" in found.out
        assert "\x1b[31m" not in found.out
    failing = query(store, "--offset", "0", "--decoder", "sh -c 'printf \"\\\\033[31mred\" >&2; exit 1'")
    assert "red" in failing.err
    assert "\x1b[31m" not in failing.out + failing.err


def test_json_names_what_could_not_be_decoded(store: Path) -> None:
    """`body_decoded` is in each message, the reason only where it is null; both go together in the schema."""
    found = listing(store, "--decoder", SELECTIVE, every=1)
    assert found.status == Exit.LOSSY
    shown = [(line["body_decoded"], line.get("body_decode_error")) for line in found.of_kind("message")]
    assert shown == [
        ("<one>", None),
        (None, "exit status 1: no such field"),
        (None, "the decoder's text is not UTF-8"),
        (None, "the body cannot be decompressed"),
    ]
    line = found.of_kind("message")[1]
    del line["body_decoded"]
    assert errors_of("listing", line)
    pulled = query(store, "--offset", "0", "--decoder", SELECTIVE, "--json", every=1)
    assert pulled.lines[0]["body_decoded"] == "<one>"


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (["--columns", "body_decode_error,queue_id,body_decoded"], ["body_decode_error", "queue_id", "body_decoded"]),
        ([], ["body_decoded", "body_decode_error"]),
    ],
)
def test_csv(options: list[str], names: list[str], store: Path) -> None:
    """Both columns after the others, or where they are named."""
    found = inspect(store, "--format", "csv", "--decoder", SELECTIVE, *options, part="commitlog")
    rows = list(csv.DictReader(io.StringIO(found.out)))
    assert list(rows[0])[-len(names) :] == names
    assert [row["body_decoded"] for row in rows] == ["<one>", "", "", ""]
    assert rows[1]["body_decode_error"] == "exit status 1: no such field"


def test_only_what_is_shown_is_decoded(store: Path, tmp_path: Path) -> None:
    """Not what filters, --limit, --count or other columns leave out."""
    decoder = ["--decoder", counting(tmp_path)]
    for options, count in (
        (["--limit", "1"], 1),
        (["--queue", "9"], 1),
        (["--count"], 1),
        (["--columns", "topic,body_decoded", "--limit", "2"], 3),
    ):
        inspect(store, *options, *decoder, part="commitlog")
        assert bodies_seen(tmp_path) == count
    query(store, "--queue-offset", "1", "--topic", "orders", "--queue", "0", *decoder)
    export(store, tmp_path / "out", "--topic", "payments", *decoder)
    assert bodies_seen(tmp_path) == 3


def test_an_export_has_a_column(store: Path, log: LogBuilder, tmp_path: Path) -> None:
    """A nullable string after the others; the manifest counts what is missing and holds the command."""
    output = tmp_path / "out"
    found = export(store, output, "--decoder", SELECTIVE, "--json")
    assert found.status == Exit.LOSSY
    assert f"3 of 4 bodies could not be decoded; the first: commitlog/{'0' * 20} " in found.err
    validator("export").validate(found.document)
    field = pq.read_schema(output / manifest_of(output)["files"][0]["path"]).field(-1)
    assert (field.name, field.type, field.nullable) == ("body_decoded", pa.string(), True)
    assert [row["body_decoded"] for row in rows_of(output)] == ["<one>", None, None, None]
    manifest = manifest_of(output)
    assert manifest["decoder"] == SELECTIVE
    assert manifest["wrong_bodies"]["not_decoded"] == {"count": 3, "physical_offsets": log.offsets[1:]}
    told = export(store, tmp_path / "text", "--decoder", SELECTIVE)
    assert "3 bodies that could not be decoded, null in body_decoded" in told.out


def test_a_body_that_is_not_decoded_makes_an_export_lossy(golden_store: GoldenStore, tmp_path: Path) -> None:
    """Also where all bodies are right."""
    store = golden_store("5.3.3-single")
    assert export(store, tmp_path / "decoded", "--decoder", "cat").status == Exit.OK
    found = export(store, tmp_path / "out", "--decoder", "false")
    assert found.status == Exit.LOSSY
    assert f"the body could not be decoded: commitlog/{'0' * 20} at offset 0: exit status 1" in found.err


@pytest.mark.parametrize("form", ["csv", "ndjson"])
def test_text_files_have_both_columns(form: str, store: Path, tmp_path: Path) -> None:
    options = ["--format", form, "--columns", "body_decoded,body_decode_error", "--compression", "none"]
    export(store, tmp_path / "out", "--decoder", SELECTIVE, *options)
    (file,) = manifest_of(tmp_path / "out")["files"]
    text = (tmp_path / "out" / file["path"]).read_text()
    lines = text.splitlines()
    rows = list(csv.DictReader(lines)) if form == "csv" else list(map(json.loads, lines))
    assert [row["body_decoded"] or None for row in rows] == ["<one>", None, None, None]
    assert [row["body_decode_error"] or None for row in rows][:2] == [None, "exit status 1: no such field"]


@pytest.mark.slow
@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_a_check_decodes_again(form: str, store: Path, tmp_path: Path) -> None:
    """With the same decoder; another text is a difference, another decoder is refused, and none compares no rows."""
    output, text = tmp_path / "out", tmp_path / "text"
    text.write_text("the same\n")
    decoder = f"sh -c 'cat >/dev/null; echo x >> {tmp_path}/bodies; cat {text}'"
    assert export(store, output, "--format", form, "--decoder", decoder).status == Exit.LOSSY
    same = rmqtool("export", store, "--check", output, "--decoder", decoder, "--json")
    assert same.status == Exit.OK
    assert same.document["result"]["check"]["rows_compared"] == 4
    seen = bodies_seen(tmp_path)
    without = rmqtool("export", store, "--check", output)
    assert without.status == Exit.OK
    assert "bodies are decoded: without the same --decoder rows are not compared" in without.out
    other = rmqtool("export", store, "--check", output, "--decoder", "cat")
    assert other.status == Exit.USAGE
    assert f"the export was made with another --decoder: {decoder}" in other.err
    assert bodies_seen(tmp_path) == seen
    text.write_text("another\n")
    assert rmqtool("export", store, "--check", output, "--decoder", decoder).status == Exit.FINDINGS


def test_an_output_has_one_decoder(store: Path, tmp_path: Path) -> None:
    """A later run into it needs the same; a check of one without a decoder takes none."""
    output = tmp_path / "out"
    assert export(store, output, "--decoder", "cat").status == Exit.LOSSY
    later = export(store, output, "--mode", "append", "--decoder", "cat -u")
    assert (later.status, later.out) == (Exit.USAGE, "")
    assert later.err.startswith("rmqtool: this output was exported with other decoder: cat\n")
    assert export(store, tmp_path / "plain").status == Exit.LOSSY
    checked = rmqtool("export", store, "--check", tmp_path / "plain", "--decoder", "cat")
    assert checked.status == Exit.USAGE
    assert "the export was made with another --decoder: none" in checked.err


def refused(store: Path, tmp_path: Path, *options: str) -> list[Result]:
    """What all commands say to the same options; nothing is written."""
    output = tmp_path / "out"
    results = [
        query(store, "--offset", "0", *options),
        inspect(store, *options, part="commitlog"),
        export(store, output, *options),
    ]
    assert not output.exists()
    assert [(result.status, result.out) for result in results] == 3 * [(Exit.USAGE, "")]
    return results


def test_a_command_that_is_not_there_is_refused(store: Path, tmp_path: Path) -> None:
    """Before anything is read or written."""
    for result in refused(store, tmp_path, "--decoder", "lines:no-such-command -x"):
        assert result.err.startswith("rmqtool: no decoder and no command is named 'no-such-command'\n")


def test_redacted_bodies_are_not_decoded(store: Path, tmp_path: Path) -> None:
    """A decoder never sees them."""
    options = ["--redact", "bodies", "--decoder", counting(tmp_path)]
    results = refused(store, tmp_path, *options)
    assert export(store, tmp_path / "out", "--redact", "bodies").status == Exit.LOSSY
    results.append(rmqtool("export", store, "--check", tmp_path / "out", *options))
    for result in results:
        assert (result.status, result.out) == (Exit.USAGE, "")
        assert result.err == "rmqtool: --decoder would show what --redact bodies hides\n"
    assert bodies_seen(tmp_path) == 0


@pytest.mark.usefixtures("package")
def test_a_function_does_not_get_what_is_redacted(store: Path, tmp_path: Path) -> None:
    """It could write it into its text."""
    options = ["--redact", "properties", "--decoder", "decode-order"]
    shown = [
        query(store, "--offset", "0", *options, "--json").lines[0],
        listing(store, *options).lines[0],
    ]
    export(store, tmp_path / "out", *options)
    for found in (*shown, rows_of(tmp_path / "out")[0]):
        assert found["body_decoded"] == "orders 0 ***: 4"
    plain = listing(store, "--decoder", "decode-order").lines[0]
    assert plain["body_decoded"] == "orders 0 secret-key: 4"


@pytest.mark.parametrize(
    ("part", "options", "error"),
    [
        ("consumequeue", [], "--decoder: there are no bodies here"),
        ("commitlog", ["--columns", "topic,body"], "--columns leaves out its column: body_decoded and"),
    ],
)
def test_where_nothing_is_decoded(
    part: str, options: list[str], error: str, golden_store: GoldenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The option is refused; one of the environment, which is for all listings, does nothing there."""
    store = golden_store("5.3.3-single")
    found = inspect(store, *options, "--decoder", "cat", part=part)
    assert found.status == Exit.USAGE
    assert error in found.err
    monkeypatch.setenv("RMQTOOL_INSPECT_DECODER", "cat")
    assert inspect(store, *options, part=part).status == Exit.OK


def test_columns_of_a_decoder_need_one(store: Path, tmp_path: Path) -> None:
    """And a decoder needs one of its columns."""
    found = inspect(store, "--columns", "body_decoded", part="commitlog")
    assert found.status == Exit.USAGE
    assert "with --decoder also body_decoded" in found.err
    found = export(store, tmp_path / "out", "--columns", "*,body_decode_error")
    assert found.status == Exit.USAGE
    assert "--decoder COMMAND makes it" in found.err
    found = export(store, tmp_path / "out", "--columns", "topic", "--decoder", "cat")
    assert found.status == Exit.USAGE
    assert "--columns leaves out its column" in found.err


def test_the_program_of_the_page(tmp_path: Path) -> None:
    """As it stands there, it decodes gzip of JSON, and says of other bodies that it cannot."""
    page = (ROOT / "docs" / "decoders.md").read_text(encoding="utf-8")
    programs = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "decode.py").write_text(next(program for program in programs if "gzip" in program))
    order = {"id": 1, "état": ["neu"]}
    bodies = [gzip.compress(json.dumps(order).encode()), b"no gzip", gzip.compress(b"no JSON"), b""]
    store = LogBuilder().add_all([{"body": body} for body in bodies]).write(tmp_path / "store")
    found = listing(store, "--decoder", f"lines:{sys.executable} {tmp_path}/decode.py")
    texts = [line["body_decoded"] for line in found.of_kind("message")]
    assert texts == [json.dumps(order, ensure_ascii=False), None, None, None]


def interrupted(store: Path, tmp_path: Path, number: signal.Signals, *arguments: str | Path) -> Result:
    """What is left of a run whose decoder hangs when the signal comes; its processes are gone."""
    pids = tmp_path / "pids"
    decoder = f"sleep 60 & echo $$ $! >> {pids}; wait"
    with unchanged(store):
        process = spawn(*arguments, "--decoder", f"lines:sh -c '{decoder}'", env=environment(), start_new_session=True)
        deadline = time.monotonic() + 60
        while not (pids.exists() and pids.read_text()) and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(number)
        found = finish(process)
    assert_gone(pids_in(pids))
    assert "Traceback" not in found.err
    return found


ENDING = [(signal.SIGINT, Exit.INTERRUPTED), (signal.SIGTERM, Exit.TERMINATED)]


@pytest.mark.slow
@pytest.mark.parametrize(("number", "status"), ENDING)
@pytest.mark.parametrize("command", ["query", "inspect"])
def test_an_interruption_ends_the_decoder(
    command: str, number: signal.Signals, status: Exit, store: Path, tmp_path: Path
) -> None:
    arguments: dict[str, list[str | Path]] = {
        "query": ["query", store, "--offset", "0"],
        "inspect": ["inspect", store / "commitlog"],
    }
    assert interrupted(store, tmp_path, number, *arguments[command]).status == status


@pytest.mark.one_in(2)
@pytest.mark.slow
@pytest.mark.parametrize(("jobs", "number", "status"), [(jobs, *end) for jobs, end in zip("13", ENDING, strict=True)])
def test_an_interrupted_export_ends_all_decoders(
    jobs: str, number: signal.Signals, status: Exit, tmp_path: Path
) -> None:
    """Also those that other processes have started; the output is as it was."""
    messages: list[dict[str, Any]] = [{"body": bytes(1 << 20), "queue_offset": number} for number in range(70)]
    store, output = LogBuilder(1 << 26).add_all(messages).write(tmp_path / "store"), tmp_path / "out"
    options = ["--engine", "local", "-j", jobs, "--split-size", "16MiB"]
    assert interrupted(store, tmp_path, number, "export", store, "--output", output, *options).status == status
    assert not output.exists()
