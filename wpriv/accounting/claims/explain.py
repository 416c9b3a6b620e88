"""The verb ``explain``: what a guarantee means for one record, for several, and beside published deployments."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wpriv._version import __version__
from wpriv.accounting import build_process, evaluate
from wpriv.accounting import membership_figures as attacks
from wpriv.accounting.budget import runs_in_advance
from wpriv.accounting.membership_figures import Attacks, Known, Mu, Pair, Ran, Rho
from wpriv.config.plain_words import Claim, parse_claim
from wpriv.core.guarantee import RIGOROUS, Guarantee
from wpriv.core.guarantee import SCHEMA as GUARANTEE
from wpriv.core.mechanism import Mechanism
from wpriv.core.membership import Membership
from wpriv.core.process import Process, Step
from wpriv.errors import UnknownName, Unsupported, UsageError
from wpriv.files import STDIN, read_bytes
from wpriv.files.shown import Shown
from wpriv.numerics.numbers import echo, number, raised, rounded, short, shown, text, whole

if TYPE_CHECKING:
    from wpriv.results.model import Figure, Releases, Reports

SCHEMA = "wpriv.explanation/1"
RELEASE = "release.json"  # in the folder of released numbers
RATES = (1e-2, 1e-3, 1e-4, 1e-5)
PRIOR, DELTA, PEOPLE, RELEASES = 0.01, 1e-5, 4, 10
MOST = 10**6  # people or releases
MOST_BYTES = 2**24  # of a guarantee in a file
# published deployments by what they protect; how many are shown
UNITS = {
    "person": "all data of a person, device or user",
    "period": "the data of a person in a period, such as a day",
    "event": "an event, such as a trip",
    "household": "a housing unit",
}
NEAREST = 5
# answers beyond the Bayes factor, as a multiple of delta
SHARES = 10
# a right guess of at least this probability is a bound that excludes almost nothing
NEARLY_SURE = 0.999
DIGITS = 4

FORMS = (
    "eps=3,delta=1e-5; eps=1 (pure DP); mu=1; rho=0.5, with xi=0.1 or not; a folder of a training or a release; a "
    "history; or words such as 'gauss sigma=4 n=10'"
)


@dataclass(frozen=True)
class Rate:
    """The tests with one false-positive rate, at most.

    Args:
        fpr: the false-positive rate. tpr: the largest true-positive rate; also the largest probability of naming the
            right one of 1 / fpr equally likely values of a record.
        posterior: the largest probability that a record was used which such a test, or one of a larger rate, reports.
    """

    fpr: float
    tpr: float
    posterior: float


@dataclass(frozen=True)
class Together:
    """The guarantee for several people, each of whom is a record, or for several such releases."""

    people: int
    releases: int
    guarantee: str
    epsilon: float
    delta: float
    right_guess: float

    def __str__(self) -> str:
        return f"{self.people} people" if self.people > 1 else f"{self.releases} such releases"


@dataclass(frozen=True)
class Deployment:
    """A published use of differential privacy.

    Args:
        name, by, year: what was published, and by whom. protects: a key of ``UNITS``. unit: the same in words.
        model: central, local or federated. guarantee: as it was published. epsilon: at ``delta``, which is the
            published one; where rho was published, that of the explanation, at most 1e-5.
        source: the publication. registry: its file in the Differential Privacy Deployments Registry.
    """

    name: str
    by: str
    year: int
    protects: str
    unit: str
    model: str
    guarantee: str
    epsilon: float
    delta: float
    source: str
    registry: str

    def __str__(self) -> str:
        return f"{self.by} {self.year}: {self.name}{'' if self.model == 'central' else f' ({self.model})'}"

    def shown_epsilon(self) -> str:
        """eps as text, rounded up."""
        return _up(self.epsilon)


@dataclass(frozen=True, repr=False)
class Explanation(Shown):
    """What a guarantee means. All numbers are upper bounds for every attacker, who may know all else.

    Args:
        about: the guarantee. process: what ran, where it is known. notion: approximate-dp, gdp, zcdp or process.
        claim: exact (some release with this guarantee allows as much), certified or upper-bound. source: the theorem.
        epsilon, delta: a pair that holds; epsilon may be infinite.
        right_guess: the largest probability of a right guess at even odds. advantage: the largest TPR - FPR.
        prior, bayes_factor, posterior: no answer raises the odds by more than the factor, nor ``prior`` to more than
            ``posterior``, but for a share ``beyond`` of the answers, about which nothing is said.
        rates: tests by their false-positive rates. together: several people and releases.
        unit: what the ``deployments`` beside it protect.
        warnings: where a bound says little. limits: what the guarantee does not say.
    """

    about: str
    process: Process | None
    notion: str
    claim: str
    source: str
    epsilon: float
    delta: float
    right_guess: float
    advantage: float
    prior: float
    bayes_factor: float
    posterior: float
    beyond: float
    rates: tuple[Rate, ...]
    together: tuple[Together, ...]
    unit: str
    deployments: tuple[Deployment, ...]
    warnings: tuple[str, ...]
    limits: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """The JSON object of the command line (schema ``wpriv.explanation/1``), with infinities still floats."""
        ran = {} if self.process is None else {"adjacency": str(self.process.adjacency), "group": self.process.group}
        steps = None if self.process is None else self.process.describe()
        return {
            "schema": SCHEMA,
            **asdict(replace(self, process=None)),
            "process": steps,
            **ran,
            "version": __version__,
        }

    def sentence(self) -> str:
        return (
            f"{self.about}: a guess at even odds whether a record was used is right with a probability of at most "
            f"{percent(self.right_guess)}"
        )

    def facts(self) -> list[tuple[str, str]]:
        """Return the process and the bounds on attackers, each with its label."""
        rows = [] if self.process is None else self.process.facts()
        rows += [
            ("right at even odds", f"{percent(self.right_guess)}, a guess whether a record was used (blind: 50%)"),
            ("advantage", f"{_up(self.advantage)}, largest TPR minus FPR of any test"),
            ("Bayes factor", f"{_up(self.bayes_factor)}, by which an answer raises the odds of use"),
            (f"from {percent(self.prior)} to", f"{percent(self.posterior)}, probability of use after an answer"),
        ]
        if self.beyond:
            rows.append(("except for", f"at most {_up(self.beyond)} of the answers, which may exceed the last two"))
        if self.notion == "process":
            kind = "upper bounds" if self.claim == "upper-bound" else self.claim
            return [*rows, ("claim", f"{kind} by {self.source}, from the whole privacy curve")]
        attained = "the worst release with this guarantee allows as much" if self.claim == "exact" else "upper bounds"
        return [*rows, ("claim", f"{attained} ({self.source})")]


def explain(
    what: str | Path | Guarantee | Process | Mechanism | None = None,
    *,
    eps: object = None,
    delta: object = None,
    mu: object = None,
    rho: object = None,
    xi: object = None,
    prior: object = PRIOR,
    people: object = PEOPLE,
    releases: object = RELEASES,
    unit: str = "person",
) -> Explanation:
    """Say what a guarantee means: attacks at most, several people and releases, deployments, and its limits.

    Args:
        what: ``"eps=3,delta=1e-5"``, ``"mu=1"``, ``"rho=0.5"`` or ``"xi=0.1,rho=0.5"`` (or keywords of these names);
            a process as text (a folder, a history, ``"gauss sigma=4 n=10"``), or a ``Guarantee``, ``Process`` or
            ``Mechanism``.
        delta: beside mu, rho or a process: that of its pair of eps and delta (default 1e-5).
        prior: the probability, before the answer, that the record was used, in (0, 1).
        people, releases: how many are looked at together, from 1 on.
        unit: what compared deployments protect: person, period, event or household.
    Raises:
        UsageError: an argument is wrong. Unsupported: no accountant has proven bounds for the process.

    >>> explain("eps=3,delta=1e-5").advantage < 0.90515
    True
    """
    known, notes = _known(what, {"eps": eps, "delta": delta, "mu": mu, "rho": rho, "xi": xi})
    before, several, times = number(prior, "`prior`"), whole(people, "`people`"), whole(releases, "`releases`")
    if not 0 < before < 1:
        raise UsageError(f"`prior` is a probability above 0 and below 1; found {echo(before)}")
    for name, count in (("people", several), ("releases", times)):
        if not 1 <= count <= MOST:
            raise UsageError(f"`{name}` is a whole number from 1 to {MOST}; found {count}")
    if unit not in UNITS:
        raise UnknownName("unit", unit, list(UNITS))
    bounds, (epsilon, at) = known.attacks(RATES), known.pair()
    factor, beyond = _bayes_factor(known)
    return Explanation(
        str(known),
        known.process if isinstance(known, Ran) else None,
        {Mu: "gdp", Rho: "zcdp", Ran: "process"}.get(type(known), "approximate-dp"),
        bounds.claim,
        bounds.source,
        epsilon,
        at,
        bounds.right_guess,
        bounds.advantage,
        before,
        factor,
        _posterior(before, factor, 1.0),
        beyond,
        tuple(Rate(fpr, most, _posterior(before, most, fpr)) for fpr, most in bounds.tpr.items()),
        tuple(_together(known, several, times)),
        unit,
        tuple(_nearest(epsilon, min(at, DELTA) or DELTA, unit)),
        tuple(_warnings(known, bounds, notes)),
        tuple(_limits(known)),
    )


def _bayes_factor(known: Known) -> tuple[float, float]:
    """A factor by which no answer raises the odds but those of a share, and that share; the record is used.

    A share s of answers with a loss above l contributes s (1 - e^(eps - l)) to delta at least, at every eps: of a pair,
    and over a curve in ``_largest_odds``. The largest loss holds for all answers.
    """
    eps, delta = known.pair()
    largest, share = evaluate.largest_loss(known.process) if isinstance(known, Ran) else math.inf, SHARES * delta
    pure = _power(largest if delta else min(eps, largest))
    if not 0 < share < 1:
        return pure, 0.0
    factor, curve = raised(_power(eps) / (1 - 1 / SHARES)), known.curve()
    if curve is not None:
        factor = min(factor, _largest_odds(Membership(curve), share))
    return (pure, 0.0) if pure <= factor else (factor, share)


def _power(eps: float) -> float:
    """e^eps, rounded up; infinite where it is near the largest double."""
    return 1.0 if eps == 0 else raised(math.exp(eps)) if eps < 700 else math.inf


def _largest_odds(bounds: Membership, share: float) -> float:
    """Bound the likelihood ratio that all but a share of the answers stay below: the least of e^eps / (1 - delta/s).

    A test that flags a share s of the answers has FPR >= e^-eps (s - delta) at every eps; in the other order of the
    neighbours that is the FNR of a test with FPR = 1 - s.
    """
    rate = math.nextafter(1 - share, 1.0)
    (point,) = bounds.error_rates([rate])
    return raised(share / point.fnr_lower) if point.fnr_lower > 0 else math.inf


def _posterior(prior: float, positives: float, negatives: float) -> float:
    """Bayes' rule, rounded up, for an answer that is ``positives`` to ``negatives`` as likely with the record."""
    if positives == negatives:
        return prior
    return min(1.0, raised(prior / (prior + (1 - prior) * negatives / positives)))


