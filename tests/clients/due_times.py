"""What a start makes of delayed and timer messages, as clients see it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rmqtool.clients.delays import DelayRequest, delayed_due
from rmqtool.clients.losses import Due
from rmqtool.clients.timers import timers_due
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.versions import parse_version
from rmqtool.store.store import open_store
from rmqtool.verify.task import VerifyRequest
from rmqtool.verify.verification import Verification


def delays_after_start(
    store: Path, version: str, conf: BrokerConf | None = None, *, checks_times: bool = False, later: int = 0
) -> Due:
    """The delayed messages of a start that comes `later` than the newest message, ms."""
    run = _verified(store, version, conf)
    total = run.found.total
    log = {name: state for name, state in total.states.items() if state.records}
    newest = total.totals.latest
    assert run.after.start is not None
    request = DelayRequest(newest + later, newest, newest + 1, checks_times)
    return delayed_due(run.snapshot, run.after.start, log, request)


def timers_after_start(
    store: Path, version: str, conf: BrokerConf | None = None, undeliverable: Sequence[int] = ()
) -> Due:
    """The timer messages of a start right after the newest message."""
    run = _verified(store, version, conf)
    newest = run.found.total.totals.latest
    assert run.after.start is not None
    return timers_due(run.snapshot, run.after.start, newest, newest, undeliverable)


def _verified(store: Path, version: str, conf: BrokerConf | None) -> Verification:
    run = Verification(open_store(store, conf), VerifyRequest(version=parse_version(version)))
    run.run(lambda _: None)
    return run
