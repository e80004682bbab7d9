"""Sessions of Spark, each started once for all tests that use it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.spark.sessions import SMALL_JAVA, Session, require_spark


@pytest.fixture(scope="session")
def spark() -> Iterator[Session]:
    """A local session of two cores; the package is installed, as far as Spark can see."""
    require_spark()
    with Session("local[2]", {}, installed=True) as session:
        yield session


@pytest.fixture(scope="session")
def cluster() -> Iterator[Session]:
    """Two executors in processes of their own; nothing is installed, `register` has to bring the package."""
    require_spark()
    settings = {"spark.executor.memory": "512m", "spark.executor.extraJavaOptions": SMALL_JAVA}
    with Session("local-cluster[2,1,1024]", settings, installed=False) as session:
        yield session
