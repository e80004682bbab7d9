"""Messages that were sent twice: the same unique key at two places. python examples/find_duplicates.py STORE."""

import os
import sys

from pyspark.sql import SparkSession

import rmqtool.spark

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
spark = SparkSession.builder.config("spark.ui.enabled", False).getOrCreate()
rmqtool.spark.register(spark)

columns = "topic,queue_id,queue_offset,physical_offset,unique_key"
spark.read.format("rocketmq").option("columns", columns).load(sys.argv[1]).createOrReplaceTempView("messages")
spark.sql("""
    SELECT unique_key, count(*) AS copies, array_sort(collect_set(topic)) AS topics,
           array_sort(collect_list(physical_offset)) AS physical_offsets
    FROM messages WHERE unique_key IS NOT NULL
    GROUP BY unique_key HAVING count(*) > 1 ORDER BY min(physical_offset) LIMIT 5
""").show(truncate=False)
spark.stop()
