"""Two stores of whole brokers, each with an older copy, and what their brokers lost with every loss: recorded once.

``python -m tests.real_broker.losses --matrix --record`` writes the record.
"""

from __future__ import annotations

import json
import lzma
import random
from collections.abc import Mapping
from pathlib import Path

from tests.golden import stores
from tests.verify.losses_random import apply, apply_some
from tests.verify.losses_together import all_losses

HERE = Path(__file__).parent / "loss_stores"
FILE = HERE / "lost.json.xz"
PLAIN = {"enableLmq": "false", "enableMultiDispatch": "false"}
"""A broker's defaults: committed offsets are in consumerOffset.json then, not in lmqConsumerOffset.json."""

STORES: Mapping[str, Mapping[str, str]] = {"4.9.7": {}, "5.3.3": PLAIN}
"""By release: the settings of the broker that wrote the store."""

RANDOM = "random "
RANDOM_ROWS = tuple(f"{RANDOM}{seed}" for seed in range(40))

Lost = dict[str, dict[str, dict[str, str]]]
"""By store and row: what the broker's users have lost, by area; empty when they have all that they had."""


def rows() -> list[str]:
    """The names of all rows: each loss of the matrix, and some random ones."""
    return [*(loss.name for loss in all_losses()), *RANDOM_ROWS]


def unpack(name: str, into: Path) -> tuple[Path, Path]:
    """A store and its older copy."""
    stores.unpack_archive(HERE / f"{name}.tar.xz", into)
    return into / "store", into / "older"


def pack(name: str, pair: Path) -> None:
    """Make `pair`, a directory with ``store`` and ``older``, the stores of a release."""
    with lzma.open(HERE / f"{name}.tar.xz", "wb", preset=9 | lzma.PRESET_EXTREME) as file:
        stores.pack(pair, file)


def make(row: str, store: Path, older: Path | None, root: Path) -> list[str]:
    """Make `root` the store of a row; the losses that it had, none where there was nothing to lose."""
    chance = random.Random(row)
    if row.startswith(RANDOM):
        return apply_some(store, older, root, chance)
    return apply([loss for loss in all_losses() if loss.name == row], store, older, root, chance)


def load() -> Lost:
    """Everything that was recorded."""
    lost: Lost = json.loads(lzma.decompress(FILE.read_bytes()))
    return lost


def update(lost: Lost, whole: bool) -> None:
    """Replace what is known of these stores, or only of these rows."""
    before = load() if FILE.exists() else {}
    _save({**before, **{store: rows if whole else {**before[store], **rows} for store, rows in lost.items()}})


def _save(lost: Lost) -> None:
    """Replace everything."""
    text = json.dumps(lost, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    FILE.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
