"""What each release does with a store: dispatch, recovery, retention and pulls. It decides, and nobody writes here."""
