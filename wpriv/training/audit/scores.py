"""Audits of any trainer: scores of canaries that were in a run and of others that were not, against a claimed curve."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import bdtr

from wpriv._version import __version__
from wpriv.config.plain_words import Claim
from wpriv.core.guarantee import STATISTICAL
from wpriv.core.mechanism import Mechanism
from wpriv.core.process import Process
from wpriv.errors import CheckFailed, UnknownName, UsageError
from wpriv.files import array_files, csv_tables, read_bytes, shown_path
from wpriv.files.csv_tables import CsvTable
from wpriv.files.shown import Shown
from wpriv.numerics.arrays import Array
from wpriv.numerics.numbers import finite_number, positive_number, short, shown, text, whole
from wpriv.results.model import Json
from wpriv.training.audit.claimed_curve import Tested, general, read_claim
from wpriv.training.audit.score_tests import BLOCK, CONFIDENCE, Bools, Guesses, Part, Ranked, Ranks, Sequential

SCHEMA = "wpriv.score-audit/1"
CANARIES, RUNS, MAX_RUNS = 2000, 200, 100_000
MAX_BYTES = 500_000_000
METHODS = {
    "one-run": "each canary was in by a fair coin of its own; their scores may depend on each other in any way",
    "independent": "canaries of one kind were in or out at random; given that, no score depends on another one",
    "two-worlds": "each score is that of a run of its own, with or without the same canary; the runs are independent",
    "sequential": "canaries were in or out at random; no score depends on another one; scores in the order of arrival",
}
SOURCES = {
    "one-run": "Steinke, Nasr, Jagielski 2023; Mahloujifar, Melis, Chaudhuri 2024; Theorem 1 of docs/theory/audits.md",
    "independent": "Theorem 2 of docs/theory/audits.md",
    "two-worlds": "Theorem 2 of docs/theory/audits.md",
    "sequential": "Ville 1939; Theorem 3 of docs/theory/audits.md",
}
ESTIMATE = "an audit is an estimate, and never a proof: that a claim is not refuted does not show that it holds"
REFUTED, KEPT = "refuted", "not refuted"
COIN_ERROR = 1e-6
WORDS = {"1": True, "true": True, "yes": True, "in": True, "0": False, "false": False, "no": False, "out": False}

Train = Callable[..., object]
Scores = tuple[ArrayLike, ArrayLike]
Evidence = Guesses | Ranks | Sequential


@dataclass(frozen=True)
class Bound:
    """A lower bound of eps at the audit's delta; ``premise`` is what it assumes besides the test, or empty."""

    epsilon_at_least: float
    premise: str


