"""A store directory as objects: its files, queues, index, offsets, topics and settings."""
