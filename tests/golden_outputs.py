"""What users read, kept as text: one file in ``tests/golden/outputs`` for each case below.

A file holds the command lines of its case with their exit codes, standard output and standard error, and the text of
chosen files that they write. ``tests/test_outputs.py`` compares them with what the program prints now, so that code
that only moves is shown to change nothing that anybody reads. These files are no oracle: other tests tell whether a
number is right. Where an output is meant to change, write it anew and review the difference:

``python -m tests.golden_outputs --write [NAME...]``
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import difflib
import functools
import inspect
import os
import platform
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests import command_line

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "tests" / "golden" / "outputs"
COLUMNS = "80"

# relative; numbers that a training computes differ between processors
TOLERANCE, TRAINED_TOLERANCE = 1e-9, 1e-3
TRAINED_FILES = tuple(f"/{name}]" for name in ("metrics.csv", "table.csv", "runs.csv", "audit.csv", "audit.json"))
TRAINED_WORDS = re.compile(r"\b(loss|accuracy|score|norm|distance)\b")


@dataclass(frozen=True)
class Case:
    """One kept output.

    Attributes:
        name: that of its file, without ``.txt``.
        commands: what follows ``wpriv``, split as in a shell; all run in one new folder.
        python: expressions that are evaluated after the commands with the names of ``wpriv`` and of ``PYTHON_NAMES``.
        files: patterns of the written files whose text is kept; of all written files the names are kept.
        inputs: files that exist before the commands run: name to text.
        after: the name of the case whose commands ran in the folder before; its output is not kept again.
        needs: modules without which the case is skipped.
    """

    name: str
    commands: tuple[str, ...] = ()
    python: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    inputs: Mapping[str, str] = field(default_factory=dict)
    after: str = ""
    needs: tuple[str, ...] = ()


# ---------------------------------------------------------------------------------------------------- recipes and data

TINY = """\
kind: train
source: "none: a tiny training"
task: classify
data: {name: digits, limit: 96}
model: {name: mlp, width: 8, depth: 1, activation: tanh}
privacy: {sigma: 2.0, delta: 1e-5, clip: 1.0}
optimizer: {name: sgd, lr: 1.0}
batch: 96
steps: 3
seed: 1
accountants: [rdp]
"""
SAMPLED = TINY.replace("batch: 96", "batch: 24").replace("steps: 3", "steps: 2")
SWEEP = (
    TINY.replace("steps: 3", "steps: 2") + "sweep: {over: privacy.sigma, values: [2, 4]}\nfigure: accuracy-over-eps\n"
)
SEEDS = TINY.replace("steps: 3", "steps: 2") + "seeds: 2\n"
TUNED = TINY.replace("steps: 3", "steps: 2").replace("accountants: [rdp]\n", "") + (
    "tune:\n"
    "  sweep: {over: optimizer.lr, values: [0.01, 1, 2]}\n"
    '  repeats: "geometric:mean=2.5"\n'
    "  score: {column: accuracy, records: public}\n"
)
EXPECTED = TINY + 'expect:\n  - {accuracy: 0.99, within: 0.01, at_least: true, source: "nobody"}\n'
BUDGET = """\
kind: budget
source: "a plan of two parts"
process:
  - {mech: gauss, sigma: 4, n: 10}
  - {mech: laplace, scale: 20, n: 5}
delta: 1e-5
"""
CALIBRATE = """\
kind: calibrate
source: "a plan"
process: [{mech: gauss, n: 100, sampling: poisson, rate: 0.01}]
eps: 1
delta: 1e-5
"""
COMPARE = """\
kind: compare
source: "a small grid"
process: [{mech: gauss, sigma: 4}]
delta: 1e-5
sweep: {over: n, values: [1, 16]}
accountants: [pld, rdp, clt]
figure: eps-over-n
expect:
  - {where: {n: 16, accountant: pld}, eps: 4.0, within: 1e-3, source: "a guess that is wrong"}
"""
RATES = """\
kind: compare
source: "none: rates of attacks"
process: [{mech: gauss, sigma: 2, n: 4}]
table: trade-off
sweep: {over: fpr, values: [0.01, 0.1, 0.3]}
"""
VERIFY = """\
kind: verify
source: "claims of nobody"
published:
  - {name: "holds", claim: "eps=5,delta=1e-5", process: [{mech: gauss, sigma: 4}], source: "a test", verdict: proved}
  - {name: "fails", claim: "eps=0.1,delta=1e-5", process: [{mech: gauss, sigma: 4}], source: "a test", verdict: refuted}