@dataclass(frozen=True, repr=False)
class ScoreAudit(Shown):
    """The answer of an audit of scores.

    Args:
        subject: where the scores are from. claim: what was tested. method: a name of METHODS.
        present, missing: the numbers of scores of canaries that were in and out.
        parts: the statistics of the test; together they err with at most one minus ``confidence``.
        bounds: lower bounds of eps, each at this confidence by itself.
        looks: of the sequential test, the number of scores after which it refuted the claim; else None.
        has_power: whether the best possible scores would have refuted the claim.
    """

    subject: str
    claim: Tested
    method: str
    present: int
    missing: int
    parts: tuple[Part, ...]
    bounds: tuple[Bound, ...]
    confidence: float
    seed: int
    looks: int | None
    has_power: bool

    @cached_property
    def p_value(self) -> float:
        """The p-value of the claim, over all statistics; for the sequential test it holds at all times."""
        return min([1.0, *(part.p_value / part.share for part in self.parts)])

    @property
    def refuted(self) -> bool:
        """Whether the claim is refuted at the stated confidence."""
        return self.p_value <= 1 - self.confidence

    @property
    def verdict(self) -> str:
        return REFUTED if self.refuted else KEPT

    @property
    def _percent(self) -> str:
        return f"{100 * self.confidence:.12g}%"

    def sentence(self) -> str:
        return f"{self.verdict} at confidence {self._percent}: {self.claim.label}"

    def facts(self) -> list[tuple[str, str]]:
        """What was tested, what the test assumes, its p-value or e-value, and the lower bounds of eps."""
        number = self.present + self.missing
        rows = [
            ("claim", f"eps = {text(self.claim.eps, up=True)} at delta {short(self.claim.delta)}"),
            ("scores", f"{self.subject}: {number}, {self.present} of canaries that were in and {self.missing} out"),
            ("test", f"{self.method}: {_words(self.parts, self.p_value)}"),
            ("assumes", METHODS[self.method]),
            ("p-value", text(self.p_value, up=True, digits=3)),
        ]
        if self.method == "sequential":
            rows[-1] = ("e-value", f"{text(1 / self.p_value, up=False, digits=3)}, at most by now")
            if self.looks is not None:
                rows.append(("stopped", f"the claim was refuted after {self.looks} scores"))
        at = f"at delta {short(self.claim.delta)} with {self._percent} confidence"
        for bound in self.bounds:
            premise = f", if {bound.premise}" if bound.premise else ""
            rows.append(("eps", f"at least {text(bound.epsilon_at_least, up=False)} {at}{premise}"))
        return rows

    @property
    def warnings(self) -> tuple[str, ...]:
        """That an audit proves nothing, and whether it could have refuted the claim at all."""
        powerless = "no scores of so many canaries could have refuted this claim: give more of them"
        return (ESTIMATE,) if self.has_power else (ESTIMATE, powerless)

    def require(self) -> None:
        """Raise if the claim is refuted.

        Raises:
            CheckFailed: it is.
        """
        if self.refuted:
            raise CheckFailed(f"{self.claim.label} is refuted at confidence {self._percent}")

    def as_dict(self) -> Json:
        """Return the answer as JSON holds it; ``estimate`` is what `wpriv check` takes as the premise ``claim``."""
        best = max(self.bounds, key=lambda bound: bound.epsilon_at_least)
        process = None if self.claim.process is None else self.claim.process.describe()
        return {
            "schema": SCHEMA,
            "claim": STATISTICAL,
            "tested": {
                "label": self.claim.label,
                "eps": self.claim.eps,
                "delta": self.claim.delta,
                **({"process": process} if process else {}),
            },
            "verdict": self.verdict,
            "confidence": self.confidence,
            "p_value": self.p_value,
            **({"e_value": 1 / self.p_value, "looks": self.looks} if self.method == "sequential" else {}),
            "method": self.method,
            "assumes": METHODS[self.method],
            "subject": self.subject,
            "canaries_in": self.present,
            "canaries_out": self.missing,
            "bounds": [asdict(bound) for bound in self.bounds],
            "estimate": {
                "eps": best.epsilon_at_least,
                "delta": self.claim.delta,
                "by": f"wpriv {__version__} audit",
                "kind": "estimate",
            },
            "parts": [asdict(part) for part in self.parts],
            "has_power": self.has_power,
            "seed": self.seed,
            "source": SOURCES[self.method],
            "warnings": list(self.warnings),
            "version": __version__,
        }


def _words(parts: tuple[Part, ...], p_value: float) -> str:
    """The statistic that gives the p-value, in words."""
    best = min(parts, key=lambda part: part.p_value / part.share)
    if best.name in ("in", "in or out"):
        return f'{best.number} of {best.of} guesses of "{best.name}" are right'
    if best.name == "ranks of all":
        return "the sum of the claim's privacy losses at the ranks of the canaries that were in"
    if best.name == "test martingale":
        return f"a {best.name}, largest after {best.number} of {best.of} scores"
    kind, place = best.name.split(", of the ")
    return f"{best.number} of the {best.of} {place} scores are of canaries that were {kind}"


