"""SQL over stores: their parts as lazy tables, of which the engine reads the columns and rows that it needs."""