def _known(what: object, given: dict[str, object]) -> tuple[Known, Sequence[str]]:
    """What is known of the release that the arguments name, and notes on it."""
    keywords = {name: value for name, value in given.items() if value is not None}
    if what is None:
        if not keywords:
            raise UsageError(f"wanted a guarantee or a process: {FORMS}; found none")
        return _of_claim(parse_claim(",".join(f"{name}={value}" for name, value in keywords.items())), None), ()
    if others := keywords.keys() - {"delta"}:
        raise UsageError(f"`{min(others)}` is a guarantee of its own; leave it out, or {shown(what)}")
    delta = number(keywords["delta"], "`delta`") if keywords else None
    if delta is not None and not 0 <= delta < 1:
        raise UsageError(f"`delta` is at least 0 and below 1; found {echo(delta)}")
    if isinstance(what, Guarantee):
        return _of_guarantee(what, delta), what.warnings
    if isinstance(what, (Process, Mechanism)):
        return attacks.ran(build_process.described_process(what).process, DELTA if delta is None else delta), ()
    if not isinstance(what, (str, Path)):
        raise UsageError(f"wanted a guarantee or a process: {FORMS}; found {shown(what)}")
    return _of_text(str(what), delta)


def _of_text(what: str, delta: float | None) -> tuple[Known, Sequence[str]]:
    piped = read_bytes(STDIN, MOST_BYTES).decode("utf-8", "replace").strip() if what == STDIN else ""
    what = piped if re.match(r"\w+\s*=", piped) else what
    words = what.replace(",", " ").split()
    # unlike those of a Path, these functions take any text
    if words and "=" in words[0] and not os.path.exists(what):
        return _of_claim(parse_claim(",".join(words)), delta), ()
    if 1 <= len(words) <= 2 and all(re.fullmatch(r"\d*\.?\d+(e[-+]?\d+)?", word) for word in words):
        meant = ",".join(f"{name}={word}" for name, word in zip(("eps", "delta"), words, strict=False))
        raise UsageError(f"wanted a guarantee or a process: {FORMS}; found {what}. Did you mean {meant}?")
    if os.path.isfile(os.path.join(what, RELEASE)):
        return _of_release(Path(what), delta)
    if os.path.isfile(os.path.join(what, "statement.json")):
        return _of_folder(Path(what), delta)
    from wpriv.accounting.claims.verify_claim import described  # which loads pydantic

    stated, of_several_runs = _stated(what)
    if stated is not None and stated.is_proven and (of_several_runs or stated.accountant not in evaluate.PROVING):
        return _pair_alone(float(stated.epsilon), float(stated.delta), delta), ()
    named = described(what)
    share = DELTA if stated is None else float(stated.delta)
    known = attacks.ran(named.process, share if delta is None else delta)
    return known, runs_in_advance(named, evaluate.PROVING[0])


