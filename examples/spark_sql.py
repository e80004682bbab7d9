"""Spark SQL over exported files: python examples/spark_sql.py EXPORTED."""

import os
import sys

from pyspark.sql import SparkSession

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
spark = SparkSession.builder.config("spark.ui.enabled", False).getOrCreate()
spark.read.parquet(sys.argv[1]).createOrReplaceTempView("messages")
spark.sql("""
    SELECT topic, count(*) AS messages, sum(message_size) AS bytes,
           count_if(compression <> 'none') AS compressed, min(queue_offset) AS first, max(queue_offset) AS last
    FROM messages GROUP BY topic ORDER BY topic
""").show(truncate=False)
spark.stop()
