"""From bytes of the log to columns, and to rows."""
