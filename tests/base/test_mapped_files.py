"""Directories of mapped files."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from rmqtool.base.errors import UnreadableError
from rmqtool.base.files import InputFile
from rmqtool.base.mapped_files import MappedFile, MappedFiles, file_at, list_mapped_files
from rmqtool.formats.file_name import MAX_OFFSET, file_name
from tests.building import write_sparse
from tests.unchanged import unchanged


def write(directory: Path, *sizes: int, step: int = 100) -> Path:
    """Write files of `sizes` bytes whose names are `step` apart."""
    directory.mkdir(parents=True, exist_ok=True)
    for number, size in enumerate(sizes):
        (directory / file_name(number * step)).write_bytes(bytes(size))
    return directory


def kinds(listed: MappedFiles) -> dict[str, str]:
    return {stray.path.name: stray.kind for stray in listed.strays}


def test_files_are_in_offset_order(tmp_path: Path) -> None:
    """Each file is listed once, with its name's offset and its size, the lowest offset first."""
    for offset in (300, 0, MAX_OFFSET, 20):
        (tmp_path / file_name(offset)).write_bytes(bytes(offset % 7))
    with unchanged(tmp_path):
        listed = list_mapped_files(tmp_path)
    assert [(file.start_offset, file.size) for file in listed.files] == [(0, 0), (20, 6), (300, 6), (MAX_OFFSET, 0)]
    assert [file.path for file in listed.files] == sorted(tmp_path.iterdir())
    assert listed.size == 12
    assert listed.strays == ()


def test_the_end_of_a_file_is_its_start_and_size() -> None:
    """`end_offset` is exclusive."""
    assert MappedFile(Path("0"), 4096, 100).end_offset == 4196


def test_no_file_ends_behind_the_last_offset() -> None:
    """A name may tell the last one: what is behind it is no 64-bit number."""
    assert MappedFile(Path("0"), MAX_OFFSET - 99, 100).end_offset == MAX_OFFSET


@pytest.mark.parametrize(
    "name",
    [
        "0000000000000000000",
        "000000000000000000000",
        "0000000000000000000x",
        "-0000000000000000001",
        "00000000000000000000.bak",
        "\N{ARABIC-INDIC DIGIT ZERO}" * 20,
        f"{MAX_OFFSET + 1:020d}",
        "99999999999999999999",
    ],
)
def test_other_names_are_strays(tmp_path: Path, name: str) -> None:
    """A name that is not 20 ASCII digits of a 64-bit number is none of a mapped file."""
    (tmp_path / name).write_bytes(b"x")
    listed = list_mapped_files(tmp_path)
    assert kinds(listed) == {name: "name"}
    assert not listed.files


def test_directories_and_special_files_are_strays(tmp_path: Path) -> None:
    """What is no regular file is told apart, and no named pipe makes the listing wait."""
    names = [file_name(number) for number in range(3)]
    (tmp_path / names[0]).mkdir()
    os.mkfifo(tmp_path / names[1])
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "compacting").mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        here = Path.cwd()
        os.chdir(tmp_path)  # the path of a socket must be short
        try:
            server.bind(names[2])
        finally:
            os.chdir(here)
        listed = list_mapped_files(tmp_path)
    assert kinds(listed) == {
        names[0]: "directory",
        names[1]: "special",
        names[2]: "special",
        "compacting": "directory",
        "pipe": "name",
    }
    assert not listed.files


def test_strays_do_not_hide_files(tmp_path: Path) -> None:
    """Files are listed whatever lies beside them."""
    (write(tmp_path, 5, 5) / "notes").write_bytes(b"")
    listed = list_mapped_files(tmp_path)
    assert [file.size for file in listed.files] == [5, 5]
    assert kinds(listed) == {"notes": "name"}


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], 0),
        ([0], 0),
        ([0, 0, 0, 7], 7),
        ([5], 5),
        ([5, 5, 9], 5),
        ([9, 5, 5], 5),
        ([7, 9], 9),
        ([9, 7], 9),
        ([5, 5, 9, 9, 3], 5),
        ([7, 7, 9, 9, 3], 9),
        ([100, 104], 100),
        ([200, 100], 100),
        ([100, 90], 100),
    ],
)
def test_the_file_size_is_that_of_most_files(tmp_path: Path, sizes: list[int], expected: int) -> None:
    """Empty files have no vote; of two sizes as frequent that wins of which names are multiples, or the larger one."""
    assert list_mapped_files(write(tmp_path / "queue", *sizes)).file_size == expected


