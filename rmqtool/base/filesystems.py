"""The file systems of other machines, which pyarrow reads: calls that end, and listings."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from importlib.util import find_spec
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from rmqtool.base.errors import UnreachableError, UnreadableError, UnsupportedError
from rmqtool.base.signals import WAIT_SECONDS

if TYPE_CHECKING:
    from concurrent.futures import Future

FIRST_ANSWER = 45
"""Seconds in which a file system has to answer for the first time."""

_ANSWER = 300  # seconds, for each later answer: it may be a long listing
_NEVER_AGAIN = (FileNotFoundError, PermissionError, NotADirectoryError, IsADirectoryError, TimeoutError)
_DENIED = ("ACCESS_DENIED", "PERMISSION_DENIED", "UNAUTHENTICATED", "AuthenticationFailed", "AuthorizationFailure")
_PAUSES = (0.2, 1.0, 3.0)  # seconds before a call is made again
_PATIENCE = 20  # seconds after which it is not: the library has tried for as long itself

T = TypeVar("T")
_running: set[Future[Any]] = set()  # whether somebody waits for them, or nobody any more


def patiently(operation: Callable[[], T], pauses: tuple[float, ...] = _PAUSES) -> T:
    """Do an operation, and again after each of `pauses`, seconds, where a connection fails; raises `OSError`."""
    begin = time.monotonic()
    for pause in pauses:
        try:
            return answer_of(operation)
        except _NEVER_AGAIN:
            raise
        except OSError:
            if time.monotonic() - begin > _PATIENCE:
                raise
        time.sleep(pause)
    return answer_of(operation)


def answer_of(operation: Callable[[], T], seconds: float = _ANSWER) -> T:
    """Do an operation and wait for it as long; raises `OSError`, also where pyarrow raises something of its own.

    TimeoutError where it does not end.
    """
    from concurrent.futures import wait

    future, until = in_background(operation), time.monotonic() + seconds
    while not wait([future], min(seconds, WAIT_SECONDS)).done:
        if time.monotonic() > until:
            raise TimeoutError(f"no answer within {seconds:g} s")
    return future.result()


def in_background(operation: Callable[[], T]) -> Future[T]:
    """Do an operation in a thread that no end of the process waits for."""
    from concurrent.futures import Future

    future: Future[T] = Future()

    def work() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(operation())
        except BaseException as error:  # noqa: BLE001 - raised again by whoever waits
            future.set_exception(_as_os_error(error))

    _running.add(future)  # before it works: Ctrl-C may come while the thread starts
    future.add_done_callback(_running.discard)
    threading.Thread(target=work, daemon=True, name="rmqtool-remote").start()
    return future


def has_left_calls() -> bool:
    """Whether calls are left, of ranges read ahead, too, that would hold up an ordinary end of the process."""
    return bool(_running)


def _as_os_error(error: BaseException) -> BaseException:
    """Of the errors of pyarrow that are none of Python's, such as those of Azure, an `OSError`.

    A PermissionError where it is not allowed: libraries say that in their own ways.
    """
    pyarrow = sys.modules.get("pyarrow")
    if (
        pyarrow is not None
        and isinstance(error, pyarrow.ArrowException)
        and not isinstance(error, (OSError, ValueError))
    ):
        error = OSError(one_line(error))
    if type(error) is OSError and error.errno is None and any(sign in str(error) for sign in _DENIED):
        return PermissionError(str(error))
    return error


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
_CHECKS_OF_AZURE = "check the network, the account's name in the URI, and the credentials (such as AZURE_CLIENT_ID)"


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
            f"pyarrow {pa.__version__} cannot read this URI: {one_line(error)}", file=shown
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
        raise UnreadableError("no such bucket", file=shown, hint="check its name and the endpoint")
    return system


def _no_connection(error: Exception, name: str, shown: str) -> UnreachableError:
    return UnreachableError(f"cannot connect: {one_line(error)}", file=shown, hint=_CHECKS.get(name, _CHECKS_OF_AZURE))


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


def one_line(error: BaseException) -> str:
    """What a library says of a failure, which may be several lines."""
    return " ".join(str(error).split())


class Status(NamedTuple):
    """Type, size in bytes, and modification time, ns since the epoch, 0 where it is not known."""

    is_directory: bool
    size: int
    modified_ns: int


_FLAT = ("gs", "gcs")
"""Where a listing of one level has files only."""

Entries = dict[str, Status]
"""What is in a directory, by name."""


@dataclass
class _Tree:
    """A listing of one root: `directories` by key, of those folders of the root that are in `whole`.

    `number` tells it from other listings of the same root, made before or later.
    """

    root: str
    number: int
    directories: dict[str, Entries] = field(default_factory=dict)
    whole: set[str] = field(default_factory=set)


_numbers = count()
_trees: dict[tuple[int, str, str], dict[str, _Tree]] = {}


def forget(scheme: str, authority: str, key: str) -> None:
    """Begin a new listing for the tree at `key`."""
    _trees.setdefault((os.getpid(), scheme, authority), {})[key] = _Tree(key, next(_numbers))


def entries_of(scheme: str, authority: str, key: str) -> Entries | None:
    """The entries of a directory, None where there is none; raises OSError."""
    tree = _tree_of(scheme, authority, key)
    if tree is None:
        return _listed(scheme, authority, key).get(key)
    if key == tree.root:
        if key not in tree.directories:
            tree.directories.update(_listed(scheme, authority, key))
            tree.whole.update(tree.directories if scheme in _FLAT else ())
        return tree.directories.get(key)
    folder = _folder_of(tree, key)
    if folder not in tree.whole:
        tree.whole.add(folder)
        tree.directories.update(_listed(scheme, authority, folder, recursive=True))
    return tree.directories.get(key)


def listing_of(scheme: str, authority: str, key: str) -> int | None:
    """The number of the listing that answers for `key`; None without one."""
    tree = _tree_of(scheme, authority, key)
    return None if tree is None else tree.number


def status_of(scheme: str, authority: str, key: str) -> Status | None:
    """The status of a file or directory, None where there is nothing; raises OSError."""
    tree = _tree_of(scheme, authority, key)
    if tree is None or key == tree.root:
        return status_now(scheme, authority, key)
    folder, _, name = key.rpartition("/")
    entries = entries_of(scheme, authority, folder)
    return None if entries is None else entries.get(name)


def status_now(scheme: str, authority: str, key: str) -> Status | None:
    """The status as it is now, whatever was listed before."""
    system, prefix = file_system(scheme, authority)
    info = patiently(lambda: system.get_file_info(_path_of(prefix, key)))
    return _status(info) if info.type.name in ("File", "Directory") else None


def _tree_of(scheme: str, authority: str, key: str) -> _Tree | None:
    """The tree that holds a key, the innermost of several."""
    trees = _trees.get((os.getpid(), scheme, authority))
    if not trees:
        return None
    while key not in trees:
        if not key:
            return None
        key = key.rpartition("/")[0]
    return trees[key]


def _folder_of(tree: _Tree, key: str) -> str:
    """The folder of the tree's root in which a key is."""
    begin = len(tree.root) + 1 if tree.root else 0
    name = key[begin:].partition("/")[0]
    return f"{tree.root}/{name}" if tree.root else name


