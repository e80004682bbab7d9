"""The only writer inside a store.

A command that changes a store says what it wants; nothing of the store changes before `Transaction.commit`::

    with Transaction(store, "rebuild-cq") as transaction:  # refuses a running broker, ends interrupted runs
        for recovered in transaction.recovered:
            ...  # show what was done about those
        transaction.require_space(planned_bytes)
        file = transaction.file("consumequeue/orders/0/00000000000000000000", size=6_000_000, mtime_ns=mtime)
        file.write(units, position)  # any files, in any order: few stay open
        transaction.put("consumequeue/orders/0")  # the whole directory is replaced, or created
        transaction.remove("consumequeue/gone")  # kept for undo
        transaction.link("commitlog/00000000001073741824", "commitlog/00000000002147483648")  # to put: a rename
        transaction.delete("commitlog/00000000000000000000")  # final
        transaction.record(Loss("rebuild-cq", now, files=("commitlog/00000000000000000000",)))  # verify reports it then
        committed = transaction.commit()  # id, state, backup_bytes

Whoever leaves the block without `commit`, by an exception or a signal, leaves the store as it was. Inside `commit`
SIGINT, SIGTERM and SIGHUP wait until everything is in place (of deletions: until the one that is being done). Order
matters: paths change in the order of the calls, and deletions come last, each on the disk before the next. Put what
the broker judges by after what it judges: index, batch consume queues, consume queues, then `checkpoint`.

A path that already holds what is staged for it is left alone: a second run has nothing to do.

On the disk: `home.py` (what ``.rmqtool`` holds), `mover.py` (the renames, why a broker may start between any two, and
how runs end that were interrupted), `staging.py` (many queues change in one rename), `losses.py` (what a store no
longer proves).
"""
