"""Two stores as multisets of messages, compared by Spark: topic, unique key, CRC of the stored body."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rmqtool.base.errors import RmqtoolError, UsageError
from rmqtool.rules.system_topics import FILLED_BY_BROKERS
from rmqtool.scan.filters import Filters
from rmqtool.spark.session import failure

_COLUMNS = "topic,unique_key,body_crc,physical_offset"
_IDENTITY = ["topic", "unique_key", "body_crc"]
_SPLITS_PER_SHUFFLE = 200


@dataclass
class Multiset:
    """What one store has and the other has not, or has fewer times; `messages` counts all that are compared."""

    messages: int
    topics: dict[str, int] = field(default_factory=dict)
    repeated: int = 0
    other_body: int = 0
    first: list[int] = field(default_factory=list)  # physical offsets


def compare_multisets(
    context: Any, paths: tuple[str, str], filters: Filters, confs: tuple[str | None, str | None], limit: int
) -> tuple[Multiset, Multiset]:
    """Compare two stores on the workers of a SparkContext; the first `limit` of each surplus are named.

    `confs` are the paths of the broker.conf that each is read with.
    Damage in a log ends it: raises RmqtoolError, and SparkError.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    from rmqtool.spark import register

    session = SparkSession(context)
    try:
        register(session)
        session.conf.set("spark.sql.shuffle.partitions", min(_SPLITS_PER_SHUFFLE, 2 * context.defaultParallelism))
        a, b = (_rows(session, path, _options(filters, conf), filters) for path, conf in zip(paths, confs, strict=True))
        counts = [rows.groupBy(_IDENTITY).count() for rows in (a, b)]
        surplus = [_surplus(a, counts[1]).cache(), _surplus(b, counts[0]).cache()]
        return _summed(a, surplus[0], surplus[1], limit), _summed(b, surplus[1], surplus[0], limit)
    except RmqtoolError:
        raise
    except PySparkException as error:
        raise failure(error) from error


def _options(filters: Filters, conf: str | None) -> Mapping[str, str]:
    """The filters as options of the data source."""
    texts = {"topic": filters.topics, "excludeTopic": filters.excluded_topics, "key": filters.keys,
             "tag": filters.tags, "queue": tuple(map(str, filters.queue_ids))}  # fmt: skip
    for values in texts.values():
        for value in values:
            if "," in value:
                raise UsageError(f"{value!r}: with --engine spark no value of a filter may have a comma")
    numbers = {"from": filters.from_timestamp, "to": filters.to_timestamp, "toOffset": filters.to_offset,
               "fromOffset": filters.from_offset or None}  # fmt: skip
    options = {name: ",".join(values) for name, values in texts.items() if values}
    options |= {name: str(value) for name, value in numbers.items() if value is not None}
    return options | ({"brokerConf": conf} if conf else {}) | {"columns": _COLUMNS, "onDamage": "fail"}


def _rows(session: Any, path: str, options: Mapping[str, str], filters: Filters) -> Any:
    from pyspark.sql import functions as f

    rows = session.read.format("rocketmq").options(paths=json.dumps([path]), **options).load()
    topic = f.col("topic")
    is_compared = ~topic.rlike(FILLED_BY_BROKERS) | topic.isin(list(filters.topics))
    return rows.filter(is_compared).fillna("", ["unique_key"])


def _surplus(rows: Any, others: Any) -> Any:
    """The rows that the other side does not have as often, the first in the log aside; `count` is how often it has."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    nth = f.row_number().over(Window.partitionBy(_IDENTITY).orderBy("physical_offset"))
    numbered = rows.withColumn("nth", nth)
    joined = numbered.join(others, _IDENTITY, "left").fillna(0, ["count"])
    return joined.filter(f.col("nth") > f.col("count")).drop("nth")


def _summed(rows: Any, surplus: Any, others: Any, limit: int) -> Multiset:
    from pyspark.sql import functions as f

    found = Multiset(rows.count())
    for row in surplus.groupBy("topic").count().collect():
        found.topics[row["topic"]] = row["count"]
    if found.topics:
        key = ["topic", "unique_key"]
        found.repeated = surplus.filter(f.col("count") > 0).count()
        found.other_body = surplus.join(others.select(key).distinct(), key).count()
        first = surplus.select("physical_offset").orderBy("physical_offset").limit(limit)
        found.first = [row[0] for row in first.collect()]
    return found
