"""What the broker derives from each record: consume queue units and index keys (`DefaultMessageStore#doDispatch`).

Stateless: what a record gives does not depend on the records before it. A run of records in, columns out::

    dispatcher = Dispatcher(DispatchRules.of(version, store, lmq_seen), topics.with_batch_queues)
    for event in scan_files(files):
        if isinstance(event, Frames):
            dispatched = dispatcher.dispatch(event)
            dispatched.units  # QueueUnits: arrays, one element for each consume queue unit, in log order
            dispatched.keys  # IndexKeys: arrays, one element for each index unit, in the order of the puts
            dispatched.refused  # rows of records that a broker takes for damage, for its properties say nonsense

`units.queues` numbers the queues densely; `dispatcher.queues[number]` is its topic and queue id. Units of several runs
are put together with `QueueUnits.concatenate` and taken apart by queue with `units.by_queue()`, which keeps log order.
All arrays own their memory and may outlive the frames. Which units a queue really gets, given those that it holds
already (`ConsumeQueue#putMessagePositionInfo`: repeats are dropped, gaps close), is the matter of `rmqtool.append`.
"""