"""
PRIVATIZE = """\
kind: privatize
source: a test
data: {file: rows.csv, limit: 3}
mech: local-gauss
eps: 2
delta: 1e-5
radius: 1
seed: 4
"""
HISTORY = "[[4.0, 0.01, 100], [2.0, 0.05, 10]]"
STEPS = '[{"mech": "gauss", "sigma": 4, "n": 10}, {"mech": "laplace", "scale": 20, "n": 5}]'
RDP = "order,epsilon\n1.5,0.06\n2,0.08\n4,0.16\n8,0.32\n16,0.64\n32,1.28\n"
HISTOGRAM = "outcome,p,q\n0,0.2,0.3\n1,0.3,0.3\n2,0.5,0.4\n"
DISTANCES = "step,distance\n1,0.30\n1,0.55\n1,0.80\n"
ROWS = "0.1,0.2,0.3\n0.5,-0.5,0.25\n1,2,3\n-1,0,0.125\n"
STAYS = "patient,ward,days\np1,A,3\np1,B,5\np2,A,9\np3,C,\n"
WARD = """kind: release
data: {file: stays.csv, types: {days: integer}}
person: patient
limits: {max_groups: 1, max_rows: 1}
by: {column: ward, keys: unknown}
outputs: [{count: persons}, {quantile: days, bounds: [0, 30], at: [.5]}]
noise: laplace
eps: 1
delta: 1e-6
"""
BAD_KEY = TINY.replace("steps: 3", "stepz: 3")
BAD_TYPES = TINY.replace("steps: 3", "steps: many").replace("lr: 1.0", "lr: -1")

G = "--mech gauss --sigma 4 --n 10 --delta 1e-5"
ONE = "--mech gauss --sigma 4 --delta 1e-5"
SUB = "--mech gauss --sigma 4 --sampling poisson --rate 0.01 --n 100"
S = f"{SUB} --delta 1e-5"
PUBLISHED = "--mech gauss --sigma 0.638 --sampling poisson --batch 256 --records 60000 --epochs 70"

VERBS = (
    *("budget", "calibrate", "compare", "train", "plot", "verify", "reproduce", "report", "audit", "privatize"),
    *("release", "list", "completion", "explain", "check"),
)
GROUPS = {"recipe": ("ls", "check", "show", "schema", "cp", "refresh"), "data": ("ls", "show")}

MECHANISMS = {
    "discrete-gauss": "--sigma 4 --delta 1e-5",
    "discrete-laplace": "--scale 4 --delta 1e-5",
    "dp": "--param eps0=0.1 --n 10 --delta 1e-6",
    "exponential": "--param eps0=0.1 --n 10 --delta 1e-6",
    "gauss-threshold": "--sigma 5 --param threshold=30 --param keys=3 --delta 1e-5",
    "gdp": "--param mu=0.5 --n 4 --delta 1e-5",
    "histogram": "--param file=histogram.csv --n 2 --delta 1e-3",
    "laplace": "--scale 20 --n 10 --delta 1e-6",
    "laplace-threshold": "--scale 1 --param threshold=20 --param keys=3 --delta 1e-6",
    "local-gauss": "--sigma 9 --param radius=1 --delta 1e-6",
    "local-laplace": "--scale 9 --param radius=1 --delta 1e-6",
    "matrix-gauss": "--sigma 20 --param strategy=root:n=16,bands=4 --param separation=4 --delta 1e-5",
    "projection": "--param d=784 --param k=200 --sigma 4.74 --delta 1e-5",
    "randomized-response": "--param eps0=1 --n 4 --delta 1e-5",
    "rdp-curve": "--param file=rdp.csv --n 2 --delta 1e-6 --accountant rdp",
    "truncated-gauss": "--sigma 3 --param bound=20 --eps 1",
    "truncated-laplace": "--scale 3 --param bound=20 --eps 1",
    "uniform": "--param outcomes=10 --delta 0.2",
    "wgrad": (
        "--sigma 0.05 --param bound=1 --param lipschitz_x=1 --param size_x=3000 --param size_z=3000 "
        "--sampling fixed --rate 0.2 --n 5 --delta 3.3e-6"
    ),
    "zcdp": "--param rho=0.1 --n 2 --delta 1e-10 --accountant zcdp",
}

ACCOUNTANTS = {
    "advanced": ONE,
    "basic": ONE,
    "bdp": f"{ONE} --observed distances.csv",
    "berry-esseen": "--mech gauss --sigma 4 --n 10 --eps 1",
    "buckets": S,
    "clt": G,
    "gdp": G,
    "gdp-clt": S,
    "kov": "--mech dp --param eps0=0.1 --n 10 --delta 1e-6",
    "markov": G,
    "moments": S,
    "nagaev": "--mech gauss --sigma 4 --n 10 --eps 3",
    "pdp": G,
    "plc": S,
    "plc:variant=paper": S,
    "pld": S,
    "rdp": S,
    "rdp-filter": G,
    "rdp-mironov": S,
    "renyi:order=8": "--mech gauss --sigma 4",
    "swd-tail": "--mech projection --param d=784 --param k=200 --sigma 4.74 --n 4 --delta 1e-5",
    "wdp:variant=exact,order=16": ONE,
    "wdp:variant=generalised": ONE,
    "wdp:variant=kdp": ONE,
    "wdp:order=2": "--mech gauss --sigma 1 --n 2 --delta 1e-5 --observed distances.csv",
    "zcdp": G,
}

REFUSALS = {
    "no-command": "",
    "misspelt-command": "bugdet",
    "misspelt-flag": "budget --simga 1",
    "flag-without-value": "budget --sigma",
    "stray-word": "budget stray other",
    "no-mechanism": "budget --delta 1e-5",
    "unknown-mechanism": "budget --mech gaus --delta 1e-5",
    "missing-parameter": "budget --mech gauss --delta 1e-5",
    "parameter-of-another-mechanism": "budget --mech gauss --scale 1 --delta 1e-5",
    "misspelt-parameter": "budget --mech randomized-response --param ep0=1 --delta 1e-5",
    "no-number": "budget --mech gauss --sigma x --delta 1e-5",
    "negative-sigma": "budget --mech gauss --sigma -1 --delta 1e-5",
    "no-question": "budget --mech gauss --sigma 1",
    "two-questions": "budget --mech gauss --sigma 1 --eps 1 --delta 1e-5",
    "delta-out-of-range": "budget --mech gauss --sigma 1 --delta 1.5",
    "fractional-n": f"budget {ONE} --n 1.5",
    "huge-n": f"budget {ONE} --n 2^41",
    "rate-without-sampling": f"budget {ONE} --rate 0.1",
    "sampling-without-rate": f"budget {ONE} --sampling poisson",
    "unknown-sampling": f"budget {ONE} --sampling sometimes --rate 0.1",
    "rate-and-batch": f"budget {ONE} --sampling poisson --batch 10 --records 50 --rate 0.2",
    "epochs-and-n": f"budget {ONE} --sampling poisson --rate 0.1 --epochs 3 --n 3",
    "unknown-accountant": f"budget {ONE} --accountant pdl",
    "unknown-option-of-accountant": f"budget {ONE} --accountant pld:tl=3",
    "json-and-csv": f"budget {ONE} --json --csv",
    "several-accountants-quiet": f"budget {ONE} --accountant all --quiet",
    "unsupported-adjacency": "budget --mech laplace --scale 1 --sampling poisson --rate 0.1 --adjacency replace-one "
    "--delta 1e-5",
    "unknown-adjacency": f"budget {ONE} --adjacency sideways",
    "unsupported-accountant": f"budget {S} --accountant gdp",
    "unsupported-group": "budget --mech dp --param eps0=1 --delta 1e-5 --group 2 --sampling poisson --rate 0.1",
    "bands-too-many": f"budget {ONE} --sampling poisson --rate 0.3 --n 8 --bands 4",
    "no-finite-eps": "budget --mech uniform --param outcomes=10 --n 4 --delta 0.1",
    "missing-history": "budget --history /no/such/file --delta 1e-5",
    "missing-observed": f"budget {ONE} --accountant bdp",
    "fixed-repeats": f"budget {ONE} --repeats 20",
    "missing-recipe": "budget no/such/recipe",
    "gate-without-question": "budget --mech gauss --sigma 1 --eps 1 --max-eps 1",
    "calibrate-nothing-missing": "calibrate --mech gauss --sigma 1 --n 5 --eps 1 --delta 1e-5",
    "calibrate-out-of-reach": "calibrate --mech gauss --sigma 0.1 --eps 1 --delta 1e-5",
    "calibrate-half-a-target": "calibrate --mech gauss --eps 1",
    "calibrate-tpr-below-fpr": "calibrate --mech gauss --tpr 0.01 --fpr 0.05",
    "compare-why-with-adjacency": "compare --mech gauss --sigma 1 --delta 1e-5 --why --adjacency replace-one",
    "compare-unknown-axis": "compare --mech gauss --sigma 1 --delta 1e-5 --sweep m=1,2",
    "compare-recipe-of-another-kind": "compare quick/digits",
    "plot-missing": "plot no-such-folder",
    "verify-missing": "verify no-such.json",
    "verify-malformed-claim": "verify --claim eps=3,dleta=1e-5 --mech gauss --sigma 4",
    "reproduce-misspelt": "reproduce plcc --out r",
    "reproduce-time": "reproduce plc --at-most 3 --out r",
    "report-missing": "report no-such-folder",
    "train-misspelt-recipe": "train quick/digit",
    "train-missing-data": "train dpsgd/mnist --data-root . --out run",
    "data-unknown": "data show minst --data-root .",
    "recipe-without-verb": "recipe",
    "recipe-misspelt-verb": "recipe shwo",
    "privatize-without-data": "privatize --mech local-gauss --eps 1 --delta 1e-5 --radius 1 --out p.npz",
}

INPUTS = {"distances.csv": DISTANCES, "histogram.csv": HISTOGRAM, "rdp.csv": RDP, "rows.csv": ROWS}
RUN_FILES = (
    "*/statement.json",
    "*/statement.md",
    "*/metrics.csv",
    "*/ledger.jsonl",
    "*/recipe.yaml",
    "*/provenance.json",
)
FOLDER_FILES = ("*/*.csv", "*/*.md", "*/*.yaml", "*/*.json")


def helps() -> Iterator[Case]:
    """The help of every command."""
    yield Case("help", ("--help",))
    for verb in (*VERBS, *GROUPS):
        yield Case(f"help-{verb}", (f"{verb} --help",))
    for verb, inner in GROUPS.items():
        yield Case(f"help-{verb}-verbs", tuple(f"{verb} {word} --help" for word in inner))


def calculator() -> Iterator[Case]:
    """The verbs that compute without training."""
    for name, words in MECHANISMS.items():
        yield Case(f"mechanism-{name}", (f"budget --mech {name} {words}",), inputs=INPUTS)
    for name, words in ACCOUNTANTS.items():
        label = re.sub(r"[:=,]", "-", name)
        yield Case(f"accountant-{label}", (f"budget {words} --accountant {name} --explain",), inputs=INPUTS)
    for kind in ("none", "poisson", "fixed", "allocation", "shuffle"):
        sampled = "--n 10" if kind == "none" else f"--sampling {kind} --rate 0.1 --n 10"
        job = f"budget --mech gauss --sigma 4 {sampled} --delta 1e-5"
        yield Case(f"sampling-{kind}", (job, f"{job} --quiet", f"{job} --json --tol 1e-3"))
    yield Case("budget-eps", (f"budget {S}", f"budget {S} --json", f"budget {S} --csv", f"budget {S} --quiet"))
    yield Case("budget-delta", tuple(f"budget {SUB} --eps 0.1{how}" for how in ("", " --json", " --csv", " --quiet")))
    yield Case(
        "explain",
        (
            "explain eps=3,delta=1e-5",
            "explain mu=1 --unit period --people 2 --releases 1",
            "explain rho=0.5 --unit event --json",
            "explain gauss sigma=4 n=10 --delta 1e-6 --prior 0.5 --unit household",
            "explain eps=12,delta=1e-5 --people 1",
            "explain eps=-1",
            "explain eps=3,dleta=1e-5",
            "explain eps=3 --unit huosehold",
        ),
    )
    count = "release --data stays.csv --person patient --count persons --delta 0"
    yield Case(
        "release",
        (
            f"{count} --eps 1 --seed 1 --out report",
            f"{count} --eps 1 --ledger report/ledger.jsonl --max-eps 1.5 --out second",
            f"{count} --se 10 --by ward --keys A,B --max-groups 2 --dry-run --expect 100",
            "release ward.yaml --seed 1",
            "release ward.yaml --dry-run --csv",
            f"{count} --eps 1 --diagnose",
        ),
        files=("report/recipe.yaml", "report/statement.md", "report/release.csv"),
        inputs={"stays.csv": STAYS, "ward.yaml": WARD},
    )
    yield Case("budget-explain", (f"budget {S} --explain", f"budget {S} --explain --json"))
    yield Case(
        "budget-several-accountants", tuple(f"budget {G} --accountant all{how}" for how in ("", " --json", " --csv"))
    )
    yield Case("budget-curve", (f"budget {G} --curve", f"budget {G} --curve --csv"))
    yield Case("budget-tradeoff", ("budget --mech gauss --sigma 4 --n 10 --curve tradeoff --fpr 1e-3",))
    yield Case("budget-group", (f"budget {S} --group 2 --tol 1e-3", f"budget {G} --group 3 --explain"))
    yield Case(
        "budget-adjacency",
        (
            f"budget {G} --adjacency replace-one",
            f"budget {S} --adjacency replace-one --explain",
            f"budget {G} --adjacency zero-out",
        ),
    )
    yield Case("budget-batch", (f"budget {ONE} --sampling poisson --batch 600 --records 60000 --epochs 1",))
    yield Case(
        "budget-max-batch",
        (f"budget {ONE} --sampling poisson --batch 600 --records 60000 --max-batch 800 --n 10 --tol 1e-3",),
    )
    yield Case("budget-bands", (f"budget {S} --bands 4",))
    yield Case(
        "budget-gate",
        (f"budget {G} --max-eps 9", f"budget {G} --max-eps 1 --quiet", f"budget {G} --max-eps 9 --accountant clt"),
    )
    yield Case(
        "budget-history",
        (
            "budget --history h.json --delta 1e-5",
            "budget --history h.json --delta 1e-5 --adaptive",
            "budget --history s.json --eps 1 --json",
        ),
        inputs={"h.json": HISTORY, "s.json": STEPS},
    )
    yield Case(
        "budget-repeats", (f"budget {G} --repeats geometric:mean=20", f"budget {G} --repeats poisson:mean=5 --json")
    )
    yield Case(
        "budget-mu",
        ("budget --mech gauss --sigma 4 --n 10 --mu", f"budget {SUB} --mu --fpr 1e-3", f"budget {SUB} --mu --json"),
    )
    yield Case(
        "budget-recipe",
        ("budget plan.yaml", "budget plan.yaml --json", "budget plan.yaml --explain"),
        inputs={"plan.yaml": BUDGET},
    )
    yield Case(
        "budget-certificate",
        (f"budget {S} --certificate c.json", "verify c.json", "verify c.json --json", "verify c.json --width 1e-3"),
        files=("c.json",),
    )
    target = "--eps 1 --delta 1e-5"
    yield Case(
        "calibrate-sigma",
        tuple(
            f"calibrate --mech gauss {target} --n 100{how}"
            for how in ("", " --json", " --csv", " --quiet", " --explain")
        ),
    )
    yield Case(
        "calibrate-scale",
        (
            "calibrate --mech laplace --eps 1 --delta 1e-6 --n 100",
            "calibrate --mech laplace --eps 1 --delta 1e-6 --quiet",
        ),
    )
    yield Case(
        "calibrate-n", tuple(f"calibrate --mech gauss --sigma 40 {target}{how}" for how in ("", " --json", " --quiet"))
    )
    yield Case(
        "calibrate-rate",
        tuple(
            f"calibrate --mech gauss --sigma 4 --sampling poisson --n 100 {target} --tol 1e-3{how}"
            for how in ("", " --json", " --quiet")
        ),
    )
    yield Case(
        "calibrate-classical",
        (
            f"calibrate --mech gauss {target} --compare-classical",
            "calibrate --mech laplace --eps 1 --delta 1e-6 --n 10 --compare-classical",
        ),
    )
    yield Case(
        "calibrate-rdp",
        (
            f"calibrate --mech gauss --sampling poisson --rate 0.01 --n 100 {target} --accountant rdp",
            f"calibrate --mech gauss --n 10 {target} --accountant gdp-clt",
        ),
    )
    yield Case(
        "calibrate-attacks",
        (
            "calibrate --mech gauss --n 10 --advantage 0.1",
            "calibrate --mech gauss --tpr 0.02 --fpr 0.01",
            "calibrate --mech gauss --max-mu 0.5 --fpr 1e-6",
            "calibrate --mech gauss --n 10 --advantage 0.1 --json",
        ),
    )
    yield Case("calibrate-repeats", ("calibrate --mech gauss --eps 2 --delta 1e-6 --repeats geometric:mean=20",))
    yield Case("calibrate-group", (f"calibrate --mech gauss {target} --group 3",))
    yield Case(
        "calibrate-other-parameter",
        (
            "calibrate --mech randomized-response --param eps0=0.1 --eps 1 --delta 1e-6",
            "calibrate --mech gauss-threshold --sigma 5 --param keys=3 --eps 2 --delta 1e-6",
        ),
    )
    yield Case(
        "calibrate-history",
        (
            "calibrate --history h.json --mech gauss --sigma 4 --sampling poisson --rate 0.01 "
            "--eps 2 --delta 1e-5 --tol 1e-3",
        ),
        inputs={"h.json": HISTORY},
    )
    yield Case(
        "calibrate-recipe", ("calibrate plan.yaml", "calibrate plan.yaml --quiet"), inputs={"plan.yaml": CALIBRATE}
    )
    grid = (
        "compare --mech gauss --sigma 4 --delta 1e-5 --sweep n=1,16 --accountant pld --accountant rdp --accountant clt"
    )
    yield Case("compare-flags", (grid, f"{grid} --json", f"{grid} --csv"))
    yield Case("compare-all", ("compare --mech gauss --sigma 4 --delta 1e-4 --sweep n=2,8 --accountant all",))
    yield Case(
        "compare-two-axes",
        ("compare --mech laplace --delta 1e-6 --sweep scale=20,40 --sweep n=10,100 --accountant pld --accountant rdp",),
    )
    yield Case(
        "compare-eps-axis",
        ("compare --mech gauss --sigma 4 --n 10 --sweep eps=linspace:0,4,5 --accountant pld --accountant pdp",),
    )
    yield Case(
        "compare-why",
        (
            "compare --mech gauss --sigma 1.1 --batch 256 --records 60000 --epochs 1 --delta 1e-5 --tol 1e-2 --why",
            "compare --mech laplace --scale 20 --n 100 --delta 1e-6 --why --json",
        ),
    )
    yield Case(
        "compare-folder",
        (
            "compare grid.yaml --out out",
            "compare grid.yaml --out out --quiet",
            "compare grid.yaml --out out --json",
            "plot out --format svg,pdf",
            "plot out --figure table --out t",
        ),
        inputs={"grid.yaml": COMPARE},
        files=FOLDER_FILES,
    )
    yield Case(
        "compare-rates", ("compare rates.yaml --out out",), inputs={"rates.yaml": RATES}, files=("out/table.csv",)
    )
    yield Case(
        "compare-shipped",
        ("compare plc/fig9-pure-dp --quick --out out", "report out", "report out --as html --out r.html"),
        files=("out/*.json", "out/*.yaml", "out/table.csv", "r.html"),
    )
    orders = (
        '"gauss sigma=1" "laplace scale=1"',
        '"gauss sigma=4 n=16" "gauss sigma=1.1"',
        '"laplace scale=1" "randomized-response eps0=1"',
    )
    yield Case(
        "compare-order", (*(f"compare --order {pair}" for pair in orders), f"compare --order {orders[1]} --json")
    )
    yield Case(
        "claim-proved",
        (
            "verify --claim eps=5,delta=1e-5 --mech gauss --sigma 4 --n 10",
            'verify --claim eps=5,delta=1e-5 "gauss sigma=4 n=10 + laplace scale=20 n=5" --json',
        ),
    )
    yield Case(
        "claim-refuted",
        (
            "verify --claim eps=1,delta=0.01 --mech gauss --sigma 1",
            "verify --claim eps=1,delta=0.01 --mech gauss --sigma 1 --json",
        ),
    )
    yield Case(
        "claim-open",
        (
            "verify --claim eps=1,delta=1e-5 --mech zcdp --param rho=2",
            "verify --claim eps=1,delta=1e-5 --mech zcdp --param rho=2 --json",
        ),
    )
    yield Case(
        "claim-pure-and-mu",
        (
            "verify --claim eps=1 --mech laplace --scale 10 --n 10",
            "verify --claim mu=1 --mech gauss --sigma 1",
            "verify --claim mu=1 --mech laplace --scale 1",
            "verify --claim rho=0.5 --mech gauss --sigma 1",
        ),
    )
    yield Case(
        "claim-why",
        (
            "verify --claim eps=1.5,delta=1e-5 --mech gauss --sigma 1.5 --batch 256 "
            "--records 60000 --epochs 1 --sampling poisson --tol 1e-2 --why",
        ),
    )
    yield Case(
        "claims-of-a-recipe", ("verify claims.yaml", "verify claims.yaml --json"), inputs={"claims.yaml": VERIFY}
    )


def trainings() -> Iterator[Case]:
    """The verbs that train, and those that read their folders."""
    torch = ("torch",)
    tiny = {"tiny.yaml": TINY}
    yield Case(
        "train-dry-run",
        ("train quick/digits --dry-run", "train tiny.yaml --dry-run --json", "train sampled.yaml --dry-run"),
        inputs={**tiny, "sampled.yaml": SAMPLED},
        needs=torch,
    )
    yield Case("train", ("train tiny.yaml --out run",), inputs=tiny, files=RUN_FILES, needs=torch)
    yield Case(
        "train-again",
        (
            "train tiny.yaml --out run",
            "train tiny.yaml --out run --json",
            "train tiny.yaml --out run --set privacy.sigma=3",
            "train tiny.yaml --out run --resume --set seed=2",
        ),
        after="train",
        needs=torch,
    )
    yield Case(
        "train-without-privacy",
        ("train plain.yaml --out run --set privacy=none",),
        inputs={"plain.yaml": TINY.replace("accountants: [rdp]\n", "")},
        files=("run/statement.json", "run/statement.md"),
        needs=torch,
    )
    yield Case(
        "train-pld-certificate",
        (
            "train tiny.yaml --out run --set accountants=[pld] --certificate c.json",
            "verify c.json",
            "verify run",
            "verify run --json",
        ),
        inputs=tiny,
        files=("c.json",),
        needs=torch,
    )
    yield Case(
        "train-fork",
        ("train tiny.yaml --out run --fork --set steps=4",),
        after="train",
        files=("run/statement.md", "run/ledger.jsonl"),
        needs=torch,
    )
    yield Case(
        "train-expected",
        ("train tiny.yaml --out run",),
        inputs={"tiny.yaml": EXPECTED},
        files=("run/expect.json",),
        needs=torch,
    )
    yield Case(
        "train-sweep",
        ("train sweep.yaml --out run", "report run"),
        inputs={"sweep.yaml": SWEEP},
        files=FOLDER_FILES,
        needs=torch,
    )
    yield Case(
        "train-seeds", ("train seeds.yaml --out run",), inputs={"seeds.yaml": SEEDS}, files=FOLDER_FILES, needs=torch
    )
    yield Case(
        "train-tuned",
        ("train tuned.yaml --out run", "report run"),
        inputs={"tuned.yaml": TUNED},
        files=FOLDER_FILES,
        needs=torch,
    )
    yield Case(
        "train-refused",
        (
            "train key.yaml",
            "train types.yaml",
            "train tiny.yaml --set privcy.sigma=2",
            "train tiny.yaml --resume --fresh",
            "train tiny.yaml --set privacy.eps=1",
            "train tiny.yaml --device tpu",
            "train tiny.yaml --shard 1/2",
        ),
        inputs={**tiny, "key.yaml": BAD_KEY, "types.yaml": BAD_TYPES},
        needs=torch,
    )
    yield Case("report", ("report run", "report run --json"), after="train", needs=torch)
    yield Case("report-html", ("report run --as html --out r.html",), after="train", files=("r.html",), needs=torch)
    yield Case(
        "report-registry",
        ("report run --as registry --set deployment.basic.intended_use=tests",),
        after="train",
        needs=torch,
    )
    yield Case("report-checklist", ("report run --as checklist",), after="train", needs=torch)
    yield Case(
        "run-in-other-verbs",
        ("budget --history run/ledger.jsonl --delta 1e-5", "plot run --format pdf", "plot run --figure no-such"),
        after="train",
        needs=torch,
    )
    yield Case(
        "audit",
        (
            "audit tiny.yaml --canaries 50 --out run",
            "audit tiny.yaml --canaries 50 --out run2 --json",
            "report run --as html --out r.html",
        ),
        inputs=tiny,
        files=("run/*.json", "run/*.csv", "r.html"),
        needs=torch,
    )
    noise = "privatize --data rows.csv --no-header --mech local-gauss --radius 1 --eps 2 --delta 1e-5 --seed 4"
    yield Case(
        "privatize",
        (f"{noise} --out p.npz", f"{noise} --out q.npz --json", f"{noise} --out r.npz --dry-run"),
        inputs=INPUTS,
        files=("p*.json", "p*.md"),
    )
    yield Case(
        "privatize-laplace",
        ("privatize --data rows.csv --no-header --mech local-laplace --radius 1 --scale 3 --seed 4 --out p.npz",),
        inputs=INPUTS,
        files=("p*.md",),
    )
    yield Case(
        "privatize-recipe",
        ("privatize p.yaml --out p.npz",),
        inputs={**INPUTS, "p.yaml": PRIVATIZE},
        files=("p*.json",),
    )
    yield Case(
        "privatize-refused",
        (
            f"{noise} --sigma 3 --out p.npz",
            f"{noise.replace('--no-header', '--header')} --array x --out p.npz",
            noise.replace("rows.csv", "none.csv"),
            noise.replace("--delta 1e-5", "") + " --out p.npz",
        ),
        inputs=INPUTS,
    )
    yield Case(
        "reproduce",
        ("reproduce plc/figure-4 --quick --out pages",),
        files=("pages/plc.html", "pages/index.html", "pages/status.json", "pages/plc/*/expect.json"),
    )
    yield Case("reproduce-nothing", ("reproduce ldp --at-most 0 --out pages",), files=("pages/ldp.html",))


def recipes_and_data() -> Iterator[Case]:
    """The commands on recipes and data sets."""
    yield Case("recipe-ls", ("recipe ls",))
    yield Case("recipe-show", ("recipe show plc/fig7-dpsgd", "recipe show quick/digits --quick"))
    yield Case(
        "recipe-check",
        (
            "recipe check plc/fig7-dpsgd quick/digits",
            "recipe check bad.yaml",
            "recipe check types.yaml",
            "recipe check twice.yaml",
            "recipe check empty.yaml",
        ),
        inputs={"bad.yaml": BAD_KEY, "types.yaml": BAD_TYPES, "twice.yaml": TINY + "seed: 3\n", "empty.yaml": ""},
    )
    yield Case(
        "recipe-check-faults",
        tuple(f"recipe check {number}.yaml" for number in range(len(FAULTS))),
        inputs={f"{number}.yaml": text for number, text in enumerate(FAULTS)},
    )
    yield Case("recipe-schema", ("recipe schema",))
    yield Case(
        "recipe-cp",
        (
            "recipe cp quick/digits",
            "recipe cp quick/digits",
            "recipe cp plc/fig6-timing copies",
            "recipe refresh ldp/fig7 --at-most 0",
        ),
        files=("digits.yaml",),
    )
    yield Case("data", ("data --data-root .", "data --data-root . --json"))
    yield Case(
        "data-show",
        ("data show digits --data-root .", "data show digits --data-root . --json", "data show mnist --data-root ."),
    )
    yield Case("version", ("--version",))


FAULTS = (
    BUDGET.replace("sigma: 4", "sigma: -4"),
    BUDGET.replace("sigma: 4", "scale: 4"),
    BUDGET.replace("mech: laplace", "mech: laplac"),
    BUDGET.replace("kind: budget", "kind: bugdet"),
    BUDGET.replace("delta: 1e-5", "delta: 1e-5\neps: 1"),
    BUDGET.replace("delta: 1e-5", "delta: !x 1e-5"),
    BUDGET.replace("n: 10}", "n: 10"),
    COMPARE.replace("accountants: [pld, rdp, clt]", "accountants: [pdl]"),
    COMPARE.replace("figure: eps-over-n", "figure: eps-over-m"),
    COMPARE.replace("over: n", "over: m"),
    TINY.replace("name: digits", "name: digit"),
    TINY.replace("name: mlp", "name: mpl"),
    TINY.replace("task: classify", "task: classfy"),
    TINY.replace("name: sgd", "name: sdg"),
    TINY.replace("steps: 3", "steps: 3\nepochs: 2"),
    VERIFY.replace("verdict: proved", "verdict: true"),
)


def refusals() -> Iterator[Case]:
    """Command lines that are refused; none of them computes for long."""
    for name, words in REFUSALS.items():
        yield Case(f"refused-{name}", (words,))


def signatures() -> str:
    """Return the signature of every public name, one a line."""
    import wpriv

    return "\n".join(f"{name}{inspect.signature(getattr(wpriv, name))}" for name in wpriv.__all__)


def shown(value: object) -> str:
    """Return what ``repr`` and ``str`` say of a value, once where they say the same."""
    return repr(value) if str(value) == repr(value) else f"{value!r}\n{value}"


PYTHON_NAMES = {"signatures": signatures, "shown": shown}


def python() -> Iterator[Case]:
    """What Python users read: signatures, and the public records as text."""
    yield Case("python-names", python=("'\\n'.join(__all__)", "signatures()"))
    yield Case(
        "python-records",
        python=(
            "shown(budget(Gauss(sigma=4), n=10, delta=1e-5))",
            "shown(budget(Gauss(sigma=4), n=10, eps=1, accountant='rdp'))",
            "budget('gauss', sigma=4, n=10, delta=1e-5).as_dict()",
            "shown(budget('gauss', sigma=4, n=10, delta=1e-5, with_mu=True))",
            "shown(budget('gauss', sigma=4, n=10, delta=1e-5, repeats='geometric:mean=2'))",
            "shown(calibrate('gauss', eps=1, delta=1e-5, n=10))",
            "shown(verify_claim('eps=1,delta=0.01', 'gauss', sigma=1))",
            "shown(verify_claim('eps=5,delta=1e-5', Gauss(4), n=10))",
            "shown(privacy_order(Process((Step(Gauss(1.0)),)), Process((Step(Laplace(1.0)),))))",
            "shown(Process((Step(Gauss(4.0), 10, Poisson(0.01)), Step(Laplace(20.0)))))",
            "shown(Step(Gauss(4.0), 3, FixedSize(0.5)))",
            "shown([Poisson(0.1), FixedSize(0.1), Shuffle(0.1), Allocation(0.1)])",
            "shown(Bracket(1.0, 0.9, 1.1))",
            "shown(Repeats('geometric', 20.0))",
            "curve(Process((Step(Gauss(4.0), 10),))).at(eps=1.0)",
            "shown(Wgrad(sigma=0.05, bound=1, lipschitz_x=1, size_x=3000, size_z=3000))",
        ),
    )
    yield Case(
        "python-tables",
        python=(
            "compare(process=[{'mech': 'gauss', 'sigma': 4}], delta=1e-5, accountants=['pld', 'rdp'], "
            "sweep={'over': 'n', 'values': [1, 4]}).rows",
        ),
    )
    yield Case(
        "python-errors",
        python=tuple(
            f"refusal(lambda: {call})"
            for call in (
                "budget('gaus', delta=1e-5)",
                "budget('gauss', delta=1e-5)",
                "budget(Gauss(sigma=-1), delta=1e-5)",
                "budget(Gauss(4), delta=1e-5, accountant='pdl')",
                "budget(Gauss(4), delta=1e-5, eps=1)",
                "budget('laplace', scale=1, sampling='poisson', rate=0.1, adjacency='replace-one', delta=1e-5)",
                "calibrate('gauss', sigma=1, n=5, eps=1, delta=1e-5)",
                "verify_claim('eps=x', 'gauss', sigma=1)",
                "Process(())",
                "Poisson(2)",
                "train('quick/digit')",
                "report('no-such-folder')",
                "compare('no/such/recipe')",
            )
        ),
    )
    yield Case(
        "python-folder-records",
        python=(
            "report('run').text",
            "report('run').data",
            "train('tiny.yaml', out='run').metrics",
            "train('tiny.yaml', out='run').guarantees",
        ),
        after="train",
        needs=("torch",),
    )


def refusal(function) -> str:
    """Return the class and the text of the error that a function raises."""
    from wpriv.errors import WprivError

    try:
        return f"no error: {function()!r}"
    except WprivError as error:
        return f"{type(error).__name__}: {error}"


PYTHON_NAMES["refusal"] = refusal
CASES = {
    case.name: case for group in (helps, calculator, trainings, recipes_and_data, refusals, python) for case in group()
}


# ---------------------------------------------------------------------------------------------------------- the outputs


def produce(case: Case) -> str:
    """Run a case in a new folder, and return its output as it is kept."""
    with tempfile.TemporaryDirectory(prefix="outputs-") as place:
        folder = Path(place).resolve() / "work"
        if case.after:
            shutil.copytree(_finished(case.after), folder)
        else:
            folder.mkdir()
        for name, text in case.inputs.items():
            (folder / name).write_text(text, encoding="utf-8")
        before = _state(folder)
        with _surroundings(folder):
            parts = [_command(words) for words in case.commands]
            parts += [f">>> {expression}\n{_value(expression)}\n" for expression in case.python]
        written = {name for name, state in _state(folder).items() if before.get(name) != state}
        if written:
            parts.append("[files]\n" + "".join(f"{name}\n" for name in sorted(written)))
        kept = sorted({path for pattern in case.files for path in folder.glob(pattern) if path.is_file()})
        parts += [_section(f"file {path.relative_to(folder)}", path.read_text(encoding="utf-8")) for path in kept]
        return normalised("\n".join(parts), folder)


@functools.cache
def _finished(name: str) -> Path:
    """Return a folder in which the commands of a case have run; it is kept until the process ends."""
    holder = tempfile.TemporaryDirectory(prefix="outputs-")
    _HOLDERS.append(holder)
    folder = Path(holder.name).resolve() / "work"
    folder.mkdir()
    for file, text in CASES[name].inputs.items():
        (folder / file).write_text(text, encoding="utf-8")
    with _surroundings(folder):
        for words in CASES[name].commands:
            _command(words)
    for path in folder.glob("*/metrics.csv"):
        _set_distinct_seconds(path)
    return folder


def _set_distinct_seconds(path: Path) -> None:
    """Write fixed wall times into a table: a page leaves out a column whose numbers are all the same."""
    names, *rows = csv.reader(path.read_text(encoding="utf-8").splitlines())
    lines = [names, *([*row[:-1], str(number)] for number, row in enumerate(rows, start=1))]
    assert names[-1] == "seconds"
    path.write_text("".join(",".join(line) + "\n" for line in lines), encoding="utf-8")


_HOLDERS: list[tempfile.TemporaryDirectory[str]] = []


def _state(folder: Path) -> dict[str, tuple[int, int]]:
    """Return name, time of change and number of every file; locks and hidden files are left out."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")]
    return {str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.stat().st_ino) for path in files}


