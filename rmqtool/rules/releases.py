"""The releases that may have written a store, and what narrows them.

Where releases differ and nothing says which one wrote a store, what any fitting release would have written is sound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from rmqtool.rules.versions import LAST_PATCHES, Version

RELEASES = tuple(
    Version(*minor, patch) for minor, last_patch in LAST_PATCHES.items() for patch in range(last_patch + 1)
)
"""Every release, oldest first."""


def release_before(version: Version) -> Version:
    """The last release before the one that changed something."""
    return RELEASES[RELEASES.index(version) - 1]


def release_of(version: Version) -> Version:
    """The release that a version names; of ``5.3``, any patch, the last one."""
    return next(release for release in reversed(RELEASES) if release <= version)


@dataclass(frozen=True)
class Releases:
    """Releases that may have written a store, oldest first, and the evidence that ruled out the others.

    With `--broker-version` there is only that one, and `is_named` is true.
    """

    fitting: tuple[Version, ...] = RELEASES
    evidence: tuple[str, ...] = ()
    is_named: bool = False

    @classmethod
    def named(cls, version: Version) -> Releases:
        """The one release that `--broker-version` names."""
        return cls((version,), is_named=True)

    @property
    def oldest(self) -> Version:
        """The oldest release that fits."""
        return self.fitting[0]

    @property
    def newest(self) -> Version:
        """The newest release that fits."""
        return self.fitting[-1]

    def narrow(
        self,
        evidence: str,
        *,
        since: Version | None = None,
        before: Version | None = None,
        other_than: Version | None = None,
    ) -> Releases:
        """Only the releases from `since` on, older than `before` and `other_than` one.

        Evidence that no release fits changes nothing.
        """
        if self.is_named:
            return self
        kept = tuple(
            release
            for release in self.fitting
            if (since is None or release >= since) and (before is None or release < before) and release != other_than
        )
        if not kept or kept == self.fitting:
            return self
        return replace(self, fitting=kept, evidence=(*self.evidence, evidence))

    def where(self, rule: Callable[[Version], bool]) -> tuple[Version, ...]:
        """The fitting releases that have a rule."""
        return tuple(filter(rule, self.fitting))

    def __str__(self) -> str:
        """``5.3.3``, ``4.9.3 to 5.3.4``, or ``5.4.0 or 5.5.1``."""
        if len(self.fitting) == 1:
            return str(self.oldest)
        are_apart = len(self.fitting) == 2 and release_before(self.newest) != self.oldest
        return f"{self.oldest} {'or' if are_apart else 'to'} {self.newest}"


ANY_RELEASE = Releases()
"""Every release: nothing in the store narrows them yet."""
