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
        return _compared(_with_side(a, 0).unionByName(_with_side(b, 1)), limit)
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


def _with_side(rows: Any, side: int) -> Any:
    from pyspark.sql import functions as f

    return rows.withColumn("side", f.lit(side))


def _surplus(rows: Any) -> Any:
    """The rows that the other side does not have as often, the first in the log aside; `others` is how often it has."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    equal, is_b = Window.partitionBy(_IDENTITY), f.col("side") == 1
    counted = rows.select(
        "*",
        f.row_number().over(equal.orderBy("side", "physical_offset")).alias("nth"),  # those of `a` come first
        f.count(f.when(~is_b, 1)).over(equal).alias("in_a"),
        f.count(f.when(is_b, 1)).over(equal).alias("in_b"),
    )
    nth = f.when(is_b, f.col("nth") - f.col("in_a")).otherwise(f.col("nth"))
    others = f.when(is_b, f.col("in_a")).otherwise(f.col("in_b"))
    return counted.filter(nth > others).select("side", "topic", "unique_key", "physical_offset", others.alias("others"))


def _compared(rows: Any, limit: int) -> tuple[Multiset, Multiset]:
    """Both stores are read twice: to find what differs, of which the rest is made, and to count."""
    from pyspark.sql import functions as f

    surplus = _surplus(rows).cache()
    found = Multiset(0), Multiset(0)
    for row in rows.groupBy("side").count().collect():
        found[row["side"]].messages = row["count"]
    for row in surplus.groupBy("side", "topic").agg(f.count("*"), f.count_if(f.col("others") > 0)).collect():
        side, topic, count, repeated = row
        found[side].topics[topic] = count
        found[side].repeated += repeated
    if found[0].topics and found[1].topics:
        sides = (f.count_if(f.col("side") == side).alias(f"in_{side}") for side in (0, 1))
        in_both = surplus.groupBy("topic", "unique_key").agg(*sides).filter((f.col("in_0") > 0) & (f.col("in_1") > 0))
        [counts] = in_both.agg(f.sum("in_0"), f.sum("in_1")).collect()
        found[0].other_body, found[1].other_body = (count or 0 for count in counts)
    for side, multiset in enumerate(found):
        if multiset.topics:
            first = surplus.filter(f.col("side") == side).orderBy("physical_offset").limit(limit)
            multiset.first = [row["physical_offset"] for row in first.select("physical_offset").collect()]
    return found
