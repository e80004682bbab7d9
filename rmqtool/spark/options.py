"""The options of ``spark.read.format("rocketmq")``: those of the command line, in camel case."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import pyarrow as pa

from rmqtool.base.errors import UsageError
from rmqtool.base.times import parse_time
from rmqtool.rules.broker_conf import BrokerConf, read_broker_conf
from rmqtool.scan.filters import Filters
from rmqtool.scan.message_rows import BodyChoice
from rmqtool.scan.redaction import REDACTABLE, How, Redaction
from rmqtool.scan.typed_columns import split_columns, typed_column
from rmqtool.sql.catalog import table_named
from rmqtool.sql.log_tables import MESSAGE_COLUMNS
from rmqtool.sql.tables import Opening, Reading
from rmqtool.store.message_reader import INCLUDABLE, Query, make_query
from rmqtool.store.splits import SPLIT_SIZE
from rmqtool.store.store import NamedStore, open_stores
from rmqtool.store.tiered import with_tier

OnDamage = Literal["skip", "fail"]

OPTIONS = (
    "path", "paths", "table", "columns", "body", "topic", "excludeTopic", "queue", "tag", "key", "transaction", "from",
    "to", "fromOffset", "toOffset", "include", "storeColumn", "splitSize", "brokerConf", "tieredPath", "onDamage",
    "redact", "redactAs", "redactSalt", "maxBytesPerTrigger", "startingOffsets", "failOnDataLoss",
)  # fmt: skip
"""Their names; upper and lower case are the same to Spark."""

_OF_ALL_TABLES = (
    "path", "paths", "table", "include", "storeColumn", "splitSize", "brokerConf", "onDamage", "redact", "redactAs",
    "redactSalt",
)  # fmt: skip
_MESSAGES = "messages"

_LEAST_SPLIT = 1 << 20
_TRANSACTIONS = ("none", "prepared", "commit", "rollback")


@dataclass(frozen=True)
class SourceOptions:
    """The options of a reader, parsed; without a `table` messages are read, of the commit log alone if `is_local`."""

    paths: tuple[str, ...]
    query: Query
    conf: BrokerConf
    table: str | None = None
    is_local: bool = False
    with_store: bool = False
    split_size: int = SPLIT_SIZE
    on_damage: OnDamage = "skip"
    max_bytes: int | None = None
    from_latest: bool = False
    fail_on_data_loss: bool = True

    def stores(self) -> list[NamedStore]:
        """The stores, opened; raises RmqtoolError."""
        return open_stores(self.paths, self.conf)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows; nothing is read for it."""
        if self.table is None:
            return self.query.schema
        return table_named(self.opening(()).opened(Reading()), self.table).schema

    def opening(self, stores: Sequence[NamedStore]) -> Opening:
        """How the stores are asked for a table, on each worker."""
        fails = self.on_damage == "fail"
        return Opening(
            tuple(each.absolute for each in stores),
            self.query,
            None,
            self.with_store,
            fails,
            split_size=self.split_size,
        )