@contextlib.contextmanager
def _surroundings(folder: Path) -> Iterator[None]:
    """Run a block in a folder, with the same environment everywhere."""
    before, variables = Path.cwd(), dict(os.environ)
    os.environ.update(COLUMNS=COLUMNS, NO_COLOR="1", LC_ALL="C.UTF-8")
    for name in ("WPRIV_DATA", "WPRIV_DEBUG", "LINES"):
        os.environ.pop(name, None)
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
        os.environ.clear()
        os.environ.update(variables)


def _command(words: str) -> str:
    code, out, err = command_line.call_alone(shlex.split(words))
    return f"$ wpriv {words}\n[exit {code}]\n" + _section("stdout", out) + _section("stderr", err)


def _section(title: str, text: str) -> str:
    """Return a titled part; none for an empty text."""
    return f"[{title}]\n{text}" + ("" if text.endswith("\n") else "\n[no newline]\n") if text else ""


def _value(expression: str) -> object:
    import wpriv

    names = {name: getattr(wpriv, name) for name in wpriv.__all__} | PYTHON_NAMES
    return eval(expression, {"__all__": wpriv.__all__, **names})


# what differs from machine to machine, from day to day and from commit to commit
_LIBRARIES = "python|torch|numpy|scipy|pyyaml|pydantic|platform|gpu|threads|kernels|git_commit"
REPLACED: tuple[tuple[str, str], ...] = (
    (r'(?s)"command": \[.*?\n *\]', '"command": <command>'),
    (rf'("(?:{_LIBRARIES})": )(?:"[^"]*"|null|[\d.]+)', r"\1<here>"),
    (r"python \d+\.\d+\S*, torch [^,]*, numpy [^,]*, device cpu, kernels \w+(?:, git_commit \w+\+?)?", "<versions>"),
    (r"""(["'](?:wall_seconds|seconds)["']: )[\d.e+-]+""", r"\1<time>"),
    (r"(?:commit [\w+-]+, )?(?:[\d.]+ (?:s|min|h), )?device cpu", "<commit and time>, device cpu"),
    (r"<tr><th>seconds</th><td>[\d.]+</td>", "<tr><th>seconds</th><td><time></td>"),
    (r"(?m)^(wpriv: (?:.*: )?step \d+ of \d+, .*, )\d[\d.]* (?:s|min|h)$", r"\1<time>"),
    (r"(?<![\w.])(?=[0-9a-f]*[a-f])(?=[a-f]*[0-9])[0-9a-f]{16,64}(?!\w)", "<digest>"),
    (r"0x[0-9a-f]{6,}", "<address>"),
    (r"data:image/[\w+]+;base64,[\w+/=]+", "<image>"),
    # differences that are rounding errors; the replacement is as long as the number
    (r"(?<= )[+-](?:\d\.\de-(?:0[89]|1\d)|0\.0e\+00)(?= )", "<round> "),
    (r'("difference": )(?:-?\d(?:\.\d+)?e-(?:0[89]|1\d)|-?0\.0)(?![\d.])', r"\1<round>"),
    (r"(not readable as YAML: ).*", r"\1<reason>"),
    (r"\b20\d\d-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?)?(?:Z|[+-]\d\d:?\d\d)?", "<date>"),
)