def _listed(scheme: str, authority: str, key: str, *, recursive: bool = False) -> dict[str, Entries]:
    """The entries of a directory, and where `recursive` of all below; nothing where there is no directory."""
    from pyarrow.fs import FileSelector

    system, prefix = file_system(scheme, authority)
    path = _path_of(prefix, key)
    if not _is_directory(system, path):
        return {}
    below = FileSelector(path, recursive=recursive or scheme in _FLAT)
    directories: dict[str, Entries] = {key: {}}
    for info in patiently(lambda: system.get_file_info(below)):
        own = info.path.removeprefix(prefix).strip("/")
        folder, _, name = own.rpartition("/")
        _add_directory(directories, folder)
        status = _status(info)
        directories[folder][name] = status
        if status.is_directory:
            directories.setdefault(own, {})
    return directories


def _add_directory(directories: dict[str, Entries], key: str) -> None:
    """Add a directory, and those above it up to one that is there."""
    if key not in directories:
        directories[key] = {}
        above, _, name = key.rpartition("/")
        _add_directory(directories, above)
        directories[above].setdefault(name, Status(True, 0, 0))


def _is_directory(system: Any, path: str) -> bool:
    return bool(patiently(lambda: system.get_file_info(path)).type.name == "Directory")


def _status(info: Any) -> Status:
    return Status(info.type.name == "Directory", info.size or 0, info.mtime_ns or 0)


def _path_of(prefix: str, key: str) -> str:
    return f"{prefix}{key}" if key else prefix.rstrip("/") or "/"
