"""The stores that `tests.real_broker.losses` takes from: of whole brokers, each with an older copy, and golden ones.

``python -m tests.real_broker.loss_stores`` writes those of tests/verify/loss_stores again; what was recorded of the
present ones holds no longer then.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.copies import copied
from tests.golden import stores
from tests.real_broker.classes import class_path
from tests.real_broker.harness import Harness
from tests.real_broker.tools import cache
from tests.real_broker.versions import VERSIONS, features
from tests.verify import losses_recorded as recorded
from tests.verify.losses_facts import keys_of

GOLDEN = ("clean", "trimmed", "killed")


@dataclass(frozen=True)
class Source:
    """An undamaged store, what of it is asked for, and the settings of its broker."""

    name: str
    store: Path
    older: Path | None
    keys: tuple[str, ...]
    settings: Mapping[str, str] = field(default_factory=dict)


def fresh(version: str, scratch: Path) -> list[Source]:
    """Stores that a whole broker wrote on this machine, with and without light queues, and golden ones."""
    kinds = (False, True) if "lmq" in features(version) else (False,)
    return [*(_shop(version, plain) for plain in kinds), *golden(version, scratch)]


def golden(version: str, scratch: Path) -> list[Source]:
    """The golden stores of a release, unpacked into `scratch`; a release that is not under test has none."""
    found = []
    for scenario in GOLDEN if version in VERSIONS else ():
        name = f"{version}-{scenario}"
        keys = tuple(sorted(set(keys_of(stores.oracle(name)["records"]))))
        found.append(Source(name, stores.unpack(name, scratch), None, keys))
    return found


def committed(version: str, scratch: Path) -> Source:
    """The store that the tests without Java use."""
    store, older = recorded.unpack(version, scratch)
    return Source(f"{version}-recorded", store, older, _keys(Harness(version), store), recorded.STORES[version])


def write_pair(harness: Harness, into: Path, settings: Mapping[str, str]) -> None:
    """Below `into`: `older`, the store of a whole broker after a clean stop, and `store`, after it has gone on."""
    store = into / "store"
    store.mkdir()
    harness.write_shop(store, dict(settings))
    copied(store, into / "older")
    harness.write_shop(store, dict(settings))


def _shop(version: str, plain: bool) -> Source:
    """The store of a whole broker; written once for this machine."""
    harness, settings = Harness(version), recorded.PLAIN if plain else {}
    name = f"{version}-{'plain-' if plain else ''}shop"
    pair = cache() / version / f"pair-{name}"
    if not pair.is_dir():
        # Not under the lock of the cache: that takes minutes, and others wait for it to compile.
        with TemporaryDirectory(dir=cache(), prefix="new-") as scratch:
            written = Path(scratch, "pair")
            written.mkdir()
            write_pair(harness, written, settings)
            with suppress(OSError):  # another process was faster
                written.rename(pair)
    return Source(name, pair / "store", pair / "older", _keys(harness, pair / "store"), settings)


def _keys(harness: Harness, store: Path) -> tuple[str, ...]:
    """The keys in a log, as its release reads them; it is asked once on this machine."""
    digest = hashlib.sha256(class_path(harness.version).encode())
    for file in sorted((store / "commitlog").iterdir()):
        digest.update(file.read_bytes())
    kept = cache() / harness.version / f"keys-{digest.hexdigest()[:16]}.json"
    if not kept.exists():
        new = kept.with_suffix(f".{os.getpid()}")
        new.write_text(json.dumps(sorted(set(keys_of(harness.oracle(store)["records"])))), encoding="utf-8")
        new.replace(kept)
    return tuple(json.loads(kept.read_text(encoding="utf-8")))


def main() -> None:
    """Write the committed pairs."""
    for version, settings in recorded.STORES.items():
        with TemporaryDirectory(prefix="rmqtool-losses-") as scratch:
            write_pair(Harness(version), Path(scratch), settings)
            recorded.pack(version, Path(scratch))


if __name__ == "__main__":
    main()
