"""How many messages of each topic were stored in each hour: python examples/count_by_topic_and_hour.py STORE."""

import os
import sys

from pyspark.sql import SparkSession

import rmqtool.spark

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
spark = SparkSession.builder.config("spark.sql.session.timeZone", "UTC").config("spark.ui.enabled", False).getOrCreate()
rmqtool.spark.register(spark)

# Only what is counted is read from the log at all.
messages = spark.read.format("rocketmq").option("columns", "topic,store_timestamp").load(sys.argv[1])
messages.createOrReplaceTempView("messages")
spark.sql("""
    SELECT topic, date_trunc('hour', store_timestamp) AS hour, count(*) AS messages
    FROM messages GROUP BY ALL ORDER BY topic, hour
""").show(truncate=False)
spark.stop()
