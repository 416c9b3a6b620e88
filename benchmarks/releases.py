"""``python -m benchmarks releases``: reading, bounding and noise of a large table, beside pandas groupby in one run.

The table has 10^7 rows of 10^6 persons and 1000 keys, by default (``--rows`` for fewer). Each figure is the CPU time of
a fresh process, with its peak memory; bounding is compared with pandas' ``groupby([person, key]).size()``, and the
noisy cells are 10^6 draws of discrete Gaussian noise whose table is known already. Dry runs are of mixed outputs.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import report

PERSONS, KEYS = 10, 1000  # rows of a person on average, and number of keys
MEMORY = 2048
START = """
import json, resource, sys, time
from pathlib import Path
folder, rows = Path(sys.argv[1]), int(sys.argv[2])
more = {}
"""
END = """
more["seconds"] = round(time.process_time() - begin, 2)
more["mib"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
print(json.dumps(more))
"""
GROUPBY = """
import pandas
frame = pandas.read_parquet(folder / "t.parquet")
begin = time.process_time()
frame.groupby(["patient", "ward"]).size()
"""
BOUNDING = """
import numpy as np, pyarrow.parquet as pq
from wpriv.files.columns import Cells
from wpriv.releases import bounding
table = pq.read_table(folder / "t.parquet")
patient, ward, days = (table[name].to_numpy() for name in ("patient", "ward", "days"))
del table
begin = time.process_time()
persons = bounding.Persons()
persons.add(Cells(patient))
marks = bounding.cell_digests([str(key) for key in range(1000)])
kept = bounding.kept(bytes(32), persons.coded(), ward, marks, days, groups=3, rows=1)
bounding.sums(kept, 1000)
"""
RELEASE = """
from wpriv import Count, Mean, release
begin = time.process_time()
release(SOURCE, outputs=[Count(), Mean("days", 0, 60)], person="patient", by="ward", eps=1, delta=0, max_groups=3,
        keys=[str(key) for key in range(1000)], max_rows=1)
"""
NOISE = """
from wpriv.releases.sampling import Noise
noise = Noise("gauss", 5.9766427)
noise.draw(bytes(32), 0, 1)
begin = time.process_time()
noise.draw(bytes(32), 1, 10**6)
"""
DRY = """
from wpriv import Count, Mean, Sum, release
begin = time.process_time()
release({"id": [], "key": [], "x": []}, outputs=[Count(overall=True), Count(), Mean("x", 0, 60), Sum("x", 0, 60)],
        person="id", by="key", keys=["A", "B"], max_groups=2, max_rows=3, eps=1, delta=1e-6, dry_run=True)
"""
SOURCES = {
    "CSV": 'str(folder / "t.csv")',
    "Parquet": 'str(folder / "t.parquet")',
    "SQLite": 'f"sqlite:///{folder}/t.db", table="stays"',
}


def write(folder: Path, rows: int) -> None:
    """Write the table as CSV, Parquet and SQLite."""
    import pyarrow as pa
    import pyarrow.csv as pa_csv
    import pyarrow.parquet as pq

    draws = np.random.default_rng(0)
    ends = {"patient": max(rows // PERSONS, 1), "ward": KEYS, "days": 60}
    table = pa.table({name: draws.integers(0, end, rows) for name, end in ends.items()})
    pq.write_table(table, folder / "t.parquet")
    pa_csv.write_csv(table, folder / "t.csv")
    connection = sqlite3.connect(folder / "t.db")
    connection.execute("CREATE TABLE stays (patient integer, ward integer, days integer)")
    for batch in table.to_batches(max_chunksize=500_000):
        cells = zip(*(column.to_pylist() for column in batch.columns), strict=True)
        connection.executemany("INSERT INTO stays VALUES (?, ?, ?)", cells)
    connection.commit()
    connection.close()


def measured(program: str, folder: Path, rows: int) -> dict[str, Any]:
    """CPU seconds and peak memory of a program in a process of its own."""
    command = [sys.executable, "-c", START + program + END, str(folder), str(rows)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; return 0 if every target is met, else 1."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks releases")
    parser.add_argument("--rows", type=int, default=10**7)
    parser.add_argument("--out", type=Path)
    flags = parser.parse_args(argv)
    rows: list[dict[str, Any]] = []

    def add(name: str, program: str, wanted: float | None, memory: float | None = None) -> float:
        figures = measured(program, folder, flags.rows)
        late = wanted is not None and figures["seconds"] > wanted
        met = None if wanted is None else not late and (memory is None or figures["mib"] <= memory)
        rows.append({"figure": name, **figures, "wanted": "" if wanted is None else round(wanted, 2), "met": met})
        return float(figures["seconds"])

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, flags.rows)
        peer = add("pandas groupby([person, key]).size()", GROUPBY, None)
        add("bounding and sums, at most 2 x groupby", BOUNDING, 2 * peer, MEMORY)
        for source, wanted in (("CSV", 15), ("Parquet", 15), ("SQLite", 25)):
            program = RELEASE.replace("SOURCE", SOURCES[source])
            add(f"count and mean by 1000 keys, {source}", program, wanted * flags.rows / 10**7, MEMORY)
        add("10^6 noisy cells", NOISE, 0.3)
        add("dry run of four outputs", DRY, 1)
    head = "| figure | CPU s | wanted | peak MiB | met |\n|---|---|---|---|---|\n"
    marks = {None: "", True: "yes", False: "NO"}
    lines = (
        f"| {row['figure']} | {row['seconds']} | {row['wanted']} | {row['mib']} | {marks[row['met']]} |" for row in rows
    )
    return report.publish(f"{flags.rows:,} rows\n\n{head}" + "\n".join(lines) + "\n", rows, flags.out, "releases")


if __name__ == "__main__":
    sys.exit(main())
