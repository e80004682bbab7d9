"""What is said to be printed stands in the classes of RocketMQ that are said to print it."""

from __future__ import annotations

import os
import struct
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from rmqtool.findings.symptoms import SYMPTOMS, Symptom
from tests.real_broker.classes import class_path
from tests.sampling import ALL

pytestmark = pytest.mark.broker

VERSIONS = ("4.4.0", "4.9.7", "5.1.4", "5.3.3", "5.5.0") if ALL in os.environ else ("4.9.7", "5.5.0")
_OF_4_4 = "CODE: 14 (SERVICE_NOT_AVAILABLE)"
"""One of its texts is in none of the two that are always fetched."""
_UTF8, _INTEGER = 1, 3
_SIZES = {3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4, 19: 2, 20: 2}
_WIDE = (5, 6)  # take two numbers


def constants(data: bytes) -> Iterator[str | int]:
    """Texts and numbers in a class file's pool of constants, in its order."""
    count, place = struct.unpack_from(">H", data, 8)[0], 10
    number = 1
    while number < count:
        tag = data[place]
        if tag == _UTF8:
            size = struct.unpack_from(">H", data, place + 1)[0]
            yield data[place + 3 : place + 3 + size].decode("utf-8", "replace")
            place += 3 + size
        else:
            if tag == _INTEGER:
                yield struct.unpack_from(">i", data, place + 1)[0]
            place += 1 + _SIZES[tag]
        number += 1 + (tag in _WIDE)


_NAMED = {name for symptom in SYMPTOMS for name in symptom.classes} | {"ResponseCode", "RemotingSysResponseCode"}


@cache
def classes() -> dict[str, list[list[str | int]]]:
    """The constants of each class of RocketMQ that is named, by its simple name, in all VERSIONS."""
    found: dict[str, list[list[str | int]]] = defaultdict(list)
    for version in VERSIONS:
        for directory in class_path(version, whole=True).split(":"):
            for jar in Path(directory.removesuffix("*")).glob("rocketmq-*.jar"):
                with zipfile.ZipFile(jar) as archive:
                    for name in archive.namelist():
                        if name.endswith(".class") and (simple := Path(name).stem) in _NAMED:
                            found[simple].append([*constants(archive.read(name))])
    return found


@pytest.mark.parametrize(
    "symptom",
    [
        pytest.param(each, marks=[pytest.mark.rare] if each.title.startswith(_OF_4_4) else [], id=each.title[:40])
        for each in SYMPTOMS
        if each.texts
    ],
)
def test_texts_are_those_of_the_classes(symptom: Symptom) -> None:
    """In some release; each class that is named has one of them."""
    has = {name: {str(text) for pool in classes()[name] for text in pool} for name in symptom.classes}
    for text in symptom.texts:
        assert [name for name, pool in has.items() if any(text in each for each in pool)], text
    for name, pool in has.items():
        assert any(text in each for text in symptom.texts for each in pool), name


def test_response_codes() -> None:
    """The value of a constant stands after its name in the pool of its class."""
    pools = [*classes()["ResponseCode"], *classes()["RemotingSysResponseCode"]]
    for symptom in SYMPTOMS:
        if symptom.response:
            name, value = symptom.response
            after = [pool[pool.index(name) + 1 :] for pool in pools if name in pool]
            assert after
            numbers = [next(each for each in rest if isinstance(each, int)) for rest in after]
            assert {*numbers} == {value}, name
