"""The file systems of other machines, which pyarrow reads: HDFS, S3, Google Cloud Storage, Azure.

Credentials and addresses are those of pyarrow: its environment variables, or the user and the query of a URI.
Nothing of pyarrow is loaded before such a file system is asked for.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any, TypeVar

from rmqtool.base.errors import UnreadableError, UnsupportedError

SCHEMES = ("hdfs", "viewfs", "s3", "s3a", "s3n", "gs", "gcs", "abfs", "abfss")
"""The schemes of URIs that name another machine's file system."""

_NAMES = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}  # as Hadoop calls them, and as pyarrow does
_NEVER_AGAIN = (FileNotFoundError, PermissionError, NotADirectoryError, IsADirectoryError)
_CONNECT_SECONDS = 10
_PAUSES = (0.2, 1.0, 3.0)  # seconds before an operation is tried again

T = TypeVar("T")


def file_system(scheme: str, authority: str) -> tuple[Any, str]:
    """The pyarrow file system that a URI names, and what comes before each path in it.

    Each process has its own: the threads of such a file system are lost in a copy of a process. Raises RmqtoolError.
    """
    return _file_system(os.getpid(), scheme, authority)


def patiently(operation: Callable[[], T], pauses: tuple[float, ...] = _PAUSES) -> T:
    """Do an operation, and again after each of `pauses`, seconds, where a connection fails; raises `OSError`."""
    try:
        return operation()
    except _NEVER_AGAIN:
        raise
    except OSError:
        if not pauses:
            raise
    time.sleep(pauses[0])
    return patiently(operation, pauses[1:])


@cache
def _file_system(_process: int, scheme: str, authority: str) -> tuple[Any, str]:
    import pyarrow as pa
    from pyarrow.fs import FileSystem

    authority, _, query = authority.partition("?")
    name = _NAMES.get(scheme, scheme)
    uri = f"{name}://{authority}/?{query}" if query else f"{name}://{authority}/"
    shown = f"{scheme}://{authority.rpartition('@')[2]}"
    try:
        system, prefix = FileSystem.from_uri(uri)
    except (pa.ArrowException, ValueError) as error:
        raise UnsupportedError(
            f"not a place that pyarrow {pa.__version__} reads: {_line(error)}", file=shown
        ) from error
    except OSError as error:
        if name == "hdfs" and "unable to load" in str(error).lower():  # libhdfs, or the JVM that it runs
            return _hdfs_without_java(authority, shown), "/"
        raise UnreadableError(f"cannot connect: {_line(error)}", file=shown) from error
    return system, f"{prefix.rstrip('/')}/" if prefix else ""  # of abfs://ACCOUNT@HOST:PORT the path has the container


def _hdfs_without_java(authority: str, shown: str) -> Any:
    """HDFS through the package hdfs-native, where pyarrow finds no libhdfs."""
    import socket

    from pyarrow.fs import FSSpecHandler, PyFileSystem

    if find_spec("hdfs_native") is None or find_spec("fsspec") is None:
        hint = (
            "pip install 'rmqtool[hdfs]'; or set CLASSPATH to `hadoop classpath --glob`, and HADOOP_HOME and JAVA_HOME"
        )
        raise UnsupportedError(
            "HDFS needs the package hdfs-native, or Hadoop's libhdfs and Java", file=shown, hint=hint
        )
    user, _, host_port = authority.rpartition("@")
    host, _, port = host_port.partition(":")
    options: dict[str, Any] = {"user": user} if user else {}
    try:
        if port:  # the package itself asks again and again, for minutes
            socket.create_connection((host, int(port)), _CONNECT_SECONDS).close()
        system = _hdfs_class()(host or None, int(port) if port else None, **options)
    except Exception as error:
        raise UnreadableError(f"cannot connect: {_line(error)}", file=shown) from error
    return PyFileSystem(FSSpecHandler(system))


def _hdfs_class() -> Any:
    """The file system of hdfs-native, with modification times under the name that pyarrow knows."""
    from hdfs_native.fsspec import HdfsFileSystem

    def with_time(info: dict[str, Any]) -> dict[str, Any]:
        return {**info, "mtime": info["modification_time"] / 1000}

    class Hdfs(HdfsFileSystem):  # type: ignore[misc]
        cachable = False

        def info(self, path: str, **options: Any) -> dict[str, Any]:
            return with_time(super().info(path, **options))

        def ls(self, path: str, detail: bool = True, **options: Any) -> Any:  # noqa: FBT001 - fsspec's signature
            listed = super().ls(path, detail=True, **options)
            return [with_time(info) if detail else info["name"] for info in listed]

    return Hdfs


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())
