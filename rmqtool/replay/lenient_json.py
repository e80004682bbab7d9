"""JSON as name servers before 4.9.4 write it: keys that are numbers have no quotes (fastjson)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

_NUMBER_AS_KEY = re.compile(r"([{,]\s*)(-?\d+)(\s*:)")
_REST_OF_STRING = re.compile(r'(?:[^"\\]+|\\.)*"', re.DOTALL)


def load_json(data: bytes) -> Any:
    """The value of a text; raises ValueError for what is no JSON, or is nested too deeply."""
    try:
        text = data.decode("utf-8", "replace")
        try:
            return json.loads(text)
        except ValueError:
            return json.loads("".join(_with_quotes(text)))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _with_quotes(text: str) -> Iterator[str]:
    """The pieces of a text, strings and what is between them; each character is read once, whatever the text is."""
    start = 0
    while (quote := text.find('"', start)) >= 0:
        yield _NUMBER_AS_KEY.sub(r'\1"\2"\3', text[start:quote])
        string = _REST_OF_STRING.match(text, quote + 1)
        if string is None:
            yield text[quote:]
            return
        yield text[quote : string.end()]
        start = string.end()
    yield _NUMBER_AS_KEY.sub(r'\1"\2"\3', text[start:])
