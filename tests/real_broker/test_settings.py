"""The table of broker.conf's settings is what the classes of the releases under test say."""

from collections.abc import Callable

import pytest

from rmqtool.rules.broker_conf import BY_MACHINE, broker_settings
from rmqtool.rules.versions import parse_version
from tests.real_broker.harness import VERSIONS, Harness
from tests.real_broker.settings import NAMED, settings

pytestmark = [pytest.mark.broker, pytest.mark.slow]


@pytest.mark.rare
@pytest.mark.parametrize("version", VERSIONS)
def test_the_table_is_that_of_the_classes(harness: Callable[[str], Harness], version: str) -> None:
    harness(version)
    release = parse_version(version)
    real: dict[str, str] = {}
    for defaults in settings(release).values():
        real = {**defaults, **real}
    table = {name: setting.default(release) for name, setting in broker_settings().items()}
    known = {name: value for name, value in table.items() if value is not None}
    differing = {name for name in known.keys() & real.keys() if known[name] != real[name] and name not in NAMED}
    assert known.keys() == real.keys()
    assert differing == set()
    assert BY_MACHINE in known.values()