def audit_scores(
    source: str | Path | Scores | Train,
    claim: str | Claim | Process | Mechanism,
    *,
    method: str = "one-run",
    delta: float | None = None,
    confidence: float = CONFIDENCE,
    canaries: int | None = None,
    references: int | None = None,
    runs: int | None = None,
    data: Scores | None = None,
    seed: int | None = None,
) -> ScoreAudit:
    """Test a claimed curve on scores, or on what a training function answers; see ``wpriv.audit``."""
    if method not in METHODS:
        raise UnknownName("method", method, tuple(METHODS))
    confidence = finite_number(confidence, "`confidence`")
    if not 0.5 <= confidence < 1:
        raise UsageError(f"`confidence` must be at least 0.5 and below 1; found {shown(confidence)}")
    if seed is not None and whole(seed, "`seed`") < 0:
        raise UsageError(f"`seed` must be at least 0; found {seed}")
    question = read_claim(claim, delta)
    if callable(source):
        number = secrets.randbits(53) if seed is None else seed
        subject, training = str(getattr(source, "__name__", type(source).__name__)), (canaries, references, runs, data)
        found = _trained(source, question, method, *training, subject=subject, seed=number, error=1 - confidence)
        return _concluded(subject, question, method, *found, confidence, number)
    given = {"canaries": canaries, "references": references, "runs": runs, "data": data}
    if others := [name for name, value in given.items() if value is not None]:
        raise UsageError(f"`{others[0]}` is for the audit of a training function, and scores were given: leave it out")
    subject, scores, included = _read(source)
    return _concluded(subject, question, method, scores, included, None, confidence, seed or 0)


def _concluded(
    subject: str,
    claim: Tested,
    method: str,
    scores: Array,
    included: Bools,
    coins: Bools | None,
    confidence: float,
    seed: int,
) -> ScoreAudit:
    """Test the claim, and bound eps from below by the families of (eps, delta) and of the claim."""
    present = int(included.sum())
    if not 0 < present < len(included):
        raise UsageError(
            f"an audit compares canaries that were in with others that were out; found {present} in and "
            f"{len(included) - present} out"
        )
    if method == "one-run":
        _require_coins(included if coins is None else included[coins])
    error = 1 - confidence
    observed = evidence(method, claim, scores, included, coins, seed)
    counts = replace(observed, weights=None) if isinstance(observed, Ranks) else observed
    families = [(counts, general(claim.delta)), *([(observed, claim.own)] if claim.own else [])]
    bounds = tuple(Bound(family.bound(partial(each.rejects, error=error)), family.premise) for each, family in families)
    perfect = evidence(method, claim, included.astype(float), included, coins, seed)
    looks = None
    if isinstance(observed, Sequential):
        looks = next((end for end, log in observed.wealth(claim.null) if log >= -math.log(error)), None)
    has_power = perfect.rejects(claim.null, error)
    parts = observed.parts(claim.null)
    numbers = (present, len(included) - present)
    return ScoreAudit(subject, claim, method, *numbers, parts, bounds, confidence, seed, looks, has_power)


def evidence(method: str, claim: Tested, scores: Array, included: Bools, coins: Bools | None, seed: int) -> Evidence:
    """What the scores show, by one of METHODS; ``coins`` says on which canaries a coin decided, None for all."""
    if method == "sequential":
        return Sequential(scores, included, seed)
    ranked = Ranked.of(scores, included, seed, coins)
    if method == "one-run":
        return Guesses(ranked)
    return Ranks(ranked, None if claim.is_point else claim.null.weights(ranked.present, ranked.missing))


def _require_coins(included: Bools) -> None:
    """Refuse canaries of one run that were not in by fair coins."""
    number, present = len(included), int(included.sum())
    if 2 * float(bdtr(min(present, number - present), number, 0.5)) < COIN_ERROR:
        raise UsageError(
            f"`method='one-run'` is for canaries that were in by fair coins, and {present} of {number} were in: give "
            f"the canaries of the coins alone, or `method='independent'` if no score depends on another one"
        )


