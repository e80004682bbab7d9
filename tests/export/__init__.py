"""Exports to Parquet, without Spark."""
