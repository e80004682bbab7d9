"""The end of a store's log in place: what comes after an offset goes, and all that was derived from it."""