def _read(source: object) -> tuple[str, Array, Bools]:
    """Read scores and labels: from arrays, from a CSV or NPZ file, or from a folder that holds one of both."""
    if isinstance(source, tuple) and len(source) == 2:
        return "arrays", *_checked(*source, "the arrays")
    if not isinstance(source, (str, Path)):
        raise UsageError(
            f"an audit of scores needs a file, a folder, a tuple (scores, included) or a function; found "
            f"{shown(source)}"
        )
    path = Path(source)
    if path.is_dir():
        known = [path / name for name in ("scores.csv", "scores.npz") if (path / name).is_file()]
        if len(known) != 1:
            raise UsageError(f"{path} must hold one of scores.csv and scores.npz; found {len(known)} of them")
        path = known[0]
    try:
        raw = read_bytes(path, MAX_BYTES)
    except OSError as error:
        raise UsageError(f"{shown_path(path)} cannot be read: {error.strerror}") from None
    if len(raw) > MAX_BYTES:
        raise UsageError(f"{shown_path(path)} has more than {MAX_BYTES:,} bytes")
    reader = _of_npz if path.suffix == ".npz" else _of_csv
    return shown_path(path), *reader(path, raw)


def _of_csv(path: Path, raw: bytes) -> tuple[Array, Bools]:
    """The columns ``score`` and ``in`` of a CSV file; ``in`` is 1 or 0, true or false, yes or no, in or out."""
    try:
        table = CsvTable.parse(csv_tables.decode(raw))
        for name in ("score", "in"):
            if name not in table.names:
                raise UsageError(
                    f"{shown_path(path)} needs the columns score and in; found {', '.join(table.names)[:80]}: score is "
                    f"larger where a canary seems to be in, and in is 1 if it was, else 0"
                )
        columns = table.columns(numeric=("score",))
        labels = [WORDS.get(str(cell).strip().lower().removesuffix(".0")) for cell in columns["in"]]
        if None in labels:
            row = labels.index(None)
            line, cell = table.line(row), str(columns["in"][row])[:40]
            raise UsageError(f"{shown_path(path)}:{line}: `in` must be 1 or 0; found {cell!r}")
    except csv_tables.CsvError as error:
        raise UsageError(f"{shown_path(path)}: {error}") from None
    return _checked(columns["score"], np.array(labels, bool), shown_path(path))


def _of_npz(path: Path, raw: bytes) -> tuple[Array, Bools]:
    del raw
    try:
        arrays = array_files.npz(path, MAX_BYTES)
    except array_files.DAMAGED as error:
        raise UsageError(f"{path} is no readable NPZ file: {error}") from None
    if not {"score", "in"} <= arrays.keys():
        raise UsageError(f"{path} needs the arrays score and in; found {', '.join(arrays)[:80] or 'none'}")
    return _checked(arrays["score"], arrays["in"], str(path))


def _checked(scores: object, included: object, where: str) -> tuple[Array, Bools]:
    """Return scores as numbers and labels as truth values, or refuse them."""
    try:
        numbers = np.asarray(scores, dtype=np.float64)
        labels = np.asarray(included)
        labels = labels if labels.dtype == bool else labels.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{where}: scores and labels must be numbers: {error}") from None
    if numbers.ndim != 1 or labels.shape != numbers.shape:
        raise UsageError(
            f"{where}: scores and labels are one number for each canary; found shapes {numbers.shape} and "
            f"{labels.shape}"
        )
    if (bad := np.flatnonzero(np.isnan(numbers))).size:
        raise UsageError(f"{where}: score {bad[0] + 1} is NaN: a score must be a number, which ranks the canary")
    if not np.isin(labels, (0, 1)).all():
        raise UsageError(f"{where}: labels must be 1 for canaries that were in, and 0 for others")
    return numbers, labels.astype(bool)


