"""Findings before an upgrade: what the release that is named would refuse, change or ignore."""

from __future__ import annotations

from rmqtool.findings.finding import Entry

UPGRADES = (
    Entry(
        code="upgrade.refused",
        severity="error",
        treatment="settings",
        about="surroundings",
        title="The named release does not start with this broker.conf",
        what="A broker of the release that --broker-version names would end before it serves anything: its settings "
        "exclude each other, or do not fit the store. The store itself is as sound as the verdict says.",
        how="A setting that an older release took is no longer enough, or is spelled otherwise.",
        says="{version}: {why}",
        effect="does not start",
        versions=(
            (
                "4.5.2 and later",
                "mapedFileSizeCommitLog and mapedFileSizeConsumeQueue are not read, their names have two p: on files "
                "of another size than the default it does not start; 4.9.2 starts, and overwrites them.",
            ),
            ("5.1.1 and later", "enableControllerMode and enableDLegerCommitLog exclude each other."),
            ("5.3.4 and later", "rocksdbCQDoubleWriteEnable does not go with batch queues."),
            (
                "5.5.0 and later",
                "rocksdbCQDoubleWriteEnable needs combineCQUseRocksdbForLmq; RocksDB queues must be where "
                "useSeparateStorePathForRocksdbCQ says; after a crash enableAcceleratedRecovery needs an offset that "
                "only 5.5.0 puts into the checkpoint.",
            ),
        ),
        repair="Change broker.conf as the finding says, before the new release is started. After a crash of the old "
        "broker start and stop the old release once more.",
    ),
    Entry(
        code="upgrade.changed",
        severity="warning",
        treatment="none",
        about="surroundings",
        title="The named release does something otherwise",
        what="The release that --broker-version names is newer than all that may have written the store, and treats "
        "it otherwise than the last broker did; or a setting makes it look elsewhere than where the store has it. As "
        "information: what the last broker may do already, and settings whose default is another one and that "
        "broker.conf leaves out.",
        how="An upgrade, or a changed broker.conf.",
        says={
            "switch": "{version}: {what}",
            "change": "since {since} {what}",
            "defaults": "other defaults than in {since}: {what}",
        },
        effect="starts, and does as said",
        versions=(
            ("4.9.2 and later", "the disk is measured as df does, with what is kept for root."),
            (
                "4.9.3 and later",
                "enableLmq=true moves all committed offsets, not only those of light queues, from consumerOffset.json "
                "to lmqConsumerOffset.json; neither file is read for the other, there or back.",
            ),
            ("5.0.0 and later", "light queues get no entries of retry and schedule topics."),
            ("5.2.0 and later", "storeType=defaultRocksDB keeps queues in RocksDB; 5.1.4 only configuration."),
            (
                "5.3.2 and later",
                "configManagerVersion=v2 takes over no topics, groups and offsets: consumers begin again.",
            ),
            ("5.4.0 and later", "tags are keys of the index; after a crash only the last ten log files are read."),
            ("5.5.0 and later", "light queues get no entries of dead letter topics."),
        ),
        repair="Decide for each whether it matters, and set what should stay as it was in broker.conf. Stop the old "
        "broker cleanly before the upgrade.",
    ),
    Entry(
        code="upgrade.setting",
        severity="warning",
        treatment="ignored",
        about="surroundings",
        title="A setting of broker.conf is not read, or not as it looks",
        what="broker.conf has a setting that the release of --broker-version does not have, or ignores. Or, in any "
        "release, a value that a broker does not take as it looks: a number with a blank or a letter in it, true with "
        "a blank after it. What it changes at the next start is predicted.",
        how="It was removed or renamed, belongs to a newer release, or is misspelled. Blanks at the end of a line, "
        "or a comment after a value, belong to the value. Plug-ins other than the tiered store may have settings that "
        "are not known here.",
        says={
            "value": "{setting} is {value!r}: {why}",
            "no-effect": "{setting} has no effect since {since}",
            "unknown": "{setting} is read by no release[; {version} reads {instead}]",
            "later": "{setting} is read since {since}, not by {version}[; {version} reads {instead}]",
            "earlier": "{setting} is read up to {until}, not by {version}[; {version} reads {instead}]",
        },
        parts={
            "why": {
                "no-number": "it is no number, and not read",
                "blank-no-number": "with the blank after it, it is no number, and not read",
                "blank-false": "with the blank after it, it counts as false",
                "blanks-cut": "the blanks around it are cut off since {since}",
                "blanks-kept": "the blanks around it are part of it[ up to {until}]",
                "blanks-kept-elsewhere": "the blanks around it are part of it[ up to {until}]: another directory",
            },
        },
        effect="the broker silently ignores it, and takes its default",
        versions=(
            ("4.5.2 and later", "mapedFileSizeCommitLog is mappedFileSizeCommitLog, and so for consume queues."),
            ("before 5.2.0", "blanks around text belong to it: a path with one is another directory."),
            (
                "5.3.3 and later",
                "aclEnable has no effect: authenticationEnabled and authorizationEnabled decide.",
            ),
            (
                "all",
                "names are compared letter by letter, upper and lower case too; with a blank after it a number is not "
                "read, and true counts as false.",
            ),
        ),
        repair="Where the finding gives the name that the release reads, write that name; take blanks at the end of a "
        "value away. Otherwise the setting may stay: a start does not depend on it.",
    ),
)
