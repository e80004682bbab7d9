"""Findings about what is beside the log of entries of a DLedger node, and about the logs of compacted topics."""

from __future__ import annotations

from rmqtool.findings.entry import Entry

OTHER_LOGS = (
    Entry(
        code="store.dledger-index",
        severity="warning",
        treatment="none",
        is_trace=True,
        title="The index of DLedger's entries is missing, or does not lead to them",
        what="A node of a DLedger group has an index beside its log, with a unit of 32 bytes for each entry. Those of "
        "the first entry of each data file that a start reads and of the last entry are looked up, and those of all "
        "entries before.",
        how="Files in dledger-ID/index/ were deleted or cut, or come from another copy than those in data/; a page "
        "that was lost, a flipped bit.",
        says={
            "gap": "the file before {name} is missing, or has another size",
            "none": "there is no file of the index",
            "units": "no unit leads to {missing} of {entries} entries that are looked up",
            "unit": "the unit of the Raft index {index} does not lead to its entry",
        },
        effect="the node makes the index again when it starts, from as much of its log as that takes: a long start",
        versions=(
            (
                "DLedger 0.2 and later",
                "goes back from the third last data file to one whose first entry has its unit, and makes the "
                "index again from there. Where a file between two others is missing it does not start. A unit before "
                "that file stays as it is: consumers are served without it, but as leader the node cannot send "
                "this entry to another node, and one that is new or behind never gets past it.",
            ),
        ),
        repair="Where a file between two others is missing, or a unit that no start makes again leads elsewhere (an "
        "error), move the directory of the index away first. Otherwise no repair is needed: the node does it.",
    ),
    Entry(
        code="store.compacted-log",
        severity="error",
        treatment="none",
        title="The compacted log of a queue is missing",
        what="Consumers of a topic with cleanup.policy=COMPACTION get its messages from compaction/compactionLog/ and "
        "compaction/compactionCq/ alone. By compaction/position-checkpoint a compaction has reached this queue, and it "
        "has no file there.",
        how="A backup or a move without compaction/, a deleted directory.",
        says="there is no file of it",
        effect="consumers get none of the messages that the queue has; only new ones are written there",
        versions=(
            ("before 5.1.0", "have no compacted topics: the plain queue is read."),
            ("5.1.0 and later", "make an empty log after half a minute; a slave takes that of its master."),
        ),
        repair="Restore compaction/ from a backup or from the slave. Without one, a broker with enableCompaction=false "
        "serves the messages that are still in the commit log from the plain queue.",
    ),
    Entry(
        code="store.dledger-checkpoint",
        severity="error",
        treatment="files",
        title="The checkpoint of a DLedger node has no number",
        what="dledger-ID/checkpoint gives the Raft index up to which entries were committed, as committedIndex=NUMBER. "
        "What stands there is not a number.",
        how="A flipped bit, a disk that fails, an editor.",
        says="committedIndex={found} is not a number",
        effect="the node does not start: NumberFormatException",
        versions=(("DLedger 0.2 and later", "the same."),),
        repair="Move the file away: a node starts without it, and learns from its group what is committed.",
    ),
)
"""Of DLedger and compaction."""
