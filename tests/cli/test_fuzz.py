"""Tests of random flags: no traceback, and no exit code 0 with a negative, infinite or missing number."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.command_line import call_alone as run
from tests.command_line import ends_in_error

pytestmark = pytest.mark.slow

CODES = {0, 1, 2, 3, 4}
ODD = [
    "nan",
    "inf",
    "-inf",
    "",
    " ",
    "0",
    "-0",
    "-1",
    "1e400",
    "1e-400",
    "0x10",
    "1/0",
    "0/0",
    "1/3",
    "2^20",
    "9**9999",
    "1,5",
    "\x00",
]
SANE = ["0.3", "1", "2", "5e-1", "10", "1e-5", "1000", "2**12"]
value = st.one_of(
    st.sampled_from(SANE), st.sampled_from(SANE), st.sampled_from(ODD), st.floats().map(str), st.text(max_size=8)
)
NUMBERS = ("sigma", "scale", "sensitivity", "n", "epochs", "rate", "batch", "records", "eps", "delta", "tol", "max-eps")
flag = st.one_of(
    st.tuples(st.sampled_from([f"--{name}" for name in NUMBERS]), value),
    st.tuples(
        st.just("--mech"),
        st.one_of(st.sampled_from(["gauss", "laplace", "randomized-response", "uniform"]), st.text(max_size=6)),
    ),
    st.tuples(st.just("--sampling"), st.sampled_from(["none", "poisson", "fixed", "", "x"])),
    st.tuples(
        st.just("--accountant"), st.one_of(st.sampled_from(["gdp", "rdp", "basic", "zcdp", "kov"]), st.text(max_size=6))
    ),
    st.tuples(st.just("--adjacency"), st.sampled_from(["add-remove", "replace-one", "", "x"])),
    st.tuples(
        st.just("--param"),
        st.one_of(st.sampled_from(["eps0=0.5", "outcomes=10", "=", "a=b", "n=3"]), st.text(max_size=8)),
    ),
    st.tuples(st.sampled_from(["--json", "--csv", "--quiet", "--explain", "--curve"])),
    st.tuples(st.text(max_size=8)),
)


def check(words: list[str]) -> None:
    code, out, err = run(words)
    assert code in CODES, (words, err)
    assert "Traceback" not in out + err
    if code > 1:
        assert out == "" or "--help" in words or "-h" in words
        assert ends_in_error(err, words, code)
    if code == 0 and "--json" in words:
        found = json.loads(out)
        for row in found.get("rows", [found]):
            for key in ("epsilon", "delta"):
                assert isinstance(row[key], (int, float))
                assert 0 <= row[key] < math.inf


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(["budget", "calibrate"]), st.lists(flag, max_size=7))
@example("budget", [("--mech", "gauss"), ("--sigma", "1e-320"), ("--delta", "1e-5")])
def test_no_flags_bring_a_traceback_or_a_bad_number(verb, flags):
    check([verb, *(word for part in flags for word in part)])


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(["gdp", "rdp", "basic", "advanced", "zcdp", "kov", "clt"]),
    st.sampled_from(["gauss --sigma", "laplace --scale"]),
    *(value for _ in range(4)),
)
@example("gdp", "gauss --sigma", "1", "0\x1f", "1", "1e-5")
@example("rdp", "gauss --sigma", "0.3", "1", "4.022342378982779e+153", "0.3")
def test_no_values_bring_a_traceback_or_a_bad_number(accountant, mechanism, noise, n, sensitivity, delta):
    name, noise_flag = mechanism.split()
    job = [
        "--mech",
        name,
        noise_flag,
        noise,
        "--n",
        n,
        "--sensitivity",
        sensitivity,
        "--delta",
        delta,
        "--accountant",
        accountant,
    ]
    check(["budget", *job, "--json"])


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.floats(0.05, 1e4),
    st.integers(1, 2**30),
    st.floats(1e-15, 0.5),
    st.floats(1e-6, 20),
    st.sampled_from(["gauss", "laplace"]),
)
def test_pld_budget_is_a_number_or_a_refusal(noise, n, delta, eps, mechanism):
    flag = "--sigma" if mechanism == "gauss" else "--scale"
    job = ["budget", "--mech", mechanism, flag, repr(noise * math.sqrt(n)), "--n", str(n), "--json"]
    check([*job, "--delta", repr(delta)])
    check([*job, "--eps", repr(eps)])


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=200))
def test_no_history_file_brings_a_traceback(tmp_path_factory, data):
    file = tmp_path_factory.getbasetemp() / "fuzzed.json"
    file.write_bytes(data)
    check(["budget", "--history", str(file), "--delta", "1e-5", "--accountant", "gdp", "--json"])


@pytest.mark.parametrize(
    "words", [["--eps", "1e308"], ["--eps", "5e-324"], ["--delta", "5e-324"], ["--delta", "0.9999999999999999"]]
)
def test_the_ends_of_the_number_line_are_answered_or_refused(words):
    check(["budget", "--mech", "gauss", "--sigma", "3", "--json", *words])
