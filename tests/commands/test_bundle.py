"""`rmqtool bundle`: what helps is in it, what is secret is not, and the store stays as it is."""

from __future__ import annotations

import io
import json
import os
import tarfile
from pathlib import Path

import pytest

from rmqtool.base.errors import Exit
from rmqtool.findings.catalogue import finding
from rmqtool.scan.redaction import Redaction
from rmqtool.show.report_page import ReportRedaction
from tests.commands.running import Result, errors_of, listing, rmqtool
from tests.conftest import GoldenStore
from tests.unchanged import unchanged
from tests.verify.small_store import FILE_SIZE, small_store

SECRET = "dont-show-this"


def bundled(store: Path, output: Path, *options: str | Path) -> tuple[Result, dict[str, bytes]]:
    """The files of a bundle by name."""
    with unchanged(store):
        result = rmqtool("bundle", store, "-o", output, *options)
    with tarfile.open(output) as archive:
        assert all(entry.name.startswith("rmqtool-bundle/") for entry in archive.getmembers())
        members = {entry.name.partition("/")[2]: archive.extractfile(entry) for entry in archive.getmembers()}
        return result, {name: (file or io.BytesIO()).read() for name, file in members.items()}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Its second log file is gone, and 300 bytes of the third are not as stored."""
    store = small_store(tmp_path / "store")
    (store / "commitlog" / f"{FILE_SIZE:020}").unlink()
    with (store / "commitlog" / f"{2 * FILE_SIZE:020}").open("r+b") as file:
        file.seek(500)
        file.write(b"\xa5" * 300)
    return store


@pytest.mark.slow
def test_what_is_in_it(store: Path, tmp_path: Path) -> None:
    """Page, JSON as the commands print it, all files with their sizes, configuration, the damaged bytes themselves."""
    result, files = bundled(store, tmp_path / "case.tar.gz", "--json")
    assert result.status == Exit.FINDINGS
    assert errors_of("bundle", result.document) == []
    assert {"report.html", "verify.json", "inspect.json", "files.tsv", "README.txt", "checkpoint"} <= files.keys()
    assert errors_of("verify", json.loads(files["verify.json"])) == []
    assert json.loads(files["verify.json"])["findings"] == rmqtool("verify", store, "--json").document["findings"]
    assert errors_of("inspect-store", json.loads(files["inspect.json"])) == []
    rows = [line.split("\t") for line in files["files.tsv"].decode().splitlines()[1:]]
    there = {str(path.relative_to(store)): path.stat().st_size for path in store.rglob("*") if path.is_file()}
    assert {row[0]: int(row[1]) for row in rows} == there
    assert files["config/topics.json"] == (store / "config" / "topics.json").read_bytes()
    (damaged,) = (name for name in files if name.startswith("damaged/"))
    offset, size = map(int, damaged.removeprefix("damaged/").split("-"))
    log = (store / "commitlog" / f"{2 * FILE_SIZE:020}").read_bytes()
    assert files[damaged] == log[offset - 2 * FILE_SIZE :][:size]
    assert b"\xa5" * 100 in files[damaged]
    (left,) = result.document["result"]["left_out"]
    assert left == {"name": f"damaged/{FILE_SIZE:020}-{FILE_SIZE}", "why": "it is in no file"}
    assert f"{left['name']}: {left['why']}" in files["README.txt"].decode()


@pytest.mark.slow
def test_secrets_stay_here(store: Path, tmp_path: Path) -> None:
    """Those of broker.conf by their names, however Java lets them be written; of config/ only what is known."""
    conf = tmp_path / "broker.conf"
    conf.write_text(
        f"brokerName = a\n  secretKey = {SECRET}\nobjectStoreSecretKey {SECRET}\n#password={SECRET}\n"
        f"accessToken=\\\n   {SECRET}\npass\\u0077ord:{SECRET}\nmetricsGrpcExporterHeader=Authorization:{SECRET}\n"
    )
    others = {"acl.json": f'{{"password":["{SECRET}"]}}', "server.key": SECRET, "deep.json": '{"secret":' + "[" * 10**5}
    for name, content in others.items():
        (store / "config" / name).write_text(content)
    (store / "config" / os.fsdecode(b"b\xff\n.yml")).write_text(SECRET)
    result, files = bundled(store, tmp_path / "case.tar.gz", "--broker-conf", conf)
    assert [name for name, content in files.items() if SECRET.encode() in content] == []
    settings = dict(line.split("=") for line in files["broker.conf"].decode().splitlines())
    assert settings.pop("brokerName") == "a"
    assert settings.keys() == {
        "secretKey",
        "objectStoreSecretKey",
        "accessToken",
        "password",
        "metricsGrpcExporterHeader",
    }
    assert set(settings.values()) == {"***"}
    for name in (*others, "b\\udcff\\x0a.yml"):
        assert f"not in it: config/{name}: not a file that every broker writes" in result.out


def test_hosts_alone_are_redacted_without_breaking_json(store: Path, tmp_path: Path) -> None:
    """Arrays of a number are no addresses; damaged bytes hold hosts, too."""
    (store / "config" / "consumerOrderInfo.json").write_text('{"table":{"a":[12],"at":"14:34:01"},"b":[100]}')
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerIP1=fe80::1234:5678\nnamesrvAddr=10.0.0.1:9876;ns.internal:9876\nbrokerName=a\n")
    _, files = bundled(store, tmp_path / "case.tar.gz", "--redact", "hosts", "--broker-conf", conf)
    assert files["config/consumerOrderInfo.json"] == (store / "config" / "consumerOrderInfo.json").read_bytes()
    assert json.loads(files["verify.json"])["result"]["verdict"] == "corrupt"
    assert files["broker.conf"] == b"brokerIP1=***\nnamesrvAddr=***\nbrokerName=a\n"
    assert not [name for name in files if name.startswith("damaged/")]


@pytest.mark.slow
def test_damaged_bytes_are_bounded(store: Path, tmp_path: Path) -> None:
    """The first of them are taken, or none."""
    result, files = bundled(store, tmp_path / "case.tar.gz", "--max-damaged", "10")
    (content,) = (content for name, content in files.items() if name.startswith("damaged/"))
    assert len(content) == 10
    assert "all but its first 10 bytes: a larger --max-damaged takes more" in result.out
    _, files = bundled(store, tmp_path / "case.tar.gz", "--max-damaged", "0")
    assert not [name for name in files if name.startswith("damaged/")]
    wrong = rmqtool("bundle", store, "-o", tmp_path / "case.tar.gz", "--max-damaged", "-5")
    assert wrong.status == Exit.USAGE
    assert "not a size" in wrong.err


@pytest.mark.slow
def test_what_is_redacted_is_in_no_file(golden_store: GoldenStore, tmp_path: Path) -> None:
    """Whatever file would quote it."""
    store = golden_store("5.1.4-shop")
    messages = listing(store).of_kind("message")
    told = next(each for each in messages if each["topic"] == "orders" and each["keys"])
    options = ["--redact", "keys,properties,bodies,hosts", "--trace", told["unique_key"]]
    _, files = bundled(store, tmp_path / "case.tar.gz", *options)
    secrets = {told["unique_key"], told["born_host"], *told["keys"], *told["properties"].values(), "127.0.0.1"}
    secrets.discard(told["properties"].get("CLUSTER"))  # a topic's name, too
    shown = [(name, secret) for secret in secrets if len(secret) > 5
             for name, content in files.items() if secret.encode() in content]  # fmt: skip
    assert shown == []


@pytest.mark.slow
@pytest.mark.parametrize(("what", "is_in"), [("keys", False), ("properties", False), ("hosts,bodies", True)])
def test_expressions_of_consumers_name_values(what: str, is_in: bool, store: Path, tmp_path: Path) -> None:
    """Of properties, and so of keys; what has been left out is said."""
    (store / "config" / "consumerFilter.json").write_text('{"expression":"customer = 4711"}')
    done, files = bundled(store, tmp_path / "case.tar.gz", "--redact", what)
    assert ("config/consumerFilter.json" in files) == is_in
    assert ("not in it: config/consumerFilter.json: its expressions may" in done.out) == (not is_in)
    assert any(b"customer = 4711" in data for data in files.values()) == is_in


def test_where_it_may_not_be_written(store: Path, tmp_path: Path) -> None:
    """Not into the store; nothing half written is left anywhere."""
    inside = rmqtool("bundle", store, "-o", store / "commitlog" / "case.tar.gz")
    assert inside.status == Exit.USAGE
    nowhere = rmqtool("bundle", store, "-o", tmp_path / "nowhere" / "case.tar.gz")
    assert nowhere.status == Exit.FAILED
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store"]


@pytest.mark.parametrize(("what", "is_left"), [("keys", False), ("properties", False), ("hosts", True)])
def test_details_quote_no_more_than_the_sentence(what: str, *, is_left: bool) -> None:
    """Facts of a finding that may quote what is redacted go with its sentence."""
    hidden = ReportRedaction(Redaction(frozenset([what]), "hash", b"salt"))
    missing = finding("timer.row-missing", details={"unique_key": SECRET})
    assert (SECRET in str(hidden.redacted(missing))) == is_left
    kept = hidden.redacted(finding("commitlog.no-first-file", offset=7, details={"size": 5}))
    assert (kept.message, kept.details) == ("begins at 7: older files were deleted", {"size": 5})
