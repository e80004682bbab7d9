"""Which tables and views there are, for every engine that answers SQL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from rmqtool.base.errors import UsageError
from rmqtool.sql.log_tables import keys, messages, other_messages, trace
from rmqtool.sql.store_tables import store_tables
from rmqtool.sql.tables import Stores, Table

VIEWS: Mapping[str, str] = {
    "everywhere": "select * from messages union all select * from tiered union all select * from compacted",
    "unread": """
        select g.group_name, m.* from everywhere m join groups g
        on m.topic = g.topic and m.queue_id = g.queue_id and m.queue_offset >= g.committed""",
    "hours": """
        select topic, date_trunc('hour', store_timestamp) as hour, count(*) as messages,
        sum(message_size)::bigint as bytes from messages group by all""",
    "spans": """
        select topic, queue_id, count(*) as messages, min(store_timestamp) as first, max(store_timestamp) as last,
        max(store_timestamp) - min(store_timestamp) as span from messages group by all""",
    "producers": """
        select regexp_replace(born_host, ':[0-9]+$', '') as producer, topic, count(*) as messages,
        sum(message_size)::bigint as bytes, max(born_timestamp) as last from messages group by all""",
    "duplicates": """
        select topic, key, count(*) as messages, min(physical_offset) as first_offset,
        max(physical_offset) as last_offset from keys group by all having count(*) > 1""",
    "consumed": """
        select b.group_name, b.message_id, p.topic, b.timestamp, a.success, a.cost,
        a.success is not null as is_ended, b.retry_times, b.client_host
        from (select * from trace where type = 'SubBefore') b
        left join (select * from trace where type = 'SubAfter') a
        on a.request_id = b.request_id and a.message_id = b.message_id
        left join (select message_id, any_value(topic) as topic from trace where type = 'Pub' group by all) p
        on p.message_id = b.message_id""",
}
"""Questions that people ask, as views: their statements by name."""


def tables_of(stores: Stores) -> list[Table]:
    """All tables, in the order in which they are shown; nothing is read before one is asked."""
    others = other_messages(stores, "tiered"), other_messages(stores, "compacted")
    return [messages(stores), *others, keys(stores), *store_tables(stores), trace(stores)]


def unknown(what: str, name: str, tables: Iterable[Table]) -> UsageError:
    """The error for a table or a column that there is not, with names that it may be a slip of."""
    listed = [*tables]
    names = [*(table.name for table in listed), *VIEWS]
    if what != "table":
        names = [name for table in listed for name in table.schema.names]
    near = get_close_matches(name, [*dict.fromkeys(names)], 3)
    hint = f"is it {' or '.join(near)}?" if near else "rmqtool sql STORE --tables shows tables and columns"
    return UsageError(f"no {what} is named {name!r}", hint=hint)


def table_named(stores: Stores, name: str) -> Table:
    """One table; raises UsageError where there is none of this name."""
    tables = {table.name: table for table in tables_of(stores)}
    if name not in tables:
        raise UsageError(f"no table is named {name!r}", hint=f"tables: {', '.join(tables)}")
    return tables[name]
