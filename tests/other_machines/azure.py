"""A server of Azure's storage, azurite of the npm registry, which is fetched into the cache of the harness."""

from __future__ import annotations

import base64
import hashlib
import hmac
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

from tests.other_machines.servers import BUCKET, server, unavailable
from tests.real_broker.tools import cache, cached

_VERSION = "3.37.0"
_ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="  # every azurite's
_MAIN = "node_modules/azurite/dist/src/blob/main.js"
_OPTIONS = (
    "--silent",
    "--inMemoryPersistence",
    "--skipApiVersionCheck",
    "--disableTelemetry",
    "--disableProductStyleUrl",
)
_STARTED = b"successfully listens"
_TIMEOUT_S = 400


@contextmanager
def azure_server() -> Iterator[str]:
    """A server with an empty container; gives host and port."""
    node, npm = (shutil.which(name) or unavailable(f"{name} is not installed") for name in ("node", "npm"))

    def install(into: Path) -> None:
        command = [str(npm), "install", "--no-audit", "--no-fund", "--prefix", str(into), f"azurite@{_VERSION}"]
        subprocess.run(command, capture_output=True, check=True, timeout=_TIMEOUT_S)

    try:
        folder = cached(cache() / f"azurite-{_VERSION}", install)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        unavailable(f"azurite cannot be fetched: {error}")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    place = f"127.0.0.1:{port}"
    command = [str(node), str(folder / _MAIN), "--blobHost", "127.0.0.1", "--blobPort", str(port), *_OPTIONS]
    with server(command, started=_STARTED):
        from pyarrow.fs import FileSystem

        system, container = FileSystem.from_uri(azure_uri(place, ""))
        system.create_dir(container.strip("/"))
        yield place


def azure_uri(place: str, name: str) -> str:
    """The URI of a name in the container, with a shared access signature; `place` is host and port."""
    token = {"sv": "2020-12-06", "ss": "b", "srt": "sco", "sp": "rwdlacup", "se": "2040-01-01T00:00:00Z",
             "spr": "https,http"}  # fmt: skip
    signed = [_ACCOUNT, token["sp"], token["ss"], token["srt"], "", token["se"], "", token["spr"], token["sv"], "", ""]
    digest = hmac.new(base64.b64decode(_KEY), "\n".join(signed).encode(), hashlib.sha256).digest()
    query = urlencode({"enable_tls": "false", **token, "sig": base64.b64encode(digest).decode()})
    return f"abfs://{_ACCOUNT}@{place}/{BUCKET}/{name}?{query}"
