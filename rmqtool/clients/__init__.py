"""What producers and consumers get of a store: as it was, after a start, after a repair and a start."""