def normalised(text: str, folder: Path) -> str:
    """Return a text without what depends on machine, day or commit."""
    from wpriv import __version__

    here = {str(folder): "<folder>", str(ROOT): "<repository>", sys.prefix: "<environment>"}
    for words, name in {**here, platform.platform(): "<platform>"}.items():
        text = text.replace(words, name)
    for pattern, replacement in REPLACED:
        text = re.sub(pattern, replacement, text)
    text = re.sub(rf'(wpriv |"(?:wpriv|version)": "){re.escape(__version__)}', r"\1<version>", text)
    return _without_seconds(text)


def _without_seconds(text: str) -> str:
    """Replace the wall times in the columns ``seconds`` of tables in CSV and HTML."""
    lines, place, separator = text.split("\n"), None, ""
    for number, line in enumerate(lines):
        if place is not None and separator in line and not line.startswith("["):
            cells = next(csv.reader([line])) if separator == "," else line.split(separator)
            cells[place] = re.sub("^[^<]*", "<time>", cells[place])
            lines[number] = separator.join(cells)
        elif ",seconds" in line:
            place, separator = line.split(",").index("seconds"), ","
        elif "<th>seconds</th>" in line and "<thead>" in line:
            place, separator = re.findall("<th>(.*?)</th>", line).index("seconds") + 1, "<td>"
        else:
            place = None
    return "\n".join(lines)


