"""Databases for the tests of ledgers: SQLite, and PostgreSQL where it is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.postgres import new_database

pytest.importorskip("sqlalchemy")


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/b.db"
    return new_database(request.getfixturevalue("postgres"), request.node.nodeid)
