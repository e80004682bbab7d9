"""What is built and installed: checkout, sdist and wheel hold the same modules, and the wheel works on its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from email.parser import HeaderParser
from pathlib import Path, PurePosixPath

import pytest

from tests.rooms import imports_of, modules_under
from tests.spark.sessions import require_spark

ROOT = Path(__file__).resolve().parent.parent
STORE = ROOT / "examples" / "store"
BUILT = [
    *("CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "MANIFEST.in", "PACKAGE.md", "README.md", "docs", "examples"),
    *("formats", "pyproject.toml", "rmqtool", "tests"),
]
OPTIONAL = {"deltalake", "duckdb", "fsspec", "hdfs_native", "pyiceberg", "pyspark", "py4j", "rocksdict"}  # extras ...
OPTIONAL |= {
    "polars",
    "rmqtool",
    "typing_extensions",
}  # ... what who asks has, ourselves, and what type checkers ask for
MESSAGES = 181
"""That consumers of the example store could see."""

DATA = {"rmqtool/py.typed", "rmqtool/rules/broker_settings.tsv", "rmqtool/show/report.css"}
FOR_SPARK = "rmqtool/spark/pyspark_rocketmq/"  # where it stands in the checkout; installed at the top level

PIP = ("--quiet", "--disable-pip-version-check")

INSTALLED = {
    "share/man/man1": "docs/man/*.1",
    "share/bash-completion/completions": "docs/completions/rmqtool",
    "share/zsh/site-functions": "docs/completions/_rmqtool",
    "share/fish/vendor_completions.d": "docs/completions/rmqtool.fish",
    "share/rmqtool/schema": "docs/schema/*.json",
}
"""Where `man`, the shells and programs look in a prefix, and what is put there."""

pytestmark = pytest.mark.slow


READ_WITH_SPARK = """
import sys
from importlib.util import find_spec
from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.extraJavaOptions", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
session = builder.config("spark.driver.memory", "640m").getOrCreate()
print(find_spec("rmqtool").origin)
print(session.read.format("rocketmq").load(sys.argv[1]).count())
session.stop()
"""


def run(*command: str | Path, cwd: Path, **variables: str) -> str:
    """Run a program away from the checkout; its standard output. A failure shows both streams."""
    environment = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "PYTHONHOME"}}
    environment.update(variables)
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the sdist and the wheel that was built from it, of a copy of the checkout."""
    copy = tmp_path_factory.mktemp("checkout")
    leave_out = shutil.ignore_patterns("__pycache__", "golden")
    for name in BUILT:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=leave_out)
        else:
            shutil.copy(ROOT / name, copy / name)
    (copy / "tests" / "golden").mkdir()
    shutil.copy(ROOT / "tests" / "golden" / "README.md", copy / "tests" / "golden")
    run(sys.executable, "-m", "build", "--no-isolation", cwd=copy)
    return copy / "dist"


