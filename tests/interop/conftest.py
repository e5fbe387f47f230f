"""Fixtures of the interop ring: the four other engines by name, and tables that are written once and read by each."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.readers import Reader


@pytest.fixture(scope="session")
def interop_home(spark_home: Path) -> Path:
    """Directory of the tables that the other engines read; below the warehouse of Java's Hadoop catalog `ice`."""
    home = spark_home / "ice" / "interop"
    home.mkdir(parents=True)
    return home


@pytest.fixture
def reader(request: pytest.FixtureRequest) -> Reader:
    """The engine that the test's `reader` parameter names."""
    return request.getfixturevalue(f"{request.param}_reader")
