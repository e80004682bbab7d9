"""Messages of a store or an export to a live cluster: the only room that knows a network."""
