"""Write the table of the settings of broker.conf by release, from RocketMQ's own classes.

``python -m tests.real_broker.settings``. A release's jar that Maven Central does not have is stood in for by the
releases around it: it knows what either of them knows.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from rmqtool.rules.broker_conf import BY_MACHINE, TABLE
from rmqtool.rules.versions import RELEASES, Version, parse_version
from tests.real_broker.classes import class_path
from tests.real_broker.tools import cache, cached, tool
from tests.real_broker.versions import VERSIONS

_SOURCE = Path(__file__).parent / "java" / "settings" / "Settings.java"
_CLASSES = {
    "org.apache.rocketmq.common.BrokerConfig": "common",
    "org.apache.rocketmq.store.config.MessageStoreConfig": "store",
    "org.apache.rocketmq.remoting.netty.NettyServerConfig": "remoting",
    "org.apache.rocketmq.remoting.netty.NettyClientConfig": "remoting",
    "org.apache.rocketmq.auth.config.AuthConfig": "auth",
    "org.apache.rocketmq.tieredstore.common.TieredMessageStoreConfig": "tiered-store",
    "org.apache.rocketmq.tieredstore.MessageStoreConfig": "tiered-store",
}
"""The classes that `BrokerStartup`, and the plug-in of the tiered store, fill from broker.conf, and their modules."""

_SINCE = {"auth": Version(5, 3, 0), "tiered-store": Version(5, 1, 0)}
_UNPUBLISHED = {
    Version(4, 9, 6): {"common", "store", "remoting"},
    Version(5, 1, 2): {"common", "store", "remoting", "tiered-store"},
    Version(5, 3, 4): {"common", "remoting", "auth", "tiered-store"},
}
_MACHINES = (("8", "/home/one"), ("3", "/home/two"))  # processors and home: what differs between them is no default
_POM = """\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>rmqtool</groupId><artifactId>settings</artifactId><version>1</version><packaging>pom</packaging>
  <build><plugins><plugin>
    <groupId>org.apache.maven.plugins</groupId><artifactId>maven-dependency-plugin</artifactId>
    <configuration><outputDirectory>{into}</outputDirectory><artifactItems>{items}</artifactItems></configuration>
  </plugin></plugins></build>
</project>
"""
_ITEM = "<artifactItem><groupId>org.apache.rocketmq</groupId><artifactId>rocketmq-{}</artifactId><version>{}</version></artifactItem>"  # noqa: E501

NAMED = {**dict.fromkeys(("brokerName", "brokerIP1", "brokerIP2"), BY_MACHINE), "listenPort": "10911"}
"""Defaults that the classes do not say: those of this machine, and the port that `BrokerStartup` sets."""

Defaults = dict[str, str]
"""The settings of one class in one release, each with its default."""


def modules(release: Version) -> set[str]:
    """The modules whose jars of a release can be had."""
    there = {module for module in _CLASSES.values() if release >= _SINCE.get(module, release)}
    return there - _UNPUBLISHED.get(release, set())


def settings(release: Version) -> dict[str, Defaults]:
    """The settings of a release by class, of the classes whose jars can be had."""
    one, other = (_ask(release, *machine) for machine in _MACHINES)
    return {
        name: {key: value if value == other[name][key] else BY_MACHINE for key, value in defaults.items()}
        for name, defaults in one.items()
    }


def _ask(release: Version, processors: str, home: str) -> dict[str, Defaults]:
    found: dict[str, Defaults] = {}
    with TemporaryDirectory(prefix="rmqtool-settings-") as scratch:
        answer = Path(scratch, "answer")
        options = [f"-XX:ActiveProcessorCount={processors}", f"-Duser.home={home}", "-cp", _class_path(release)]
        command = [tool("java"), *options, str(_SOURCE), str(answer), *_CLASSES]
        subprocess.run(command, check=True, capture_output=True, cwd=scratch, timeout=120)
        for line in answer.read_text("utf-8").splitlines():
            name, jar, key, value = line.split("\t")
            if jar.endswith(f"-{release}.jar") or str(release) in VERSIONS:  # these have their own, or a stand-in
                found.setdefault(name, {})[key] = value
    return found


def _class_path(release: Version) -> str:
    """The release's jars of its settings, then all of the tested releases after and before it, for the libraries."""
    if str(release) in VERSIONS:
        return class_path(str(release))
    own = cached(cache() / str(release) / "jars-settings", lambda into: _fetch(release, into))
    before = [version for version in VERSIONS if parse_version(version) < release][-1]
    behind = next((version for version in VERSIONS if parse_version(version) > release), before)
    return f"{own}/*:{class_path(behind)}:{class_path(before)}"


def _fetch(release: Version, into: Path) -> None:
    items = "".join(_ITEM.format(module, release) for module in sorted(modules(release)))
    pom = into.parent / "pom.xml"
    pom.write_text(_POM.format(into=into, items=items), encoding="utf-8")
    subprocess.run([tool("mvn"), "-B", "-q", "-f", str(pom), "dependency:copy"], check=True, timeout=600)


def by_release() -> list[Defaults]:
    """The settings of every release; of equal names in two classes the first class's default counts."""
    asked = [settings(release) if modules(release) else {} for release in RELEASES]
    merged = []
    for number, release in enumerate(RELEASES):
        everything: Defaults = {}
        for name, module in _CLASSES.items():
            around = [number] if module in modules(release) else _around(number, module)
            for at in around:
                everything = {**asked[at].get(name, {}), **everything}
        merged.append({name: NAMED.get(name, value) for name, value in everything.items()})
    return merged


def _around(number: int, module: str) -> list[int]:
    """The releases before and after one whose jar of a module is missing; none where it had no such module."""
    if RELEASES[number] < _SINCE.get(module, RELEASES[number]):
        return []
    before = [at for at in range(number) if module in modules(RELEASES[at])][-1:]
    behind = [at for at in range(number + 1, len(RELEASES)) if module in modules(RELEASES[at])][:1]
    return [*before, *behind]


def table() -> Iterator[str]:
    """A line for each setting: its name, and each release from which on it has another default, or none any more."""
    defaults = by_release()
    for name in sorted({name for of_release in defaults for name in of_release}):
        changes, last = [], None
        for release, of_release in zip(RELEASES, defaults, strict=True):
            value = of_release.get(name)
            if value != last:
                changes.append(f"{release}" if value is None else f"{release}={value}")
            last = value
        yield "\t".join([name, *changes])


def main() -> int:
    """Write the table."""
    lines = list(table())
    TABLE.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    print(f"{len(lines)} settings of {len(RELEASES)} releases: {TABLE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
