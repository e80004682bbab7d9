"""A data frame of exported files: python examples/pandas_session.py EXPORTED (pip install pandas)."""

import sys
from pathlib import Path

import pandas as pd

columns = ["topic", "queue_id", "queue_offset", "store_timestamp", "message_size", "keys", "body"]
files = sorted(Path(sys.argv[1]).rglob("part-*.parquet"))  # what is beside them is no message
messages = pd.concat([pd.read_parquet(file, columns=columns) for file in files], ignore_index=True)

sizes = messages.groupby("topic")["message_size"].agg(["count", "sum"])
print(sizes.to_csv(sep="\t"))

orders = messages[messages["topic"] == "orders"]
hours = orders.groupby(orders["store_timestamp"].dt.floor("h")).size()
print(hours.to_csv(sep="\t", header=["orders"]))

payments = messages[messages["topic"] == "payments"].sort_values(["queue_id", "queue_offset"]).head(3)
payments = payments.assign(key=payments["keys"].str[0], body=payments["body"].map(bytes.decode))
print(payments[["queue_id", "queue_offset", "key", "body"]].to_csv(sep="\t", index=False, quoting=3))