def _stated(what: str) -> tuple[Figure | None, bool]:
    """The guarantee that a file of ``--json`` holds, None of anything else; whether it is that of the best of runs."""
    from wpriv.results import model

    if what != STDIN and not (what.endswith(".json") and os.path.isfile(what)):
        return None, False
    try:
        data = json.loads(read_bytes(what, MOST_BYTES))
    except ValueError:  # words or a recipe on standard input
        return None, False
    if not isinstance(data, dict) or data.get("schema") != GUARANTEE:
        return None, False
    return model.checked(model.Figure, data, Path(what), "Write it again by --json"), data.get("repeats") is not None


def _of_guarantee(row: Guarantee, delta: float | None) -> Known:
    """The process of a guarantee; its pair alone where that holds for more than the process, as for tuned runs."""
    if row.notion != "approximate-dp" or row.claim not in RIGOROUS:
        raise Unsupported(
            f"only proven (eps, delta)-DP bounds attackers; this is {row.claim} {row.notion} by {row.accountant}. Use "
            f"`accountant='pld'`"
        )
    if row.accountant not in evaluate.PROVING or "repeats" in row.extra:
        return _pair_alone(row.epsilon.safe, row.delta.safe, delta)
    return Ran(row.process, row.epsilon.safe, row.delta.safe) if delta is None else attacks.ran(row.process, delta)


