"""SQL over exported files without Spark: python examples/duckdb_session.py EXPORTED (pip install duckdb)."""

import sys

import duckdb

duckdb.sql("SET timezone = 'UTC'")
duckdb.sql(f"CREATE VIEW messages AS SELECT * FROM read_parquet('{sys.argv[1]}/**/*.parquet')")
for question in (
    "SELECT topic, count(*) AS messages, sum(message_size)::BIGINT AS bytes FROM messages GROUP BY ALL ORDER BY topic",
    "SELECT tags, count(*) AS messages FROM messages WHERE topic = 'orders' GROUP BY tags ORDER BY tags",
    "SELECT queue_id, queue_offset, keys[1] AS key, decode(body) AS body FROM messages"
    " WHERE topic = 'payments' ORDER BY physical_offset LIMIT 3",
):
    answer = duckdb.sql(question)
    print(*answer.columns, sep="\t")
    for row in answer.fetchall():
        print(*row, sep="\t")
    print()
