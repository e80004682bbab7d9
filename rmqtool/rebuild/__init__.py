"""Consume queues and index files again from the commit log.

`source` is the store that is read. `derive` goes over its log once, which `log_pass` reads in one process or several,
or from the recording of an earlier pass. It hands on units and keys in their places: to `queue_diff` and
`index_builder`, which compare them with the files that are there, and to `staged`, which writes what a `plan` names
into a transaction, or all into another tree (`apply`).

Placement has a memory: where a unit goes depends on those before it. `queue_placement` places the units of consume
queues and hands them on in pieces of one queue each, `index_builder` does the same for index files.
"""