def _trained(
    train: Train,
    claim: Tested,
    method: str,
    canaries: int | None,
    references: int | None,
    runs: int | None,
    data: Scores | None,
    *,
    subject: str,
    seed: int,
    error: float,
) -> tuple[Array, Bools, Bools]:
    """Run a training as often as the method needs; scores, labels, and whether a coin decided on each.

    Args:
        train: called with truth values, one for each canary, which say whether it takes part; it returns a score for
            each. With ``data`` it is called with the records and labels instead, canaries among them, and returns a
            function that gives the scores of records and labels.
        subject: its name. error: one minus the confidence. Others: as in ``wpriv.audit``.
    """
    single = method in ("two-worlds", "sequential")
    if single:
        for name, value in (("canaries", canaries), ("references", references)):
            if value is not None:
                raise UsageError(f"`method='{method}'` has one canary in each run; leave out `{name}`")
    elif runs is not None:
        raise UsageError(f"`method='{method}'` trains once; leave out `runs`, or give `method='two-worlds'`")
    number = CANARIES if canaries is None else positive_number(canaries, "`canaries`", whole=True)
    number = 1 if single else number
    others = _references(references, method, number)
    runs = RUNS if runs is None else positive_number(runs, "`runs`", whole=True)
    runs = runs if single else 1
    if runs > MAX_RUNS:
        raise UsageError(f"`runs` must be at most {MAX_RUNS}; found {runs}")
    random = np.random.default_rng([seed, 3])
    scored = train if data is None else _with_canaries(train, data, number + others, random)
    # canaries that never take part stand among the others, so that all sets of canaries are as likely to be in
    coins = random.permutation(np.arange(number + others) < number)
    scores, labels = np.empty(0), np.empty(0, bool)
    size = BLOCK if method == "sequential" else runs
    for run in range(runs):
        if single:
            if run % size == 0:  # half of the runs, or of a block of them, have the canary
                present = random.permutation(np.arange(size) % 2 == 0)
            included = present[[run % size]]
        else:
            included = coins & (random.random(len(coins)) < 0.5)
        one, _ = _checked(scored(included.copy()), included, f"run {run + 1} of {subject}")
        scores, labels = np.concatenate([scores, one]), np.concatenate([labels, included])
        full = method == "sequential" and len(scores) % BLOCK == 0
        if full and Sequential(scores, labels, seed).rejects(claim.null, error):
            break
    return scores, labels, np.tile(coins, len(scores) // len(coins))


def _references(given: int | None, method: str, number: int) -> int:
    """Canaries that never take part; they cost no training, and one run has no use for them."""
    if method != "independent":
        if given:
            raise UsageError(f"`references` are for `method='independent'`; found `method='{method}'`")
        return 0
    count = whole(number if given is None else given, "`references`")
    if count < 0:
        raise UsageError(f"`references` must be at least 0; found {count}")
    return count


def _with_canaries(train: Train, data: Scores, number: int, random: np.random.Generator) -> Callable[[Bools], object]:
    """Return a function that trains on the records and on the canaries that are in, and scores all canaries.

    Each value of a canary is that of a random record at its place, and its label that of a random record. It has the
    range of the others and no more to do with its label than by chance, so that a model can fit it by memory alone.
    """
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        raise UsageError(f"`data` is a pair of records and labels; found {shown(data)}")
    x, y = (np.asarray(each) for each in data)
    if x.ndim < 1 or y.ndim < 1 or len(x) != len(y) or len(x) == 0:
        raise UsageError(f"`data` is records and as many labels; found shapes {x.shape} and {y.shape}")
    flat = x.reshape(len(x), -1)
    chosen = random.integers(len(x), size=(number, flat.shape[1]))
    canaries = flat[chosen, np.arange(flat.shape[1])].reshape(number, *x.shape[1:])
    labels = y[random.integers(len(y), size=number)]

    def scores(included: Bools) -> object:
        score = train(np.concatenate([x, canaries[included]]), np.concatenate([y, labels[included]]))
        if not callable(score):
            raise UsageError(
                "with `data`, the training function returns a function of records and labels that gives their scores; "
                f"found {shown(score)}"
            )
        return score(canaries, labels)

    return scores
