"""Databases for the tests of ledgers: SQLite, and PostgreSQL where it is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.postgres import new_database

pytest.importorskip("sqlalchemy")

from wpriv.ledger.service import Ledger


def created(url: str, **terms: object) -> Ledger:
    """A new ledger for (1, 1e-6)-DP, or for other terms."""
    return Ledger.create(url, **{"eps": 1, "delta": 1e-6, **terms})


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/b.db"
    return new_database(request.getfixturevalue("postgres"), request.node.nodeid)
