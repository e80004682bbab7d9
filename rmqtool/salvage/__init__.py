"""What proves itself, taken out of what is left of stores, for a new store; and stores of another layout, converted.

From files to a log, in this order: `inputs.py` (the files), `carve.py` (what proves itself in one file), `choose.py`
(what is part of the log, and from which of several sources it is taken), `layout.py` (the new log, gaps filled, and
what is not in it); `plan.py` puts them together. `write_log.py` writes the log into the directory of `new_store.py`,
which also takes over what is beside it. The sources are only read.

Where only some messages are wanted: `selection.py` (which, and queue offsets that are counted again), `moved_config.py`
(config files that fit).

A conversion: `conversion.py` (what is taken of a DLedger log, or of several paths, and where its messages go).
"""
