"""Rebuilt queues and indexes against those that real brokers derive from the same random logs.

``python -m tests.real_broker.rebuilds [--count N] [--seed S] [VERSION ...]`` compares many and reports each difference.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from rmqtool.rebuild.apply import write_output
from rmqtool.rebuild.options import Part, RebuildOptions
from rmqtool.rebuild.source import open_source
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.versions import parse_version
from rmqtool.store.store import open_store
from tests.real_broker.harness import GEOMETRY, VERSIONS, Harness
from tests.rebuild.random_logs import RandomLog

BATCH = 40  # stores that one Java process opens
_PARTS: frozenset[Part] = frozenset(["queues", "index"])
_QUEUES = ("consumequeue", "batchconsumequeue")


def compare(version: str, seeds: Sequence[int], scratch: Path) -> Iterator[tuple[int, list[str]]]:
    """For each seed the files that differ between what we derive and what the broker does."""
    ours, roots = [], []
    for seed in seeds:
        root = RandomLog(version, seed).write(scratch / f"store-{seed}")
        ours.append(derive(version, root, scratch / f"ours-{seed}"))
        if version != "4.9.7":  # that one derives all at a clean start, and hashes for times in a recovery
            (root / "abort").touch()
        roots.append(root)
    answers = Harness(version).judge(roots)
    for seed, root, mine, answer in zip(seeds, roots, ours, answers, strict=True):
        theirs = contents(root)
        phantoms = {name for name in theirs.keys() - mine.keys() if not any(theirs[name])}
        # A file that a broker makes for a unit which it then drops as repeated: 5.0 to 5.4 do not start on it.
        refused = [f"refuses: {answer['refuses']}"] if answer["refuses"] and not phantoms else []
        yield seed, [*refused, *differences(mine, {name: theirs[name] for name in theirs.keys() - phantoms})]


def derive(version: str, root: Path, into: Path) -> dict[str, bytes]:
    """What a rebuild writes for a store without any queue."""
    options = RebuildOptions(_PARTS, version=parse_version(version), order="broker")
    write_output(open_source(open_store(root, BrokerConf(GEOMETRY)), options), into)
    return contents(into)


def contents(root: Path) -> dict[str, bytes]:
    """The bytes of queue files by path, and of index files by their place in the order of names."""
    queues = (path for name in _QUEUES for path in (root / name).rglob("*") if path.is_file())
    found = {str(path.relative_to(root)): path.read_bytes() for path in queues}
    index = sorted((root / "index").iterdir()) if (root / "index").is_dir() else []
    return {**found, **{f"index {number}": path.read_bytes() for number, path in enumerate(index)}}


def differences(ours: dict[str, bytes], theirs: dict[str, bytes]) -> list[str]:
    """What is only here, only there, or different."""
    return [
        f"{name}: {'only ours' if name not in theirs else 'only the broker' if name not in ours else 'other bytes'}"
        for name in sorted({*ours, *theirs})
        if ours.get(name) != theirs.get(name)
    ]


def main(arguments: Sequence[str]) -> int:
    """Compare many, and print what differs and the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("versions", nargs="*", default=VERSIONS)
    parser.add_argument("--count", type=int, default=200, help="stores, over all versions")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    options = parser.parse_args(arguments)
    failed = 0
    for number, version in enumerate(options.versions):
        seeds = range(options.seed, options.seed + options.count)[number :: len(options.versions)]
        wrong = 0
        for first in range(0, len(seeds), BATCH):
            with TemporaryDirectory(prefix="rmqtool-rebuilds-") as scratch:
                for seed, found in compare(version, seeds[first : first + BATCH], Path(scratch)):
                    wrong += bool(found)
                    for line in found[:5]:
                        print(f"{version} {seed}: {line}", flush=True)
        failed += wrong
        print(f"{version}: {len(seeds) - wrong} of {len(seeds)} stores are those of the broker", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
