"""How the tests are shared among the workers of pytest."""

from __future__ import annotations

import pytest

from tests.conftest import SERVERS, WITH_SERVERS


def test_one_worker_has_all_that_need_servers(request: pytest.FixtureRequest) -> None:
    """No other worker starts them a second time; a place that nobody needs them in is not kept for it."""
    items = [item for item in request.session.items if isinstance(item, pytest.Function)]
    users = {item.nodeid for item in items if SERVERS & {*item.fixturenames}}
    places = [place for group in WITH_SERVERS for place in group]
    assert sorted(name for name in users if not name.startswith(tuple(places))) == []
    if len(items) > 1000 and not request.config.getoption("--quick"):
        assert [place for place in places if not any(name.startswith(place) for name in users)] == []