def _pair_alone(eps: float, at: float, delta: float | None) -> Pair:
    if delta is not None:
        raise UsageError(f"only eps at delta = {short(at)} is known of this guarantee; leave out `delta`")
    return Pair(eps, at)


def _of_claim(claim: Claim, delta: float | None) -> Known:
    if claim.notion == "approximate-dp":
        if delta is not None:
            raise UsageError(f"{claim} has its delta; give it as in eps=3,delta=1e-5, and leave out `delta`")
        return Pair(claim.eps, claim.delta)
    if claim.fpr:
        raise UsageError("mu with fpr holds for some tests only; explain the process instead, or a mu of all tests")
    share = DELTA if delta is None else delta
    if not claim.mu + claim.rho:
        return Pair(claim.xi, 0.0)
    if share == 0:
        raise UsageError(f"{claim} gives no finite eps at delta = 0; give a `delta` above 0, such as 1e-5")
    return Mu(claim.mu, share) if claim.mu else Rho(claim.rho, share, claim.xi)


def _of_folder(path: Path, delta: float | None) -> tuple[Known, Sequence[str]]:
    """A finished training: its process at the delta of its statement; of the best of several runs the pair alone."""
    from wpriv.results import model, storage

    statement = model.read(model.Statement, path / storage.STATEMENT)
    source = statement.protection
    row = None if source is None else source.best
    if source is None or row is None:
        raise Unsupported(f"{path} has no proven guarantee, so that nothing bounds an attacker")
    compared = () if statement.releases is None else statement.releases.for_comparison
    others = {line for each in compared for line in each.warnings}
    notes = [line for line in statement.warnings if line not in others]
    process = process_of(source, row)
    if process is None:
        return _pair_alone(float(row.epsilon), float(row.delta), delta), notes
    stated = Ran(process, float(row.epsilon), float(row.delta))
    return stated if delta is None else attacks.ran(process, delta), notes


def _of_release(path: Path, delta: float | None) -> tuple[Known, Sequence[str]]:
    """The numbers of a table that were released into a folder."""
    try:
        stated = json.loads((path / RELEASE).read_text(encoding="utf-8"))["guarantee"]
        steps = tuple(Step.from_dict(row) for row in stated["process"])
        row = Guarantee.of_dict(stated, Process(steps, stated["adjacency"]))
    except (OSError, ValueError, KeyError, TypeError):
        raise UsageError(f"{path / RELEASE} is damaged or no release of wpriv; release it again") from None
    return _of_guarantee(row, delta), row.warnings


def _together(known: Known, people: int, releases: int) -> Iterable[Together]:
    for persons, times in ((people, 1), (1, releases)):
        if persons * times > 1:
            case = known.grouped(persons) if persons > 1 else known.repeated(times)
            yield Together(persons, times, str(case), *case.pair(), case.attacks(()).right_guess)


