"""Lazy queries over exported files: python examples/polars_session.py EXPORTED (pip install polars)."""

import sys

import polars as pl

messages = pl.scan_parquet(f"{sys.argv[1]}/**/part-*.parquet")
questions = [
    messages.group_by("topic").agg(pl.len().alias("messages"), pl.col("message_size").sum()).sort("topic"),
    messages.filter(pl.col("topic") == "orders").group_by("tags").agg(pl.len().alias("messages")).sort("tags"),
    messages.filter(pl.col("topic") == "payments")
    .sort("physical_offset")
    .head(3)
    .select("queue_id", "queue_offset", pl.col("keys").list.first().alias("key"), pl.col("body").cast(pl.String)),
]
for question in questions:
    print(question.collect().write_csv(separator="\t", quote_style="never"))
