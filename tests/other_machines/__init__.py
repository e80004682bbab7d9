"""Stores and exports on other machines: real servers of S3 and HDFS, on the loopback interface."""
