"""A server of PostgreSQL for tests: Debian's, where it is installed; one for all tests of a process."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


def _programs() -> Path | None:
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return versions[-1].parent if versions else None


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of a server of the tests' own, without the name of a database."""
    pytest.importorskip("psycopg")
    programs = _programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed")
    folder = tempfile.mkdtemp(prefix="ledger")
    # the server refuses to run as root
    other = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    if other:
        shutil.chown(folder, "postgres")

    def run(program: str, *words: str) -> None:
        log = ["-l", f"{folder}/log"] if program == "pg_ctl" else []
        command = [*other, str(programs / program), "-D", f"{folder}/data", *log, *words]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/")

    run("initdb", "-A", "trust", "-U", "postgres", "--no-sync")
    run("pg_ctl", "-w", "-o", f"-k {folder} -c listen_addresses=", "start")
    try:
        yield f"postgresql://postgres@/{{name}}?host={folder}"
    finally:
        run("pg_ctl", "-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)


def new_database(server: str, name: str) -> str:
    """The URL of a new and empty database of a server."""
    import psycopg

    name = f"test{abs(hash(name)):x}"
    with psycopg.connect(server.format(name="postgres"), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")  # type: ignore[arg-type]
    return server.format(name=name)
