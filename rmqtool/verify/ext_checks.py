"""Files of consume queue ext units that a kill left empty (`ConsumeQueueExt#load`)."""

from __future__ import annotations

from pathlib import Path

from rmqtool.base.files import list_directory
from rmqtool.base.mapped_files import list_mapped_files
from rmqtool.base.paths import entry_path
from rmqtool.base.tolerant import skip_wrong_type
from rmqtool.findings.report import Report
from rmqtool.rules.releases import Releases
from rmqtool.store.file_findings import empty_file_finding
from rmqtool.store.store import CONSUME_QUEUE_EXT, Store


def check_ext_files(store: Store, releases: Releases, report: Report) -> None:
    """Report files of 0 bytes, unless the settings switch ext units off, so that none is loaded."""
    if not store.conf.is_on("enableConsumeQueueExt", default=True):
        return
    with skip_wrong_type():
        for topic in list_directory(store.root / CONSUME_QUEUE_EXT):
            for queue in list_directory(entry_path(topic)) if topic.is_dir() else ():
                _check_queue(store, entry_path(queue), releases, report)


def _check_queue(store: Store, directory: Path, releases: Releases, report: Report) -> None:
    if not directory.is_dir():
        return
    files = list_mapped_files(directory).files
    for file in files:
        if not file.size:
            last = releases if file is files[-1] else None
            empty = empty_file_finding("consumequeue.empty-file", store, file, last, topic=directory.parent.name)
            report.add_finding(empty)
