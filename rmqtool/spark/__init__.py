"""Spark: the engine of exports, and ``spark.read.format("rocketmq")``."""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make the format ``rocketmq`` known to a session, and the package to its executors, however it was installed."""
    from pyspark.errors import AnalysisException

    from rmqtool.spark.session import other_python, ship
    from rmqtool.spark.source import RocketMQDataSource

    if other := other_python(spark.sparkContext):
        message = f"Spark's workers run {other}, and this is {sys.executable}: set PYSPARK_PYTHON before Spark starts"
        warnings.warn(message, stacklevel=2)
    ship(spark.sparkContext)
    try:
        spark.dataSource.register(RocketMQDataSource)
    except AnalysisException as error:
        # pyspark 4.0 refuses what it has found without registering, and 4.1 and later replace it.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
