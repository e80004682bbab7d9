"""Found by Spark: it looks for top-level modules named ``pyspark_*`` with a ``DefaultSource``.

Installed at the top level, see ``package-dir`` in pyproject.toml.
"""

from rmqtool.spark.source import RocketMQDataSource as DefaultSource

__all__ = ["DefaultSource"]
