"""Consume queues and index files anew from the commit log.

`derive` goes over the log once and places units and keys; `compare` takes them and tells what is different from the
files that are there, `rmqtool.rebuild.file_tree` writes them. A `plan` is what came of a comparison.
"""