def parse_options(options: Mapping[str, Any], columns: tuple[str, ...] | None = None) -> SourceOptions:
    """Parse the options of a reader; `columns` override those in it. Raises UsageError and UnreadableError."""
    given = {name.lower(): str(value) for name, value in options.items()}
    known = {name.lower(): name for name in OPTIONS}
    if given.pop("pushdown", "false").lower() != "false":
        # Answers of a program that sets it were wrong: whoever wrote it should know.
        message = "the option pushDown no longer exists: Spark kept a pushed filter for later statements"
        raise UsageError(message, hint="leave it out; topic, queue, tag, key, from and to reduce what is read")
    for name in given:
        if name not in known:
            raise UsageError(f"no option is named {name}", hint=f"options: {', '.join(OPTIONS)}")
    options_by_name = {known[name]: value for name, value in given.items()}
    table = options_by_name.get("table")
    if table not in (None, _MESSAGES):
        for name in options_by_name:
            if name not in _OF_ALL_TABLES:
                raise UsageError(f"the option {name} is for messages, and not for the table {table}")
    paths = _paths(options_by_name)
    named = tuple(split_columns(options_by_name.get("columns", "")))
    usual = MESSAGE_COLUMNS if table == _MESSAGES else None
    names = named or usual if columns is None else _with_types(columns, named)
    # More than one store is only known once patterns are expanded, which is done where there are several anyway.
    with_store = _flag(options_by_name, "storeColumn", default=len(paths) > 1 or any("*" in path for path in paths))
    include = _texts(options_by_name, "include")
    for kind in include:
        _one_of("include", kind, tuple(INCLUDABLE))
    body: Any = _one_of("body", options_by_name.get("body", "decompressed"), get_args(BodyChoice))
    on_damage: Any = _one_of("onDamage", options_by_name.get("onDamage", "skip"), get_args(OnDamage))
    starting = _one_of("startingOffsets", options_by_name.get("startingOffsets", "earliest"), ("earliest", "latest"))
    return SourceOptions(
        paths=paths,
        query=make_query(
            names,
            body,
            _filters(options_by_name),
            include,
            with_store=with_store and columns is None and table in (None, _MESSAGES),
            redaction=_redaction(options_by_name),
        ),
        conf=_conf(options_by_name.get("brokerConf"), options_by_name.get("tieredPath")),
        table=None if table == _MESSAGES else table,
        is_local=table == _MESSAGES,
        with_store=with_store,
        split_size=max(_LEAST_SPLIT, _integer(options_by_name, "splitSize") or SPLIT_SIZE),
        on_damage=on_damage,
        max_bytes=_integer(options_by_name, "maxBytesPerTrigger"),
        from_latest=starting == "latest",
        fail_on_data_loss=_flag(options_by_name, "failOnDataLoss", default=True),
    )


def _with_types(columns: Sequence[str], named: Sequence[str]) -> tuple[str, ...]:
    """The columns of a schema, those with a type as the option `columns` has them."""
    typed = {column.name: text for text in named if (column := typed_column(text)) is not None}
    return tuple(typed.get(name, name) for name in columns)


def _paths(options: Mapping[str, str]) -> tuple[str, ...]:
    paths = json.loads(options["paths"]) if "paths" in options else [options["path"]] if options.get("path") else []
    if not paths:
        raise UsageError("no store is given", hint='spark.read.format("rocketmq").load("/data/rocketmq/store")')
    return tuple(paths)


def _filters(options: Mapping[str, str]) -> Filters:
    return Filters(
        topics=_texts(options, "topic"),
        excluded_topics=_texts(options, "excludeTopic"),
        queue_ids=tuple(_to_integer("queue", text) for text in _texts(options, "queue")),
        tags=tuple(tag.strip() for text in _texts(options, "tag") for tag in text.split("||") if tag.strip()),
        keys=_texts(options, "key"),
        transactions=tuple(_one_of("transaction", text, _TRANSACTIONS) for text in _texts(options, "transaction")),
        from_timestamp=_time(options, "from"),
        to_timestamp=_time(options, "to"),
        from_offset=_integer(options, "fromOffset") or 0,
        to_offset=_integer(options, "toOffset"),
    )


def _redaction(options: Mapping[str, str]) -> Redaction | None:
    """What is redacted; a hash needs its salt, for Spark may read a part of the log twice, and in several processes."""
    what, salt = _texts(options, "redact"), options.get("redactSalt", "")
    for word in what:
        _one_of("redact", word, REDACTABLE)
    how: Any = _one_of("redactAs", options.get("redactAs", "hide"), get_args(How))
    if (how == "hash") is not bool(salt) or (how == "hash" and not what):
        raise UsageError("redactAs hash needs redact and redactSalt, and redactSalt is for redactAs hash")
    return Redaction(frozenset(what), how, salt.encode("utf-8", "replace")) if what else None


def _texts(options: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple(text.strip() for text in options.get(name, "").split(",") if text.strip())


def _time(options: Mapping[str, str], name: str) -> int | None:
    try:
        return parse_time(options[name]) if name in options else None
    except ValueError as error:
        raise UsageError(f"option {name}: {error}") from error


def _integer(options: Mapping[str, str], name: str) -> int | None:
    return _to_integer(name, options[name]) if name in options else None


def _to_integer(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise UsageError(f"option {name}: {text!r} is not a whole number") from error


def _flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    if name not in options:
        return default
    return _one_of(name, options[name].lower(), ("true", "false")) == "true"


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise UsageError(f"option {name}: {value!r} is not one of {', '.join(allowed)}")
    return value


def _conf(path: str | None, tier: str | None) -> BrokerConf:
    return with_tier(read_broker_conf(Path(path)) if path else BrokerConf(), tier)
