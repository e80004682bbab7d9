"""What a broker under a controller would cut when it connects as a slave (`AutoSwitchHAClient#doTruncate`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rmqtool.diff.side import Name, Side
from rmqtool.diff.tails import Tail
from rmqtool.store.epochs import Epoch, Epochs, load_epochs


@dataclass(frozen=True)
class Following:
    """One store as the slave of the other: up to where they agree by their epochs, and what is cut after it.

    `point` is None where no epoch agrees, so that the slave never syncs, and where it `has_no_epochs` at all: then
    nothing is compared, and it goes on at its own end.
    """

    point: int | None
    cut: Tail | None = None
    has_no_epochs: bool = False


@dataclass(frozen=True)
class SideEpochs:
    """The epochs of one store; `stale` begin after the log's end, `missing` is in `topics.json` but has no entry."""

    epochs: Epochs
    stale: tuple[Epoch, ...]
    missing: int | None


@dataclass(frozen=True)
class EpochComparison:
    """The epochs of both, and each as the slave of the other."""

    a: SideEpochs
    b: SideEpochs
    a_follows: Following
    b_follows: Following

    @property
    def differ(self) -> bool:
        """Whether the lists differ, or one cannot be read."""
        return self.a.epochs != self.b.epochs

    def cuts(self, a: Side, b: Side) -> dict[Name, int]:
        """Physical offsets after which each would cut something as the slave of the other."""
        sides: tuple[tuple[Side, Following], ...] = ((a, self.a_follows), (b, self.b_follows))
        return {side.name: each.point for side, each in sides if each.point is not None and each.point < side.end}

    def with_cuts(self, counted: Mapping[Name, Tail]) -> EpochComparison:
        """The same with what would be cut, as it was counted."""
        a, b = replace(self.a_follows, cut=counted.get("a")), replace(self.b_follows, cut=counted.get("b"))
        return replace(self, a_follows=a, b_follows=b)


def compare_epochs(a: Side, b: Side) -> EpochComparison | None:
    """Compare the epochs; None where neither store has any. What would be cut is not counted yet."""
    first, second = _epochs_of(a), _epochs_of(b)
    if not any(side.epochs.entries or side.epochs.problem for side in (first, second)):
        return None
    return EpochComparison(
        first, second, _following(a, first.epochs, b, second.epochs), _following(b, second.epochs, a, first.epochs)
    )


def consistent_point(slave: Epochs, slave_end: int, master: Epochs, master_end: int) -> int | None:
    """Up to where both logs agree: by the slave's newest epoch that the master has with the same beginning."""
    slave_ends, master_ends = slave.ends(slave_end), master.ends(master_end)
    for epoch in reversed(slave.entries):
        if epoch in master_ends:
            return min(slave_ends[epoch], master_ends[epoch])
    return None


def _following(slave: Side, slave_epochs: Epochs, master: Side, master_epochs: Epochs) -> Following:
    if not slave_epochs.entries:
        return Following(None, has_no_epochs=True)
    return Following(consistent_point(slave_epochs, slave.end, master_epochs, master.end))


def _epochs_of(side: Side) -> SideEpochs:
    epochs = load_epochs(side.snapshot.store)
    stale = tuple(epoch for epoch in epochs.entries if epoch.start_offset > side.end)
    return SideEpochs(epochs, stale, _missing(side, epochs))


def _missing(side: Side, epochs: Epochs) -> int | None:
    """The epoch in the data version of `topics.json`, where the file of epochs ends before it."""
    version = side.snapshot.topics.file.content.get("dataVersion")
    state = version.get("stateVersion") if isinstance(version, dict) else None
    if not epochs.entries or type(state) is not int or state <= epochs.entries[-1].number:
        return None
    return state
