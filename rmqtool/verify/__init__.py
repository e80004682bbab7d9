"""The proof of a store: every record, every consume queue unit and every index unit, compared both ways."""