def test_several_directories_are_one_queue(tmp_path: Path) -> None:
    """Files of all directories are sorted together by their offset, wherever they lie."""
    for number, name in enumerate(("a", "b", "a", "c")):
        directory = tmp_path / name
        directory.mkdir(exist_ok=True)
        (directory / file_name(number)).write_bytes(b"x")
    (tmp_path / "b" / "stray").mkdir()
    listed = list_mapped_files(tmp_path / "c", tmp_path / "missing", tmp_path / "b", tmp_path / "a")
    assert [file.path.parent.name for file in listed.files] == ["a", "b", "a", "c"]
    assert [stray.path for stray in listed.strays] == [tmp_path / "b" / "stray"]


def test_a_missing_directory_is_empty(tmp_path: Path) -> None:
    """No directory is no file, and not an error."""
    assert list_mapped_files(tmp_path / "missing") == MappedFiles()
    assert list_mapped_files() == MappedFiles()


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    """A file where the directory should be is told with its path."""
    (tmp_path / "queue").write_bytes(b"")
    with pytest.raises(UnreadableError, match="not a directory") as caught:
        list_mapped_files(tmp_path / "queue")
    assert caught.value.file == str(tmp_path / "queue")


def test_symlinks_are_what_they_lead_to(tmp_path: Path) -> None:
    """A link to a file is a mapped file of that size, a link to a directory a stray one."""
    (tmp_path / "elsewhere").write_bytes(b"12345")
    queue = tmp_path / "queue"
    queue.mkdir()
    (queue / file_name(0)).symlink_to(tmp_path / "elsewhere")
    (queue / file_name(5)).symlink_to(tmp_path)
    listed = list_mapped_files(queue)
    assert [(file.path, file.size) for file in listed.files] == [(queue / file_name(0), 5)]
    assert kinds(listed) == {file_name(5): "directory"}
    assert list_mapped_files(link_to(queue)).files[0].size == 5


def link_to(directory: Path) -> Path:
    link = directory.with_name("link")
    link.symlink_to(directory)
    return link


@pytest.mark.parametrize("target", ["nowhere", file_name(0)])
def test_a_link_that_leads_nowhere_is_not_passed_over(tmp_path: Path, target: str) -> None:
    """A mapped file that is a dangling or circular link holds data that cannot be read, and that is said."""
    (tmp_path / file_name(0)).symlink_to(target)
    with pytest.raises(UnreadableError, match="cannot read") as caught:
        list_mapped_files(tmp_path)
    assert caught.value.file == str(tmp_path / file_name(0))


@pytest.mark.parametrize("target", ["nowhere", "old"])
def test_a_stray_link_that_leads_nowhere_is_a_stray(tmp_path: Path, target: str) -> None:
    """Where the name is none of a mapped file, nothing is missing."""
    (tmp_path / "old").symlink_to(target)
    assert kinds(list_mapped_files(tmp_path)) == {"old": "name"}


def test_a_file_that_vanishes_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A running broker deletes expired files between the listing and a closer look."""
    write(tmp_path, 5, 5)

    def list_and_delete(directory: Path) -> list[os.DirEntry[str]]:
        with os.scandir(directory) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        Path(found[0].path).unlink()
        return found

    monkeypatch.setattr("rmqtool.base.mapped_files.list_directory", list_and_delete)
    assert [file.start_offset for file in list_mapped_files(tmp_path).files] == [100]


@pytest.mark.parametrize("size", [0, 1, 100, (1 << 20) - 1, (1 << 20) + 1, 3 << 20, (5 << 20) + 7])
@pytest.mark.parametrize("places", [(0.0,), (0.5,), (1.0,), (0.1, 0.3), (0.0, 1.0), ()])
def test_the_end_of_data(tmp_path: Path, size: int, places: tuple[float, ...]) -> None:
    """The last byte that is not zero is found wherever it stands, in holes and in zeros that were written."""
    written = sorted({int(place * (size - 1)) for place in places} if size else set())
    expected = written[-1] + 1 if written else 0
    sparse = write_sparse(tmp_path / "sparse", dict.fromkeys(written, b"\1"), size)
    dense = tmp_path / "dense"
    dense.write_bytes(sparse.read_bytes())
    for path in (sparse, dense):
        with InputFile(path) as file:
            assert file.data_end() == expected


def test_a_file_holds_its_bytes_and_no_more() -> None:
    """A gap between two files is in none, and where two overlap the first one counts."""
    first, second, third = (MappedFile(Path(f"{start}"), start, 100) for start in (0, 200, 250))
    files = (first, second, third)
    held = {0: first, 99: first, 100: None, 199: None, 200: second, 299: second, 300: third, 349: third, 350: None}
    assert {offset: file_at(files, offset) for offset in held} == held
    assert file_at((), 0) is None
