"""ACL 1.0: requests with an access key and a signature (`AclClientRPCHook`, `AclSigner`)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rmqtool.base.errors import UnreadableError, UsageError

_ACCESS_KEY, _SIGNATURE, _TOKEN = "AccessKey", "Signature", "SecurityToken"  # SessionCredentials
UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"  # MixAll.UNIQUE_MSG_QUERY_FLAG: brokers leave it out of what is signed
_LINE = re.compile(r"\s*([A-Za-z]+)\s*[:=]\s*(.*?)\s*")
_MAX_SIZE = 64 << 10  # of a file with keys, bytes


@dataclass(frozen=True)
class Credentials:
    """An access key and its secret."""

    access_key: str
    secret_key: str = field(repr=False)
    token: str | None = field(default=None, repr=False)


def signed(fields: Mapping[str, str], body: bytes, credentials: Credentials) -> dict[str, str]:
    """The fields with the access key and the signature over all values, in the order of their names, and the body."""
    complete = {**fields, _ACCESS_KEY: credentials.access_key}
    if credentials.token:
        complete[_TOKEN] = credentials.token
    content = "".join(complete[name] for name in sorted(complete) if name != UNIQUE_KEY_QUERY).encode() + body
    digest = hmac.new(credentials.secret_key.encode(), content, hashlib.sha1).digest()
    return {**complete, _SIGNATURE: base64.b64encode(digest).decode()}


def read_credentials(path: Path) -> Credentials:
    """Read accessKey and secretKey, as in the tools.yml of mqadmin; raises UnreadableError or UsageError."""
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_SIZE).decode("utf-8", "replace")
    except OSError as error:
        raise UnreadableError(f"cannot be read: {(error.strerror or str(error)).lower()}", file=path) from error
    lines = (_LINE.fullmatch(line.partition(" #")[0]) for line in text.splitlines())
    values = {line[1]: line[2].strip("'\"") for line in lines if line}
    access_key, secret_key = values.get("accessKey"), values.get("secretKey")
    if not (access_key and secret_key):
        raise UsageError("no accessKey and secretKey are in it", file=path, hint="as in conf/tools.yml of mqadmin")
    return Credentials(access_key, secret_key, values.get("securityToken"))
