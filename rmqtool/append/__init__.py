"""How units become files: what a broker that begins with nothing writes for the units that `rmqtool.dispatch` derives.

Stateful: where a unit goes depends on those before it. `SimpleQueues` and `BatchQueues` place the units of consume
queues and hand them on in pieces of one queue each; `IndexBuilder` does the same for index files. Where the pieces go
is a sink's matter: `FileTree` writes files, a comparison looks at what is there already.
"""
