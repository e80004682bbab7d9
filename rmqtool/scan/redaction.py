"""Redaction: keys, properties, bodies and hosts of messages hidden, or replaced by a keyed hash.

What a field says decides, not where it stands: a unique key holds the address of its client, a message id that of the
broker, an index unit the hash of a key. The hash of a text is the same in all fields, so that messages can still be
joined, by whoever has the salt, too.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtool.formats.properties import KEY_SEPARATOR, KEYS, TIMER_DELETES, UNIQUE_KEY
from rmqtool.scan.columns import JSON_COLUMN, PROPERTY_COLUMN

How = Literal["hide", "hash"]

REDACTABLE = ("keys", "properties", "bodies", "hosts")
HIDDEN = "***"
BODY, BODY_BASE64 = "body", "body_base64"
SENTENCES = "contradictions"  # of a trace: they quote keys and tags codes that stand beside them

_HASH_BYTES = 8
_KEY, _ID = frozenset({"keys", "properties"}), frozenset({"keys", "properties", "hosts"})
_PROPERTY, _BODY, _HOST = frozenset({"properties"}), frozenset({"bodies"}), frozenset({"hosts"})
_FIELDS: Mapping[str, frozenset[str]] = {
    "keys": _KEY, "key": _ID, "key_hash": _KEY, "unique_key": _ID, "properties_base64": _ID, "tags": _PROPERTY,
    "tags_code": _PROPERTY, "expected_tags_code": _PROPERTY, "message_id": _ID - _KEY, "origin_message_id": _ID,
    "born_host": _HOST, "store_host": _HOST, "client_host": _HOST, BODY: _BODY, BODY_BASE64: _BODY, "body_text": _BODY,
    "body_decoded": _BODY, "body_decode_error": _BODY,
}  # fmt: skip
"""Fields, and with what each is redacted; those of properties are beside."""

_PROPERTIES: Mapping[str, frozenset[str]] = {
    KEYS: _KEY, "__SHARDINGKEY": _KEY, "CORRELATION_ID": _KEY, UNIQUE_KEY: _ID, TIMER_DELETES: _ID,
    "ORIGIN_MESSAGE_ID": _ID, "__transactionId__": _ID, "EXTEND_UNIQ_INFO": _ID,
    "REPLY_TO_CLIENT": _PROPERTY | _HOST, "__BORNHOST": _PROPERTY | _HOST,
}  # fmt: skip
"""Properties that hold a key, an id or a host (`MessageConst`); all others are redacted with ``properties``."""

_GROUP = "[0-9a-fA-F]{1,4}"
_GROUPS = f"{_GROUP}(?::{_GROUP}){{0,6}}"
_V4, _V6 = r"\d{1,3}(?:\.\d{1,3}){3}", f"(?:{_GROUP}:){{7}}{_GROUP}|{_GROUPS}::(?:{_GROUPS})?|::{_GROUPS}"
_ID_FORM = "[0-9A-F]{32}|[0-9A-F]{56}"  # of unique keys and message ids: IPv4, IPv6 (`UtilAll#bytes2string`)
_HOST_FORM = f"{_V4}|{_V6}"
_LOST_SEPARATOR = r"\x01"  # the property before has swallowed one whose beginning is damaged
_NO_FORM = r"[^\s\S]"


@dataclass(frozen=True)
class Redaction:
    """What is redacted, names of REDACTABLE, and how; small, immutable and picklable. `salt` keys the hash."""

    what: frozenset[str]
    how: How = "hide"
    salt: bytes = b""

    def as_json(self) -> dict[str, Any]:
        """As a manifest has it: the digest of the salt shows whether another run has the same."""
        digest = hashlib.blake2b(self.salt, digest_size=_HASH_BYTES).hexdigest() if self.how == "hash" else None
        return {"what": sorted(self.what), "how": self.how, "salt_digest": digest}

    def hides(self, name: str) -> bool:
        """Whether a field, or a column such as ``properties.NAME``, is redacted."""
        if name.startswith(PROPERTY_COLUMN):
            return self.hides_property(name.removeprefix(PROPERTY_COLUMN))
        kinds = _BODY if name.startswith(JSON_COLUMN) else _FIELDS.get(name, frozenset())
        return not kinds.isdisjoint(self.what)

    def hides_property(self, name: str) -> bool:
        """Whether the property is redacted."""
        return not _PROPERTIES.get(name, _PROPERTY).isdisjoint(self.what)

    def text(self, value: str | bytes) -> str:
        """What stands in the place of a value."""
        if self.how == "hide":
            return HIDDEN
        data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
        return hashlib.blake2b(data, digest_size=_HASH_BYTES, key=hashlib.blake2b(self.salt).digest()).hexdigest()

    @property
    def _forms(self) -> str:
        """What values are hidden for what they hold, whatever the property: damage changes names, too."""
        if not self.what & _ID:
            return _NO_FORM
        words = f"{_ID_FORM}|{_HOST_FORM}" if "hosts" in self.what else _ID_FORM
        return f"(?:^|[^0-9A-Za-z])(?:{words})(?:[^0-9A-Za-z]|$)|{_LOST_SEPARATOR}"

    def property_value(self, name: str, value: str) -> str:
        """A property's value as it is shown; each of several keys has a hash of its own."""
        if not self.hides_property(name) and not re.search(self._forms, value):
            return value
        if name == KEYS and self.how == "hash":
            return KEY_SEPARATOR.join(piece and self.text(piece) for piece in value.split(KEY_SEPARATOR))
        return self.text(value)

    def column(self, name: str, column: pa.Array) -> pa.Array:
        """A column of messages or units as it is shown, of the same type."""
        if name == "properties":
            return self._maps(column)
        if name.startswith(PROPERTY_COLUMN):
            own, values = name.removeprefix(PROPERTY_COLUMN), column.to_pylist()
            return pa.array([None if each is None else self.property_value(own, each) for each in values], column.type)
        if not self.hides(name):
            return column
        kind = column.type
        if pa.types.is_integer(kind):
            return pa.nulls(len(column), kind)
        if pa.types.is_list(kind):
            return pa.array([None if each is None else list(map(self.text, each)) for each in column.to_pylist()], kind)
        values = [None if value is None else self.text(value) for value in column.to_pylist()]
        return pa.array([value.encode() for value in values] if pa.types.is_binary(kind) else values, kind)

    def batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of a listing as they are shown; a body is one text, whatever it was, and nothing stands beside it."""
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        if "slot" in columns and "key_hash" in columns and self.hides("key_hash"):
            columns["slot"] = pa.nulls(batch.num_rows, columns["slot"].type)  # the hash, but for its highest bits
        if BODY in columns and BODY_BASE64 in columns and self.hides(BODY):
            pairs = zip(columns[BODY].to_pylist(), columns.pop(BODY_BASE64).to_pylist(), strict=True)
            columns[BODY] = pa.array([self._body(text, data) for text, data in pairs], pa.string())
        elif BODY in columns:
            columns[BODY] = self.column(BODY, columns[BODY])
        shown = [column if name == BODY else self.column(name, column) for name, column in columns.items()]
        return pa.RecordBatch.from_arrays(shown, names=list(columns))

    def table(self, table: pa.Table) -> pa.Table:
        """A table of messages as it is shown."""
        return pa.Table.from_batches([self.batch(batch) for batch in table.to_batches()], table.schema)

    def value(self, value: Any, name: str = "") -> Any:
        """The field `name` of a JSON object as it is shown, with all that is in it."""
        if isinstance(value, dict):
            if name == "properties":
                return {key: self.property_value(key, item) for key, item in value.items()}
            return self._object(value)
        if isinstance(value, list):
            return [self.value(item, name) for item in value]
        if value is None or isinstance(value, bool) or not self.hides(name):
            return value
        return self.text(value) if isinstance(value, str) else None

    def _object(self, fields: dict[str, Any]) -> dict[str, Any]:
        shown = {name: self.value(item, name) for name, item in fields.items()}
        if BODY in fields and self.hides(BODY):
            shown[BODY] = self._body(fields[BODY], shown.pop(BODY_BASE64, None) and fields[BODY_BASE64])
        if "slot" in fields and "key_hash" in fields and self.hides("key_hash"):
            shown["slot"] = None
        if SENTENCES in fields:
            shown[SENTENCES] = [self._sentence(each, fields) for each in fields[SENTENCES]]
        return shown

    def _sentence(self, sentence: str, fields: Mapping[str, Any]) -> str:
        """A sentence about `fields` without the values in them that are redacted."""
        for value in sorted(set(self._hidden_in(fields)), key=len, reverse=True):
            sentence = sentence.replace(value, self.text(value))
        return sentence

    def _hidden_in(self, value: Any, name: str = "") -> Iterator[str]:
        """The texts and numbers below the field `name` that are redacted."""
        if isinstance(value, dict):
            for key, item in value.items():
                yield from self._hidden_in(item, key)
        elif isinstance(value, list):
            for item in value:
                yield from self._hidden_in(item, name)
        elif value not in (None, "") and self.hides(name):
            yield str(value)

    def _body(self, text: str | None, in_base64: str | None) -> str | None:
        if text is None and in_base64 is None:
            return None
        return self.text(base64.b64decode(in_base64) if text is None and in_base64 else text or "")

    def _maps(self, column: pa.MapArray) -> pa.MapArray:
        """Maps with the values of redacted properties replaced; names stay."""
        names = column.keys.to_pylist()
        is_named = np.array([self.hides_property(name) for name in names], dtype=np.bool_)
        has_form = pc.match_substring_regex(column.items, self._forms).fill_null(False)
        rows = np.flatnonzero(is_named | np.asarray(has_form))
        if not len(rows):
            return column
        items = column.items.to_pylist()
        for row in rows.tolist():
            items[row] = self.property_value(names[row], items[row])
        return pa.MapArray.from_arrays(column.offsets, column.keys, pa.array(items, pa.string()))