@pytest.fixture(scope="module")
def sdist(built: Path) -> dict[str, tarfile.TarInfo]:
    """The members of the sdist, by path below its top folder."""
    [path] = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        return {member.name.partition("/")[2]: member for member in archive.getmembers()}


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    """The wheel."""
    [path] = built.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def wheel_names(wheel: Path) -> list[str]:
    """The paths in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


@pytest.fixture(scope="module")
def wheelhouse(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that is carried to a machine without a network: the wheel and what it depends on."""
    folder = tmp_path_factory.mktemp("wheelhouse")
    run(sys.executable, "-m", "pip", "download", *PIP, "--dest", folder, wheel, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def installed(wheelhouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of a fresh environment that holds what is in the wheelhouse, nothing else."""
    home = tmp_path_factory.mktemp("installed")
    venv.create(home, symlinks=True)
    programs = home / "bin"
    source = ("--no-compile", "--no-index", "--find-links", wheelhouse)
    python = ("--python", programs / "python")
    run(sys.executable, "-m", "pip", *python, "install", *PIP, *source, "--pre", "rmqtool", cwd=home)
    return programs


def checkout_modules() -> set[str]:
    """The paths of the modules in the checkout."""
    modules = modules_under(ROOT).values()
    return {f"{module.name.replace('.', '/')}{'/__init__' if module.is_package else ''}.py" for module in modules}


def installed_modules() -> set[str]:
    """The paths of the modules, as they are installed."""
    return {path.replace(FOR_SPARK, "pyspark_rocketmq/") for path in checkout_modules()}


def test_the_wheel_holds_the_modules_of_the_checkout_and_nothing_else(wheel_names: list[str]) -> None:
    ours = {name for name in wheel_names if ".dist-info/" not in name and ".data/" not in name}
    assert ours == installed_modules() | DATA


@pytest.mark.parametrize("folder", INSTALLED)
def test_what_is_installed_beside_the_package(installed: Path, folder: str) -> None:
    there = {path.name: path.read_bytes() for path in (installed.parent / folder).iterdir()}
    assert there == {path.name: path.read_bytes() for path in ROOT.glob(INSTALLED[folder])}


@pytest.mark.rare
def test_one_file_that_runs(wheelhouse: Path, tmp_path: Path) -> None:
    """As the README makes it, but not compressed, which takes half a minute; its processes find the package too."""
    source = ("--no-compile", "--no-index", "--find-links", wheelhouse, "--pre", "rmqtool")
    command = (sys.executable, "-m", "shiv", "--uncompressed", "-c", "rmqtool", "-o", "rmqtool.pyz")
    run(*command, *source, cwd=tmp_path)
    told = run(
        sys.executable, tmp_path / "rmqtool.pyz", "verify", STORE, "-j", "2", cwd=tmp_path, SHIV_ROOT=str(tmp_path)
    )
    assert "verdict  clean" in told


def test_the_sdist_holds_the_modules_of_the_checkout_once(sdist: dict[str, tarfile.TarInfo]) -> None:
    modules = [
        re.sub("^formats/", "rmqtool/formats/", name)
        for name in sdist
        if name.endswith(".py") and not name.startswith("examples/")
    ]
    assert sorted(modules) == sorted(checkout_modules())


def test_the_symlink_of_the_checkout_is_in_neither(sdist: dict[str, tarfile.TarInfo], wheel_names: list[str]) -> None:
    assert (ROOT / "rmqtool" / "formats").is_symlink()
    assert [name for name, member in sdist.items() if not (member.isfile() or member.isdir())] == []
    assert not {"rmqtool/formats", "formats"} & set(wheel_names)
    assert "rmqtool/formats" not in sdist


def test_the_wheel_and_the_sdist_carry_the_license(sdist: dict[str, tarfile.TarInfo], wheel_names: list[str]) -> None:
    assert "LICENSE" in sdist
    assert [name for name in wheel_names if PurePosixPath(name).name == "LICENSE"] != []


def test_the_wheel_requires_what_its_modules_import(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        [path] = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = HeaderParser().parsestr(archive.read(path).decode())
    required = [text for text in metadata.get_all("Requires-Dist", []) if "extra ==" not in text]
    imported = {name.partition(".")[0] for module in modules_under(ROOT).values() for name in imports_of(module)}
    needed = {re.split(r"[^\w-]", text)[0].replace("-", "_") for text in required}
    assert needed == imported - sys.stdlib_module_names - OPTIONAL
    assert [text for text in required if not (">=" in text and "<" in text)] == []


def test_a_container_is_built_from_all_that_the_package_is_made_of() -> None:
    """What a wheel needs of the checkout is not ignored."""
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    places = {
        "pyproject.toml",
        "MANIFEST.in",
        *re.findall(r'^(?:readme|license-files) = \[?"([^"]+)"', project, re.MULTILINE),
    }
    places |= {
        line.split("/")[0]
        for line in re.findall(r'^"(?:share/[^"]+|rmqtool\.\w+)" = \[?"([^"*]+)', project, re.MULTILINE)
    }
    places |= {"rmqtool"}
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert places - {line.removeprefix("!") for line in ignored if line.startswith("!")} == set()
    assert {"PACKAGE.md", "LICENSE", "docs", "formats"} <= places


def test_all_supported_pythons_are_tested() -> None:
    """The classifiers, the public CI and the container name the same releases."""
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    supported = re.findall(r"Python :: (3\.\d+)", project)
    ci = (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")
    [matrix] = re.findall(r"python: \[(.*)\]", ci)
    assert re.findall(r"3\.\d+", matrix) == supported
    bases = re.findall(r"python:(3\.\d+)-slim", (ROOT / "examples/Containerfile").read_text(encoding="utf-8"))
    assert bases == [bases[0]] * 2
    assert bases[0] in supported


def test_links_lead_somewhere(wheel: Path, sdist: dict[str, tarfile.TarInfo]) -> None:
    """Those of the README into the sdist; what an index shows of the wheel has none that need files beside it."""
    links = set(re.findall(r"\]\(([^)#]+)[^)]*\)", (ROOT / "README.md").read_text(encoding="utf-8")))
    assert {link for link in links if not link.startswith("https://")} - sdist.keys() == set()
    with zipfile.ZipFile(wheel) as archive:
        [path] = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        shown = archive.read(path).decode()
    assert "rmqtool works on the store directory" in shown
    assert [link for link in re.findall(r"\]\(([^)]+)\)", shown) if not link.startswith("https://")] == []


def test_the_installed_package_comes_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    code = (
        "import importlib.util as u, rmqtool.formats.message as m;"
        "print(m.__file__);"
        "print(*filter(u.find_spec, ['formats', 'tests', 'pytest', 'pyspark']));"
        "print(u.find_spec('pyspark_rocketmq').origin)"
    )
    where, unwanted, for_spark = run(installed / "python", "-c", code, cwd=tmp_path).splitlines()
    assert Path(where).is_relative_to(installed.parent)
    assert Path(for_spark).is_relative_to(installed.parent)
    assert unwanted == ""


def test_the_installed_program_says_its_version(installed: Path, wheel: Path, tmp_path: Path) -> None:
    version = wheel.name.split("-")[1]
    assert version in run(installed / "rmqtool", "--version", cwd=tmp_path)


def test_the_installed_program_helps(installed: Path, tmp_path: Path) -> None:
    assert "inspect" in run(installed / "rmqtool", "--help", cwd=tmp_path)


def test_the_installed_program_exports_the_example_store(installed: Path, tmp_path: Path) -> None:
    """Without pyspark and without Java."""
    run(installed / "rmqtool", "export", STORE, "--output", "out", "--engine", "local", cwd=tmp_path)
    assert "matches the log" in run(installed / "rmqtool", "export", STORE, "--check", "out", cwd=tmp_path)


def test_the_installed_program_inspects_the_example_store(installed: Path, tmp_path: Path) -> None:
    for place in (STORE, STORE / "commitlog"):
        assert run(installed / "rmqtool", "inspect", place, cwd=tmp_path).strip() != ""


@pytest.mark.rare
@pytest.mark.spark
def test_spark_finds_what_is_installed(wheel: Path, tmp_path: Path) -> None:
    """The format is there where the wheel is, without being registered; what both depend on comes from here."""
    require_spark()
    home = tmp_path / "environment"
    venv.create(home, symlinks=True)
    [site] = home.glob("lib/python*/site-packages")
    options = ("--quiet", "--disable-pip-version-check", "--no-compile", "--no-deps", "--target", site)
    run(sys.executable, "-m", "pip", "install", *options, wheel, cwd=tmp_path)
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    path = os.pathsep.join([str(home / "bin"), os.environ["PATH"]])
    told = run(
        home / "bin" / "python", "-c", READ_WITH_SPARK, STORE, cwd=tmp_path, PATH=path, SPARK_LOCAL_IP="127.0.0.1"
    )
    origin, count = told.splitlines()
    assert origin == str(site / "rmqtool" / "__init__.py")
    assert int(count) == MESSAGES
