"""Files, times, errors, processes: nothing of RocketMQ in it."""
