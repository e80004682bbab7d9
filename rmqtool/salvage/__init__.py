"""What proves itself, taken out of what is left of stores, for a new store; and stores of another layout, converted.

From files to a log, in this order: `inputs.py` (the files), `carve.py` (what proves itself in one file),
`generations.py` (what was written before and is not part of the log), `choose.py` (which of several sources it is taken
from), `layout.py` (the new log, gaps filled), `left_behind.py` (what is not in it); `plan.py` puts them together.
`write_log.py` writes the log, `carry_over.py` what is beside it, into the directory of `new_store.py`. The sources are
only read.

Where only some messages are wanted: `selection.py` (which), `compact_log.py` (the dense log they go into),
`numbering.py` (queue offsets that are counted again), `moved_config.py` (config files that fit); `selected_log.py` puts
them together.

A conversion: `conversion.py` (what is taken of a DLedger log, or of several paths), `entry_walk.py` (entries in order,
and where their messages go), `write_conversion.py` (the new log), `moved_queues.py` and `for_conversion.py` (what is
beside it).
"""
