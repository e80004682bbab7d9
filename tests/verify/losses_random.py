"""One to four random losses of a store, the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Container, Sequence
from pathlib import Path

from tests.copies import copied
from tests.verify.losses import Loss, Scene
from tests.verify.losses_together import NO_WITNESS, UNSEEN_TOGETHER, all_losses

_MOST = 4


def apply(losses: Sequence[Loss], store: Path, older: Path | None, root: Path, chance: random.Random) -> list[str]:
    """Make `root` a copy of `store` that has lost so; the names of the losses that there was something for."""
    copied(store, root)
    scene = Scene(root, older, chance)
    return [loss.name for loss in losses if loss.apply(scene)]


def apply_some(
    store: Path, older: Path | None, root: Path, chance: random.Random, without: Container[str] = NO_WITNESS
) -> list[str]:
    """The same with one to four losses by chance, but for those `without`."""
    copied(store, root)
    scene = Scene(root, older, chance)
    known = [loss for loss in all_losses() if loss.name not in without]
    names: list[str] = []
    wanted = chance.randint(1, _MOST)
    while len(names) < wanted:
        loss = chance.choice(known)
        if any(together <= {*names, loss.name} for together in UNSEEN_TOGETHER):
            continue
        if loss.apply(scene):
            names.append(loss.name)
    return names
