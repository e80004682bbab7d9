"""Paths of this machine and of others, by their names alone: no server is asked."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from rmqtool.base.errors import UnsupportedError, UsageError
from rmqtool.base.paths import absolute, is_remote, modified_ms, path_of
from rmqtool.base.remote_path import RemotePath


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://bucket/a/%RETRY%b", "s3://bucket/a/%RETRY%b"),
        ("S3A://bucket//a/./b/", "s3a://bucket/a/b"),
        ("s3://key:secret@bucket/a", "s3://bucket/a"),
        ("s3://bucket/a?endpoint_override=host:1&scheme=http", "s3://bucket/a"),
        ("hdfs://user@host:8020/a", "hdfs://user@host:8020/a"),
        ("hdfs:///a/b", "hdfs:///a/b"),
        ("abfs://container:key@account.dfs.core.windows.net/a", "abfs://container@account.dfs.core.windows.net/a"),
        ("gs://bucket", "gs://bucket"),
    ],
)
def test_a_uri_is_shown_without_secrets_and_options(text: str, shown: str) -> None:
    path = path_of(text)
    assert is_remote(path)
    assert (str(path), str(pickle.loads(pickle.dumps(path)))) == (shown, shown)
    assert str(path / "x" / "y") == f"{shown.rstrip('/')}/x/y"


def test_what_is_derived_keeps_authority_and_options() -> None:
    """Credentials and options go with the path, to other processes too."""
    path = path_of("s3://key:secret@bucket/a/b?region=x/y")
    assert isinstance(path, RemotePath)
    for derived in (path.parent / "c", path.with_name("c"), pickle.loads(pickle.dumps(path)).parent / "c"):
        assert isinstance(derived, RemotePath)
        assert (derived.scheme, derived.authority, derived.key) == ("s3", "key:secret@bucket?region=x%2Fy", "a/c")
    assert (path.resolve(), path.absolute(), absolute(path)) == (path, path, path)
    top = path.parent.parent
    assert (top.parent, str(top)) == (top, "s3://bucket")
    assert RemotePath(*path_of("hdfs:///a").parts).authority == ""


@pytest.mark.parametrize("text", ["/a/b", "a b/c", "file:///a/b", "file://localhost/a/b", "C:/x", "a=s3"])
def test_other_texts_are_paths_of_this_machine(text: str) -> None:
    assert not is_remote(path_of(text))
    assert path_of(text) == Path(text.removeprefix("file://").removeprefix("localhost"))


@pytest.mark.parametrize("text", ["ftp://host/a", "file://host/a", "s3://bucket/../a"])
def test_other_schemes_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        path_of(text)


@pytest.mark.parametrize("text", ["s3://key:wJal@bucket/../a?session_token=wJal", "s3://key:wJal/rXUt@bucket/a"])
def test_what_is_refused_is_shown_without_secrets(text: str) -> None:
    """A / in a secret ends the authority, as in any URI."""
    with pytest.raises(UsageError) as refused:
        path_of(text)
    assert "wJal" not in f"{refused.value} {refused.value.hint}"


def test_this_machine_is_not_asked_for_a_path_of_another() -> None:
    """Whatever would open or list it here ends with one sentence, and finds no file of a like name."""
    path = path_of("s3://bucket/a")
    for ask in (os.stat, os.listdir, os.path.abspath, open):
        with pytest.raises(UnsupportedError, match="this machine only"):
            ask(path)
    assert modified_ms(path) is None
