"""The file systems of other machines, which pyarrow reads: HDFS, S3, Google Cloud Storage, Azure.

Credentials and addresses are those of pyarrow: its environment variables, or the user and the query of a URI.
Nothing of pyarrow is loaded before such a file system is asked for.
"""

from __future__ import annotations

import os
from datetime import timedelta
from functools import cache
from importlib.util import find_spec
from typing import Any

from rmqtool.base.errors import UnreachableError, UnreadableError, UnsupportedError
from rmqtool.base.remote_calls import FIRST_ANSWER, answer_of

SCHEMES = ("hdfs", "viewfs", "s3", "s3a", "s3n", "gs", "gcs", "abfs", "abfss")
"""The schemes of URIs that name another machine's file system."""

_NAMES = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}  # as Hadoop calls them, and as pyarrow does
_CONNECT_SECONDS = 10
_SILENCE_SECONDS = 10  # between two bytes of an answer of S3
_RETRY_SECONDS = 30  # in which Google's library tries again; its own default is a quarter of an hour
_NO_FILE = "rmqtool-asks"
_CHECKS = {
    "s3": "check the network, AWS_ENDPOINT_URL (or endpoint_override in the URI), AWS_REGION and the credentials",
    "gs": "check the network, endpoint_override in the URI, and GOOGLE_APPLICATION_CREDENTIALS",
    "hdfs": "check the network, and host and port of the name node",
}
_CHECKS_OF_AZURE = (
    "check the network, the account's name in the URI, and the credentials (AZURE_CLIENT_ID and its like)"
)


def file_system(scheme: str, authority: str) -> tuple[Any, str]:
    """The pyarrow file system that a URI names, and what comes before each path in it.

    Each process has its own: the threads of such a file system are lost in a copy of a process. Raises RmqtoolError.
    """
    return _file_system(os.getpid(), scheme, authority)


@cache
def _file_system(_process: int, scheme: str, authority: str) -> tuple[Any, str]:
    import pyarrow as pa
    from pyarrow.fs import FileSystem

    authority, _, query = authority.partition("?")
    name = _NAMES.get(scheme, scheme)
    uri = f"{name}://{authority}/?{query}" if query else f"{name}://{authority}/"
    shown = f"{scheme}://{authority.rpartition('@')[2]}"
    try:
        system, prefix = answer_of(lambda: FileSystem.from_uri(uri), FIRST_ANSWER)
    except (pa.ArrowException, ValueError) as error:
        raise UnsupportedError(
            f"not a place that pyarrow {pa.__version__} reads: {_line(error)}", file=shown
        ) from error
    except OSError as error:
        if name == "hdfs" and "unable to load" in str(error).lower():  # libhdfs, or the JVM that it runs
            return _answering(_hdfs_without_java(authority, shown), "/", name, shown), "/"
        raise _no_connection(error, name, shown) from error
    prefix = f"{prefix.rstrip('/')}/" if prefix else ""  # of abfs://ACCOUNT@HOST:PORT the path has the container
    return _answering(_with_limits(system, name), prefix, name, shown), prefix


def _with_limits(system: Any, name: str) -> Any:
    """The file system, which gives up in time where the URI does not say when: from what it is pickled as."""
    limits: dict[str, Any] = {}
    if name == "s3":
        limits = {"connect_timeout": _CONNECT_SECONDS, "request_timeout": _SILENCE_SECONDS}
    elif name == "gs":
        limits = {"retry_time_limit": timedelta(seconds=_RETRY_SECONDS)}
    else:
        return system
    make, (options,) = system.__reduce__()
    return make({**options, **{key: value for key, value in limits.items() if options.get(key) in (None, -1.0)}})


def _answering(system: Any, prefix: str, name: str, shown: str) -> Any:
    """The file system, once it has answered; raises UnreachableError where not, UnreadableError for no bucket."""
    asked = prefix.rstrip("/") or "/"
    if name not in _CHECKS:  # Azure: asked for a container, pyarrow ends the process where it has no credentials
        asked = f"{prefix or _NO_FILE}/{_NO_FILE}".replace("//", "/")
    try:
        info = answer_of(lambda: system.get_file_info(asked), FIRST_ANSWER)
    except OSError as error:
        if isinstance(error, PermissionError):
            return system  # what is in it may be allowed nevertheless
        raise _no_connection(error, name, shown) from error
    if info.type.name == "NotFound" and name in ("s3", "gs"):
        raise UnreadableError("no such bucket", file=shown, hint="check its name, and the address that it is asked for")
    return system


def _no_connection(error: Exception, name: str, shown: str) -> UnreachableError:
    return UnreachableError(f"cannot connect: {_line(error)}", file=shown, hint=_CHECKS.get(name, _CHECKS_OF_AZURE))


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
        system = answer_of(lambda: _hdfs_class()(host or None, int(port) if port else None, **options), FIRST_ANSWER)
    except Exception as error:
        raise _no_connection(error, "hdfs", shown) from error
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
