"""RocketMQ itself, driven by tests: what it makes of a store, and the stores that it writes."""
