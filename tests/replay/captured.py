"""Bytes that RocketMQ itself has made: requests of its client's classes, answers of name servers and brokers.

`captured.json` was written with `Frames.java` of the harness, and with requests of rmqtool to a broker that has a topic
`orders` of four queues: message U1, then U2 and U3 as a batch, and look-ups of U2 and of one that is not there.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

VERSIONS = ("4.9.7", "5.5.0")
CERTIFICATE = Path(__file__).with_name("certificate.pem")
"""A key and its self-signed certificate, for a hundred years, by openssl."""


@cache
def frames(version: str) -> dict[str, Any]:
    """Requests of the client, in hex, and what they are made of."""
    return _all()[version]["frames"]  # type: ignore[no-any-return]


def answer(version: str, name: str) -> bytes:
    """An answer, with the length before it."""
    return bytes.fromhex(_all()[version]["answers"][name])


@cache
def _all() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(__file__).with_name("captured.json").read_bytes())
    return found
