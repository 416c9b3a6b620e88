"""``compare --why``: account for one set of flags under every interpretation that tools and papers give it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wpriv.accounting import best_of_runs, build_process, evaluate
from wpriv.config.plain_words import plain_step
from wpriv.config.schema import BOUND_COLUMNS
from wpriv.core import registry
from wpriv.core.group_pairs import MAX_SAMPLED_GROUP
from wpriv.core.kinds import STANDARD_ADJACENCIES, Adjacency, Neighbours, Poisson, Sampling, sampling_kind
from wpriv.core.process import Process
from wpriv.core.repeats import Repeats, parse
from wpriv.core.repetition import REPETITION_KEYS, repetition, with_repetition
from wpriv.core.sampled_step import defined_under
from wpriv.errors import Unsupported, UsageError
from wpriv.numerics.conversions import delta_of_scales, epsilon_of_scales
from wpriv.numerics.numbers import number, text, whole

OTHER_ACCOUNTANTS = {
    "rdp": "the same, through Renyi moments with the conversion of 2020: an upper bound",
    "rdp-mironov": "the same with the conversion used before 2020: a looser upper bound",
    "gdp-clt": "the same, by a central limit: an estimate, often below the truth",
    "clt": "the same, by the class of the privacy loss: an estimate, may be below the truth",
}
# numbers of parameters for which the size of the noise is said to give eps away
PARAMETERS = (1, 1000)
REPLACED = "one record is replaced by another, which moves a sum twice as far"


@dataclass(frozen=True)
class Interpretation:
    """A step with its assumption in words, relation, accountant, records of one person, and size of the data set;
    ``divisors`` are those of neighbours where they differ, so that no eps is known from above (0, 0: of unknown size).
    """

    spec: dict[str, Any]
    assumption: str
    adjacency: str = "add-remove"
    accountant: str = "pld"
    group: int = 1
    records: int | None = None
    divisors: tuple[int, int] | None = None

    def process(self) -> Process:
        """Build the process of this interpretation; Unsupported where it has none."""
        if self.divisors is not None:
            raise Unsupported("the noise on the mean has another size on neighbours, which tells them apart")
        return build_process.process([self.spec], self.adjacency, group=self.group, records=self.records)

    def is_known(self) -> bool:
        try:
            self.process()
        except Unsupported:
            return False
        return True


def compare_interpretations(
    spec: Mapping[str, object],
    *,
    eps: float | None = None,
    delta: float | None = None,
    tol: float | None = None,
    repeats: str | Repeats | None = None,
) -> list[dict[str, object]]:
    """Account for one step specification under every interpretation.

    Args:
        spec: ``{mech, <parameters>, n | epochs, rate | batch with records, max_batch, bands, group}``; its ``sampling``
            is one of the interpretations.
        repeats: the step is one of K runs of which only the best is released, under each interpretation.
    Returns:
        One row for each: sampling, n, rate, adjacency, accountant, both brackets, claim, ``assumption``; ``reason`` is
        set where an accountant has no answer.
    """
    if (eps is None) == (delta is None):
        raise UsageError("--why asks at one eps or at one delta; give --eps or --delta")
    chosen = None if repeats is None else parse(repeats)
    given = {key: value for key, value in spec.items() if value is not None}
    return [_row(reading, eps, delta, tol, chosen) for reading in interpretations_of(given)]


def interpretations_of(spec: Mapping[str, Any]) -> list[Interpretation]:
    """The interpretations of a step, from the usual one by the tightest accountant to no amplification at all."""
    spec = plain_step(spec)
    if "strategy" in spec and spec.get("sampling") == "allocation":
        return _in_bins(spec)
    base = {k: v for k, v in spec.items() if k not in (*REPETITION_KEYS, "sampling", "max_batch", "group")}
    defined = defined_under(registry.mechanism(base.get("mech")))
    if not set(defined) & set(STANDARD_ADJACENCIES):
        raise Unsupported(
            f"--why compares {' and '.join(STANDARD_ADJACENCIES)} neighbours; {base['mech']} is defined under "
            f"{defined[0]} only. Use budget"
        )
    sampled = spec.get("rate") is not None or spec.get("batch") is not None
    plan = repetition(**{**spec, "bands": None, "sampling": "poisson" if sampled else "none"})
    _check_sampling(spec, plan.rate)
    n = 1 if plan.n is None else plan.n
    wide = _replaced(base)
    if plan.rate is None:
        plain = {**base, "n": n}
        steps = "all steps that its separation allows" if "strategy" in base else "every step"
        every = f"every record takes part in {steps}"
        replaced = _where_replaced(wide, {"n": n}, f"{every}; one record is replaced")
        return [*_by_all(plain, every), *replaced, *_by_group(spec, plain)]
    Poisson(plan.rate)  # refuses a rate that no interpretation has
    poisson = {**base, "n": n, "sampling": "poisson", "rate": plan.rate}
    fixed = {"n": n, "sampling": "fixed", "rate": plan.rate}
    epochs = spec.get("epochs")
    passes = max(1, math.ceil((n * plan.rate if epochs is None else number(epochs, "epochs")) * (1 - 1e-9)))
    shuffled = "shuffled batches: each record in one batch an epoch, no amplification proven"
    shuffling = _by_shuffling(base, passes, plan.rate, shuffled)
    return [
        *_by_all(
            poisson,
            "each record joins each step independently with the same probability; neighbours differ by one record",
        ),
        *_by_allocation(poisson),
        *_variants(spec, poisson),
        *_where_replaced(wide, poisson, f"Poisson sampling, but {REPLACED}"),
        Interpretation(
            {**base, **fixed},
            "fixed-size batches; one record is replaced, sigma is relative to that change",
            "replace-one",
        ),
        *_where_replaced(wide, fixed, "the same, sigma relative to one record: replacing it moves a sum twice as far"),
        shuffling,
        *_where_replaced(wide, {"n": passes}, f"{shuffled}; one record is replaced"),
        Interpretation({**base, "n": n}, "a record might be in every batch: all steps, no sampling"),
        *_by_sampler(spec, poisson, shuffling),
        *_by_divisor(spec, poisson),
    ]


def _in_bins(spec: Mapping[str, Any]) -> list[Interpretation]:
    """Correlated noise with balls in bins, with cyclic Poisson sampling as far as its bands allow, and without both."""
    written, _ = with_repetition(spec)
    step = build_process.step(written)
    noise = {k: v for k, v in step.mechanism.describe().items() if v is not None}
    figures = step.mechanism.computed()
    bins, width = step.sampling.pass_steps, figures["strategy_bands"]
    rows = [
        Interpretation(
            {**noise, "n": step.n, "sampling": "allocation", "rate": step.sampling.rate},
            f"each record keeps one of {bins} bins for the whole training; certified by convex order",
        )
    ]
    if width <= bins:
        read = repetition(n=step.n, rate=step.sampling.rate, bands=width, sampling="poisson")
        plain = {"mech": "gauss", "sigma": noise["sigma"], "n": read.n, "sampling": "poisson", "rate": read.rate}
        plain["sensitivity"] = noise["sensitivity"] * figures["strategy_column"]
        words = f"cyclic Poisson sampling of {width} bands: each part of the records in turn, drawn afresh each epoch"
        rows.append(Interpretation(plain, words))
    return [*rows, Interpretation({**noise, "n": 1}, f"no amplification: steps {bins} apart, known in advance")]


def _check_sampling(spec: Mapping[str, object], rate: float | None) -> None:
    """Refuse an unknown sampling, and without a rate all that says how records are sampled."""
    kind = spec.get("sampling")
    if kind is not None:
        sampling_kind(kind)
    if rate is not None:
        return
    Sampling.from_dict({"sampling": kind})
    for key in ("max_batch", "bands"):
        if spec.get(key) is not None:
            raise UsageError(f"`{key}` needs a sampling rate: give `rate`, or `batch` with `records`")


def _by_all(spec: dict[str, object], assumption: str) -> list[Interpretation]:
    words = {"pld": f"{assumption}; tight, certified", **OTHER_ACCOUNTANTS}
    return [Interpretation(spec, same, accountant=name) for name, same in words.items()]


def _by_allocation(poisson: dict[str, Any]) -> list[Interpretation]:
    """Random allocation, where the steps are whole passes of one over the rate."""
    steps = round(1 / poisson["rate"])
    if abs(1 / poisson["rate"] - steps) > 1e-3 or poisson["n"] % steps:
        return []
    assumption = "each record joins one step of each pass, drawn uniformly and by itself; certified"
    return [Interpretation({**poisson, "sampling": "allocation"}, assumption)]


def _variants(spec: Mapping[str, Any], poisson: dict[str, Any]) -> list[Interpretation]:
    """Poisson sampling with the bands, the largest batch and the groups of records that the step names."""
    rows = []
    if spec.get("bands") is not None:
        read = repetition(**{**spec, "sampling": "poisson"})
        assumption = f"{spec['bands']} bands of correlated noise, read as plain noise: each part of the records in turn"
        rows.append(Interpretation({**poisson, "n": read.n, "rate": read.rate}, assumption))
    size = build_process.data_set_size([spec])
    if spec.get("max_batch") is not None:
        cut = {**poisson, "max_batch": spec["max_batch"]}
        assumption = f"of more records than {spec['max_batch']} drawn, a random part is kept"
        rows.append(Interpretation(cut, assumption, records=size))
    return [*rows, *_by_group(spec, poisson)]


def _by_group(spec: Mapping[str, object], step: dict[str, object]) -> list[Interpretation]:
    group = whole(spec.get("group") or 1, "group")
    if group == 1:
        return []
    assumption = f"a person has up to {group} records, and all of them are protected together"
    return [Interpretation(step, assumption, group=group)]


def _by_sampler(spec: Mapping[str, Any], poisson: dict[str, Any], shuffling: Interpretation) -> list[Interpretation]:
    """Stored order beside shuffled batches; and samplers that draw a record more than once in a step, where known."""
    rows = []
    if shuffling.adjacency == "zero-out":
        passes = round(shuffling.spec["n"] * shuffling.spec["rate"])
        stored = "sampler: batches in stored order, each record in one known batch an epoch; one record contributes"
        step = {key: value for key, value in shuffling.spec.items() if key not in ("sampling", "rate")}
        rows.append(Interpretation({**step, "n": passes}, f"{stored} nothing, batch sizes stay", "zero-out"))
    workers = "sampler: two workers that draw from the whole data each, so that a record joins a step twice"
    rows.append(Interpretation(poisson, workers, group=2))
    size, batch = build_process.data_set_size([spec]), spec.get("batch")
    if size and batch is not None and 1 < (most := whole(batch, "batch")) <= MAX_SAMPLED_GROUP:
        drawn = f"sampler: draws with replacement, so that a record joins a batch up to {most} times"
        rows.append(Interpretation({**poisson, "rate": 1 / size}, drawn, group=most))
    return [row for row in rows if row.is_known()]


def _by_divisor(spec: Mapping[str, Any], poisson: dict[str, Any]) -> list[Interpretation]:
    """A mean that is divided by int(rate x records), whose noise has another size on neighbours of another size."""
    public = "divisor from the data, int(rate x records): the number of records is public, and neighbours have the same"
    known = Interpretation(poisson, public, "zero-out")
    noise = build_process.step(poisson).mechanism.additive_noise()
    if noise is None or not known.is_known():
        return []
    size = build_process.data_set_size([spec])
    divisor = 0 if size is None else math.floor(poisson["rate"] * size * (1 + 1e-12))
    secret = "divisor from the data, int(rate x records): the number of records is secret"
    is_known = noise.is_textbook("gauss") and divisor > 1
    return [known, Interpretation(poisson, secret, divisors=(divisor, divisor - 1) if is_known else (0, 0))]


def _by_shuffling(base: dict[str, object], passes: int, rate: float, assumption: str) -> Interpretation:
    """Shuffled batches, the last of which may be smaller; of other noise than Gaussian or Laplace, their upper end."""
    steps = math.ceil(1 / rate * (1 - 1e-9))
    spec = {**base, "n": passes * steps, "sampling": "shuffle", "rate": 1 / steps}
    known = Interpretation(spec, f"{assumption}; one record contributes nothing, batch sizes stay", "zero-out")
    if known.is_known():
        return known
    return Interpretation({**base, "n": passes}, f"{assumption}; all other records must keep their batches")


def _where_replaced(
    wide: dict[str, object] | None, schedule: dict[str, object], assumption: str
) -> list[Interpretation]:
    """A row for a replaced record, where its pair is known."""
    if wide is None:
        return []
    drawn: dict[str, object] = {key: schedule[key] for key in ("n", "sampling", "rate") if key in schedule}
    return [Interpretation({**wide, **drawn}, assumption, "replace-one")]


def _replaced(base: dict[str, object]) -> dict[str, object] | None:
    """The step where a record is replaced, for ``base`` about added ones: a group of two; None where unproven."""
    mechanism = build_process.step(base).mechanism  # raises where something is missing or unknown
    try:
        # parameters that are about one contribution are those of a replaced record as well
        replaced = mechanism.between(Neighbours(Adjacency.REPLACE_ONE))
        pair = mechanism.grouped(2) if replaced == mechanism else mechanism
    except Unsupported:
        return None
    return pair.describe() | ({"observed": base["observed"]} if "observed" in base else {})


def _row(
    reading: Interpretation, eps: float | None, delta: float | None, tol: float | None, repeats: Repeats | None
) -> dict[str, object]:
    spec = reading.spec
    row = {"sampling": spec.get("sampling", "none"), "n": spec["n"], "rate": spec.get("rate")}
    row |= {"adjacency": reading.adjacency, "sensitivity": spec.get("sensitivity"), "accountant": reading.accountant}
    asked, given = ("eps", "delta") if eps is None else ("delta", "epsilon")
    row |= {"assumption": reading.assumption, "asked": asked, "given": given}
    row |= {} if repeats is None else {"repeats": str(repeats)}
    try:
        process = reading.process()
        width = evaluate.answer_tol(process) if tol is None else tol
        # the bound of the best of K runs is wider than the bracket of one run
        width = width if repeats is None or tol is not None else max(width, evaluate.DEFAULT_TOL)
        curve = best_of_runs.curve_of(process, reading.accountant, width, repeats)
        answer = evaluate.ask(curve, eps=eps, delta=delta)
    except Unsupported as error:
        reason = f"{error}{_least_by_divisors(reading, eps, delta)}"
        return {**row, "epsilon": eps, "delta": delta, "reason": reason}
    ends = answer.as_dict()
    if row["sampling"] == "shuffle":
        lower = answer.epsilon.lower if eps is None else answer.delta.lower
        row["assumption"] += f"; at least {text(lower or 0.0, up=False, digits=4)}"
    bounds = {column: ends[column] for column in BOUND_COLUMNS}
    return {**row, "notion": answer.notion, "claim": answer.claim, **bounds, "reason": None}


def _least_by_divisors(reading: Interpretation, eps: float | None, delta: float | None) -> str:
    """What the size of the noise alone gives away, with few parameters and with more."""
    if reading.divisors is None or not reading.divisors[0]:
        return ""
    larger, smaller = reading.divisors
    parts = []
    for parameters in PARAMETERS:
        count = reading.spec["n"] * parameters
        if delta is None:
            least = text(delta_of_scales(eps or 0.0, larger, smaller, count), up=False, digits=4)
        else:
            least = text(epsilon_of_scales(delta, larger, smaller, count), up=False, digits=4)
        parts.append(f"at least {least} with {parameters:,} parameter{'s' * (parameters > 1)}")
    return f": a divisor of {larger} or of {smaller} gives {'delta' if delta is None else 'eps'} {', '.join(parts)}"
