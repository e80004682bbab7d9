"""Which messages does one store hold and the other not? python examples/diff_stores.py ONE OTHER.

For a broker and its replica, or a store and its backup. Messages are compared by queue, queue offset and body.
Needs duckdb (pip install duckdb); neither Spark nor Java.
"""

import subprocess
import sys
import tempfile

import duckdb

_SIDES = ("one", "other")

with tempfile.TemporaryDirectory() as folder:
    stores = [f"{name}={path}" for name, path in zip(_SIDES, sys.argv[1:3], strict=True)]
    export = ("-m", "rmqtool", "export", *stores, "--output", f"{folder}/both", "--engine", "local", "--quiet")
    done = subprocess.run([sys.executable, *export], stdout=subprocess.DEVNULL, check=False)
    if done.returncode not in (0, 3):  # 3: damage, which is a difference too
        sys.exit(done.returncode)
    duckdb.sql(f"CREATE VIEW messages AS SELECT * FROM read_parquet('{folder}/both/*.parquet')")
    for side, against in (_SIDES, _SIDES[::-1]):
        found = duckdb.sql(f"""
            SELECT topic, queue_id, count(*) AS messages, min(queue_offset) AS first, max(queue_offset) AS last
            FROM (SELECT topic, queue_id, queue_offset, body FROM messages WHERE store = '{side}'
                  EXCEPT SELECT topic, queue_id, queue_offset, body FROM messages WHERE store = '{against}')
            GROUP BY ALL ORDER BY ALL
        """)
        print(f"in {side} and not in {against}:")
        for topic, queue_id, messages, first, last in found.fetchall():
            print(f"  {topic} queue {queue_id}: {messages} messages, queue offsets {first} to {last}")
