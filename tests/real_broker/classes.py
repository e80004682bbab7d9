"""Jars of a release, fetched by Maven, and the harness compiled against them."""

import hashlib
import subprocess
import zipfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.real_broker.tools import HarnessError, HarnessUnavailable, cache, cached, tool
from tests.real_broker.versions import family

_SOURCES = Path(__file__).parent / "java"
_TIMEOUT_S = 180
_TRIES = 3  # of a download
_NETWORK = ("-Dmaven.wagon.rto=30000", "-Daether.connector.requestTimeout=30000")  # ms without a byte
_POM = """\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>rmqtool</groupId><artifactId>harness</artifactId><version>1</version><packaging>pom</packaging>
  <dependencyManagement><dependencies>{managed}</dependencies></dependencyManagement>
  <dependencies>{dependencies}</dependencies>
</project>
"""
_DEPENDENCY = """
    <dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>
"""

_GROUP = "org.apache.rocketmq"
_STAND_INS = {"5.5.1": ("5.5.0", ("auth", "client", "controller", "filter", "namesrv", "srvutil", "tools"))}
"""Modules of a release that Maven Central does not have, and the release whose modules stand in for them."""
_JSON = {"5.5.1": "com.alibaba:fastjson:1.2.83"}
"""The harness's own library of JSON, which earlier releases bring."""


def class_path(version: str, whole: bool = False, tiered: bool = False) -> str:
    """Class path of the harness and of the broker of `version`, fetched and compiled when not in the cache.

    A `whole` broker has a name server and clients beside it; `tiered` are the classes that keep a tier.
    """
    folders = ["common", family(version), *(["tiered"] if tiered else [])]
    if whole:
        folders += ["whole", f"whole-{family(version)}"]
    jars = f"{cached(cache() / version / 'all-jars', lambda into: _fetch(version, into))}/*"
    sources = sorted(source for folder in folders for source in (_SOURCES / folder).glob("*.java"))
    harness = cached(cache() / version / f"harness-{_digest(sources)}", lambda into: _compile(sources, jars, into))
    return f"{harness}/*:{jars}"


def _fetch(version: str, into: Path) -> None:
    """The broker and the name server at once: each run of Maven takes its seconds."""
    stand_in, missing = _STAND_INS.get(version, (version, ()))
    managed = [f"{_GROUP}:rocketmq-{name}:{stand_in}" for name in missing]
    modules = {module: stand_in if module in missing else version for module in ("broker", "namesrv")}
    wanted = [f"{_GROUP}:rocketmq-{module}:{release}" for module, release in modules.items()]
    libraries = [_JSON[version]] if version in _JSON else []
    fetch_jars([*wanted, *libraries], into, managed=managed)


def fetch_jars(artifacts: Sequence[str], into: Path, *options: str, managed: Sequence[str] = ()) -> None:
    """Copy GROUP:NAME:VERSION, with all that they need, into a directory; HarnessUnavailable where they are not had.

    What they need is taken in the version of `managed`, where it is named there.
    """
    pom = into.parent / "pom.xml"
    written = {"managed": _dependencies(managed), "dependencies": _dependencies(artifacts)}
    pom.write_text(_POM.format(**written), encoding="utf-8")
    goal = ["dependency:copy-dependencies", f"-DoutputDirectory={into}", *options]
    command = [tool("mvn"), "-B", "-q", *_NETWORK, "-f", str(pom), *goal]
    for _ in range(_TRIES - 1):
        with suppress(HarnessError):
            _run(command)
            return
    try:
        _run(command)
    except HarnessError as error:
        raise HarnessUnavailable(f"{', '.join(artifacts)} cannot be fetched: {error}") from error


def _dependencies(artifacts: Sequence[str]) -> str:
    return "".join(_DEPENDENCY.format(*artifact.split(":")) for artifact in artifacts)


def _compile(sources: list[Path], jars: str, into: Path) -> None:
    """To one jar: a JVM shares no classes of directories."""
    with TemporaryDirectory() as scratch, zipfile.ZipFile(into / "harness.jar", "w") as jar:
        options = ["-encoding", "UTF-8", "-proc:none", "-nowarn", "-d", scratch, "-cp", jars]
        _run([tool("javac"), *options, *map(str, sources)])
        for compiled in sorted(Path(scratch).rglob("*.class")):
            jar.write(compiled, compiled.relative_to(scratch))


def _digest(sources: list[Path]) -> str:
    digest = hashlib.sha256()
    for source in sources:
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()[:16]


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise HarnessError(f"{command[0]} has not ended after {_TIMEOUT_S} s") from None
    if done.returncode != 0:
        raise HarnessError(f"{command[0]} failed with {done.returncode}:\n{done.stdout[-4000:]}")