# ----------------------------------------------------------------------------------------------------------- comparison

NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")


def difference(kept: str, actual: str) -> str:
    """Return the lines that differ as a unified diff; empty where only numbers differ, within their tolerance."""
    if kept == actual:
        return ""
    before, after = kept.split("\n"), actual.split("\n")
    trained = _trained_lines(before)
    for tag, i1, i2, j1, j2 in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag == "replace" and i2 - i1 == j2 - j1:
            for i, j in zip(range(i1, i2), range(j1, j2), strict=True):
                if _close(before[i], after[j], TRAINED_TOLERANCE if trained[i] else TOLERANCE):
                    after[j] = before[i]
    return "\n".join(difflib.unified_diff(before, after, "kept", "printed now", lineterm="", n=2))


def _trained_lines(lines: list[str]) -> list[bool]:
    """Tell for each line whether its numbers come from a training."""
    trains = any(line.startswith(("$ wpriv train", "$ wpriv audit")) for line in lines)
    trained, title = [], ""
    for line in lines:
        if line.startswith(("[", "$ wpriv")):
            title = line
        of_training = trains and title.endswith(TRAINED_FILES)
        trained.append(of_training or bool(TRAINED_WORDS.search(line)))
    return trained


def _close(kept: str, actual: str, tolerance: float) -> bool:
    """Tell whether two lines have the same words, and numbers within a relative tolerance."""
    if NUMBER.split(kept) != NUMBER.split(actual):
        return False
    pairs = zip(map(float, NUMBER.findall(kept)), map(float, NUMBER.findall(actual)), strict=True)
    return all(abs(a - b) <= tolerance * max(abs(a), abs(b)) for a, b in pairs)


def path_of(case: Case) -> Path:
    """Return the file of a case."""
    return KEPT / f"{case.name}.txt"


def main() -> None:
    """Write the files of the named cases, or of all; a file with no case is removed."""
    from tests.blank_figures import figure_layout, finish, save

    parser = argparse.ArgumentParser(description="Write kept outputs anew.")
    parser.add_argument("--write", nargs="*", metavar="NAME", required=True)
    names = parser.parse_args().write
    figure_layout.finish, figure_layout.save = finish, save
    KEPT.mkdir(parents=True, exist_ok=True)
    for case in [CASES[name] for name in names] or CASES.values():
        path_of(case).write_text(produce(case), encoding="utf-8")
        print(path_of(case).relative_to(ROOT))
    for path in set(KEPT.glob("*.txt")) - {path_of(case) for case in CASES.values()}:
        path.unlink()


if __name__ == "__main__":
    main()
