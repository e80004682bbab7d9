"""Consume queues and index files anew from the commit log.

`derive` goes over the log once and places units and keys; `queue_diff` and `index_diff` compare them with the files
that are there, `file_tree` writes them. A `plan` is what came of a comparison.

Placement has a memory: where a unit goes depends on those before it. `queue_placement` and `batch_placement` place the
units of consume queues and hand them on in pieces of one queue each, `index_builder` does the same for index files.
"""
