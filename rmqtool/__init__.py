"""Inspection of Apache RocketMQ stores."""

__version__ = "0.1.0"
