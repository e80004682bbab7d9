"""What Python programs import: `rmqtool.open` gives a `Store` of messages, queues, groups and findings."""
