"""Files of another owner or without the right to write: a command to run, for rmqtool changes no rights itself."""

from __future__ import annotations

from rmqtool.base.shell import quote
from rmqtool.findings.finding import Finding
from rmqtool.store.owners import owners_of
from rmqtool.store.snapshot import Snapshot

_CODE = "store.permission"


def permission_command(snapshot: Snapshot, finding: Finding) -> str | None:
    """The command that gives the whole store to the user of most of its files, or lets that user write it.

    None for another finding, and once the file is as the others are.
    """
    if finding.code != _CODE or finding.file is None:
        return None
    store, path = snapshot.store, snapshot.store.root / finding.file
    owners = owners_of(store, snapshot.log)
    outside = [each for each in store.commit_log_directories if store.root not in each.parents]
    places = " ".join(quote(str(place)) for place in (store.root, *outside))
    if path in dict(owners.of_others()):
        uid, gid = owners.usual
        return f"chown -R {uid}:{gid} {places}"
    return f"chmod -R u+w {places}" if path in dict(owners.not_writable()) else None