def _nearest(epsilon: float, delta: float, unit: str) -> list[Deployment]:
    """The deployments of one unit whose eps is nearest in proportion, by increasing eps."""
    if not 0 < epsilon < math.inf:
        return []
    near = sorted(_deployments(delta, unit), key=lambda row: abs(math.log(row.epsilon / epsilon)))[:NEAREST]
    return sorted(near, key=lambda row: row.epsilon)


def _deployments(delta: float, unit: str) -> Iterable[Deployment]:
    rows = json.loads(Path(__file__).with_name("deployments.json").read_text(encoding="utf-8"))["deployments"]
    for row in rows:
        if row["protects"] != unit:
            continue
        stated = {name: row.pop(name) for name in ("eps", "delta", "rho") if name in row}
        claim = ", ".join(f"{name} {short(value)}" for name, value in stated.items())
        eps, share = Rho(stated["rho"], delta).pair() if "rho" in stated else (stated["eps"], stated.get("delta", 0.0))
        yield Deployment(**row, guarantee=claim, epsilon=eps, delta=share)


def _warnings(known: Known, bounds: Attacks, notes: Sequence[str]) -> Iterable[str]:
    if bounds.right_guess >= NEARLY_SURE:
        yield (
            f"this excludes almost nothing: a guess at even odds may be right with {percent(bounds.right_guess)}. A "
            f"smaller eps says more, or the whole privacy curve of what ran"
        )
    caveats = known.process.caveats() if isinstance(known, Ran) else ()
    yield from dict.fromkeys([*notes, *caveats])


def _limits(known: Known) -> Iterable[str]:
    yield "It bounds what one record adds: what statistics of a population tell about a person, they tell anyway."
    yield "A record is what neighbours differ in: a person with several records counts as several people."
    yield "Other data and other releases about the same people add to it; so do timings, errors and logs."
    yield "It is about a mechanism on paper: not whether a program adds that noise, nor how accurate its answers are."
    # a pair alone allows that; mu, rho and the curve of a process do not
    if isinstance(known, Pair) and known.pair()[1]:
        delta = short(known.pair()[1])
        yield f"delta = {delta} lets a record be published with that probability: keep it far below 1 / records."


# What a statement of a training says of an attacker, in sentences.

STATED_RATES = (1e-3, 1e-2, 0.1)


def process_of(source: Releases | Reports, row: Figure) -> Process | None:
    """The process of a guarantee in a statement; None of the best of several runs, and where it is not known."""
    if source.tuning is not None:
        return None
    group = source.group if source.group > 1 else None
    records = source.delta.records if group and source.delta else None
    try:
        process = build_process.process(row.process, source.adjacency, group=group, records=records)
        attacks.curve_of(process)
    except (Unsupported, UsageError):
        return None
    return process


def of_statement(source: Releases | Reports, row: Figure) -> list[str]:
    """Return the reading of a guarantee in sentences, numbers rounded up.

    They are those of the privacy curve of what ran, or of the pair of eps and delta alone where the statement does not
    describe that process, or no accountant bounds it.
    """
    eps, delta, process = float(row.epsilon), float(row.delta), process_of(source, row)
    if process is None:
        bounds = Pair(eps, delta).attacks(STATED_RATES)
        origin = "These follow from this one pair of eps and delta; the whole privacy curve gives at most as much."
    else:
        bounds = Ran(process, eps, delta).attacks(STATED_RATES)
        origin = f"These are certified by {bounds.source} from the whole privacy curve of what ran."
    tests = [(f"{100 * rate:g}%", percent(most)) for rate, most in bounds.tpr.items()]
    return [
        "Whoever knows two neighbouring data sets, and guesses at even odds which of them was used, is right with a "
        f"probability of at most {percent(bounds.right_guess)}; guessing is right with 50%.",
        *(f"A test with a false-positive rate of {a} has a true-positive rate of at most {b}." for a, b in tests),
        origin,
    ]


def _up(value: float) -> str:
    """A number with four digits, rounded up."""
    digits = short(rounded(value, up=True, digits=DIGITS))
    return digits if len(digits) < 10 else f"{float(digits):.{DIGITS}g}"


def percent(share: float) -> str:
    """A probability in percent, rounded up; near 100% with two digits of what is missing."""
    missing = 100 * (1 - share)
    digits = DIGITS if missing >= 1 else min(3 - math.floor(math.log10(missing)), 12) if missing > 1e-9 else DIGITS
    return f"{text(min(100.0, 100 * share), up=True, digits=digits)}%"
