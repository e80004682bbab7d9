"""Two stores side by side: where their logs part, and what queues and config files say besides."""
