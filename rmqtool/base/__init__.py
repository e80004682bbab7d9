"""What knows nothing of RocketMQ."""
