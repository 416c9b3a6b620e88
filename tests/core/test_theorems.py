"""The table of theorems: what is accepted is what a list written by hand says, and every row names a proof.

Oracle: the list below, from the examination of each kind of release, sampling, neighbours and option.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from pathlib import Path

import pytest

from wpriv.core import registry, theorems
from wpriv.core.kinds import SAMPLINGS, Adjacency, Release, Sampling
from wpriv.core.process import Process, Step
from wpriv.core.theorems import BANDS, GROUP, LARGEST_BATCH, TABLE
from wpriv.errors import Unsupported
from wpriv.verify import certificate

THEORY = Path(__file__).parents[2] / "docs" / "theory"
A, R, Z, W, T, P = "add-remove", "replace-one", "zero-out", "replace-within-group", "any-two", "given-pair"
PARAMETERS = {
    "above-threshold": {"threshold_scale": 2.0, "query_scale": 4.0},
    "discrete-gauss": {"sigma": 2.0},
    "discrete-laplace": {"scale": 2.0},
    "dp": {"eps0": 0.7},
    "exponential": {"eps0": 0.5},
    "gauss": {"sigma": 1.3},
    "gauss-threshold": {"sigma": 2.0, "threshold": 9.0},
    "gdp": {"mu": 0.8},
    "histogram": {"file": "pair.csv"},
    "laplace": {"scale": 1.4},
    "laplace-threshold": {"scale": 1.0, "threshold": 12.0},
    "local-gauss": {"sigma": 1.3, "radius": 0.5},
    "local-laplace": {"scale": 1.4, "radius": 0.5},
    "matrix-gauss": {"sigma": 3.0, "strategy": "prefix:n=8", "separation": 4},
    "noisy-max": {"scale": 2.0},
    "permute-and-flip": {"eps0": 0.5},
    "projection": {"d": 20, "k": 5, "sigma": 1.0},
    "randomized-response": {"eps0": 1.2},
    "rdp-curve": {"file": "rdp.csv"},
    "top-k": {"scale": 2.0, "k": 3, "distribution": "laplace"},
    "truncated-gauss": {"sigma": 1.0, "bound": 2.5},
    "truncated-laplace": {"scale": 1.0, "bound": 3.0},
    "uniform": {"outcomes": 10},
    "wgrad": {"sigma": 1.0, "bound": 1.0, "lipschitz_x": 1.0, "size_x": 8, "size_z": 8},
    "zcdp": {"rho": 0.2},
}
PAIR = "outcome,p,q\n0,0.5,0.4\n1,0.5,0.6\n"
DIVERGENCES = "order,epsilon\n2,0.4\n16,3\n"
NOISE = "discrete-gauss discrete-laplace gauss laplace truncated-gauss truncated-laplace uniform"
RESPONSE, THRESHOLDS = "randomized-response", "gauss-threshold laplace-threshold"
SELECTIONS = "exponential above-threshold noisy-max permute-and-flip top-k"
# (sampling, option, adjacencies, mechanisms)
ACCEPTED = [
    ("none", "", (A, R, Z), f"{NOISE} {RESPONSE} {SELECTIONS} dp gdp zcdp rdp-curve matrix-gauss"),
    ("none", "", (W, T), "dp gdp zcdp rdp-curve"),
    ("none", "", (A, Z), THRESHOLDS),
    ("none", "", (T,), "local-gauss local-laplace"),
    ("none", "", (P,), "histogram"),
    ("none", "", (R,), "projection"),
    ("none", "", (W,), "wgrad"),
    ("none", GROUP, (A, R), f"{NOISE} {SELECTIONS} dp gdp zcdp matrix-gauss"),
    ("poisson", "", (A,), f"{NOISE} {RESPONSE} {THRESHOLDS} {SELECTIONS} dp gdp"),
    ("poisson", "", (Z,), f"{NOISE} {RESPONSE} {THRESHOLDS}"),
    ("poisson", "", (R,), "gauss"),
    ("poisson", GROUP, (A,), "gauss laplace gdp"),
    ("poisson", LARGEST_BATCH, (A,), "gauss laplace gdp"),
    ("poisson", BANDS, (A,), "gauss"),
    ("fixed", "", (R,), f"{NOISE} {RESPONSE} {SELECTIONS} dp gdp projection"),
    ("fixed", "", (W,), "wgrad"),
    ("fixed", GROUP, (R,), "gauss gdp"),
    ("allocation", "", (A,), f"discrete-gauss discrete-laplace gauss laplace {RESPONSE} dp gdp matrix-gauss"),
    ("allocation", "", (Z,), f"discrete-gauss discrete-laplace gauss laplace {RESPONSE}"),
    ("shuffle", "", (Z,), "gauss laplace"),
]


@pytest.fixture(scope="module")
def mechanisms(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    (folder / "pair.csv").write_text(PAIR)
    (folder / "rdp.csv").write_text(DIVERGENCES)
    built = {}
    for name, values in PARAMETERS.items():
        values = {key: str(folder / value) if key == "file" else value for key, value in values.items()}
        built[name] = registry.mechanism(name)(**values)
    return built


def process(mechanism, sampling, adjacency, options) -> Process:
    rate = 1.0 if sampling == "none" else 0.5
    cut, parts = (3 if LARGEST_BATCH in options else 0), (2 if BANDS in options else 1)
    drawn = Sampling(sampling, rate, cut, parts)
    if mechanism.name == "matrix-gauss" and sampling == "allocation":
        # its matrix has as many rows as the process has steps
        mechanism = dataclasses.replace(mechanism, strategy="prefix", separation=1)
    return Process((Step(mechanism, 2, drawn),), adjacency, 2 if GROUP in options else 1, 10)


def is_accepted(*combination) -> bool:
    try:
        process(*combination)
    except Unsupported as error:
        words = str(error)
        assert re.search(r"[Uu]se |[Gg]ive |[Ll]eave out|[Tt]ake |[Ss]tate ", words), words
        assert "\n" not in words
        return False
    return True


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_what_is_accepted_is_what_has_a_theorem_and_no_more(mechanisms, sampling):
    assert set(mechanisms) == set(registry.names("mechanisms"))
    assert len(mechanisms) >= 21
    options = [()] + [(GROUP,)] + ([(LARGEST_BATCH,), (BANDS,), (GROUP, BANDS)] if sampling == "poisson" else [])
    tried = accepted = 0
    for (name, mechanism), adjacency, chosen in itertools.product(mechanisms.items(), Adjacency, options):
        option = chosen[0] if chosen else ""
        expected = len(chosen) < 2 and any(
            (sampling, option) == row[:2] and adjacency in row[2] and name in row[3].split() for row in ACCEPTED
        )
        assert is_accepted(mechanism, sampling, adjacency, chosen) == expected, (name, sampling, adjacency, chosen)
        # where pairs are restricted by no parameter, the table says the same
        row = theorems.find(mechanism.release, sampling, adjacency, option)
        assert expected == (row is not None and len(chosen) < 2), (name, adjacency, chosen)
        tried, accepted = tried + 1, accepted + expected
    assert tried >= 21 * 6 * 2
    assert accepted >= {"none": 60, "poisson": 30, "fixed": 14, "allocation": 12, "shuffle": 2}[sampling]


def test_every_kind_of_release_is_that_of_a_mechanism_or_of_plug_ins():
    kinds = {registry.mechanism(name).release for name in registry.names("mechanisms")}
    assert kinds | {Release.PAIR} == set(Release)


def test_every_row_names_a_page_with_the_place_of_its_proof():
    assert len(TABLE) >= 30
    for row in TABLE:
        page, _, anchor = row.page.partition("#")
        text = (THEORY / page).read_text(encoding="utf-8")
        headings = [line.lstrip("# ") for line in text.splitlines() if line.startswith("#")]
        slugs = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
        assert not anchor or anchor in slugs, row.page


def test_no_combination_has_two_rows():
    for release, sampling, adjacency in itertools.product(Release, SAMPLINGS, Adjacency):
        for option in ("", GROUP, LARGEST_BATCH, BANDS):
            assert sum(row.covers(release, sampling, adjacency, option) for row in TABLE) <= 1


def test_the_verifier_knows_the_premises_of_what_it_proves_by_heart(mechanisms):
    proven = [mechanisms[name] for name in certificate.PARAMETERS]
    sentences = set()
    for mechanism, sampling, adjacency in itertools.product(proven, SAMPLINGS, Adjacency):
        for option in ("", GROUP, LARGEST_BATCH, BANDS):
            row = theorems.find(mechanism.release, sampling, adjacency, option)
            if row is not None and sampling != "shuffle":
                sentences |= {premise.sentence for premise in row.premises_of(mechanism.release)}
    assert sentences == set(certificate.PREMISES)
    assert theorems.HALF.sentence == certificate.HALF
    assert theorems.GIVEN.sentence == certificate.GIVEN
    assert theorems.ONLY_RECORDS_PUBLIC.sentence == certificate.SIZES


def test_a_plug_in_states_its_neighbours_and_whether_it_dominates():
    class Stated(registry.mechanism("gauss")):
        release = Release.PAIR
        adjacencies = (Adjacency.REPLACE_ONE,)

    fixed = Sampling("fixed", 0.5)
    assert Process((Step(Stated(1.0), 1, fixed),)).adjacency == "replace-one"
    with pytest.raises(Unsupported, match="states its pair under replace-one"):
        Process((Step(Stated(1.0)),), "add-remove")
    Stated.dominating = False
    with pytest.raises(Unsupported):
        Process((Step(Stated(1.0), 1, fixed),))


def test_options_are_not_combined(mechanisms):
    with pytest.raises(Unsupported, match="`group` and `max_batch`"):
        process(mechanisms["gauss"], "poisson", "add-remove", (GROUP, LARGEST_BATCH))
