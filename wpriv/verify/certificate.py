"""Read a certificate: the job and the claims, and nothing else of it, with every number exactly as it is written."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NoReturn

from wpriv.errors import Unsupported, UsageError

SCHEMA, GUARANTEE = "wpriv.certificate/1", "wpriv.guarantee/1"
ENDS = ("epsilon_lower", "epsilon_upper", "delta_lower", "delta_upper")
PARAMETERS = {
    "gauss": ("sigma", "sensitivity"),
    "laplace": ("scale", "sensitivity"),
    "discrete-gauss": ("sigma", "sensitivity"),
    "discrete-laplace": ("scale", "sensitivity"),
    "randomized-response": ("eps0", "delta0"),
    "dp": ("eps0", "delta0"),
    "gdp": ("mu",),
}
NAMES = {"dp": "randomized-response", "gdp": "gauss"}
ADJACENCIES = {
    "none": ("add-remove", "replace-one", "replace-within-group", "any-two", "zero-out"),
    "poisson": ("add-remove", "zero-out", "replace-one"),
    "fixed": ("replace-one",),
    "allocation": ("add-remove", "zero-out"),
}
# what a program must keep to beside the numbers: a certificate names it, and a proof is worth nothing without it
HALF = (
    "poisson sampling under replace-one: adding or removing a record moves the query by at most half the sensitivity, "
    "as in a sum of vectors clipped to half of it"
)
GIVEN = "the stated guarantee holds between the named neighbours, in both orders, on every set of records"
SIZES = "the sizes of the drawn batches stay secret; the number of records alone may be public"
PREMISES = (
    *(HALF, GIVEN, SIZES, "the sizes of the drawn batches stay secret"),
    "the query moves by at most the sensitivity between neighbours, in the l2 norm",
    "the query moves by at most the sensitivity between neighbours, in the l1 norm",
    "a single number is released, which moves by at most the sensitivity between neighbours; discrete and uniform "
    "noise are for whole numbers",
    "the size of the batches and the number of records are fixed and may be public",
    "of a batch of more records than the largest a uniformly random part is kept, and no data set has more records "
    "than stated",
    "the strategy matrix is lower triangular with so many bands and columns of l2 norm at most 1, each record belongs "
    "for good to one of as many parts whatever the other records, and only the part whose turn it is is drawn from",
)
KEYS = (
    *("schema", "notion", "asked", "adjacency", "group", "records", "process", "premises"),
    *(*ENDS, "claim_width", "version"),
)
# further keys of a guarantee, which do not change what its ends mean
REMARKS = (
    *("claim", "accountant", "epsilon", "epsilon_estimate", "delta", "delta_estimate", "source", "warnings"),
    *("reading", "calibrated", "attack", "attack_reading", "classical", "explain", "parameters", "computed"),
)
STEP_KEYS = ("mech", "n", "sampling", "rate", "max_batch")
BATCHES, MAX_GROUP = ("add-remove", 1, True, True), 20
UNPROVED = "The bracket of `wpriv budget` is valid without a certificate; state it with its accountant"
MAX_BYTES, MAX_STEPS, MAX_COUNT = 1_000_000, 10_000, 2**40


@dataclass(frozen=True)
class Step:
    """``n`` releases of a mechanism (``given``: known by a guarantee), or passes of 1 / ``rate`` releases."""

    mech: str
    parameters: tuple[tuple[str, Fraction], ...]
    n: int
    sampling: str = "none"
    rate: Fraction = Fraction(1)
    max_batch: int = 0
    given: bool = False


@dataclass(frozen=True)
class Claim:
    """What is claimed of a process: ends of eps at one delta (``asked`` is eps), or of delta at one eps.

    An infinite end of eps is None. ``premises`` are what the program must keep to; nothing proves them.
    """

    steps: tuple[Step, ...]
    asked: str
    ends: Mapping[str, Fraction | None]
    adjacency: str = "add-remove"
    group: int = 1
    records: int = 0
    premises: tuple[str, ...] = ()

    @property
    def negligible(self) -> float:
        """A mass that is far below every delta of the claim."""
        deltas = [float(end) for name in ("delta_lower", "delta_upper") if (end := self.ends.get(name))]
        steps = sum(step.n / step.rate for step in self.steps)
        return max(min(deltas, default=0.0), 1e-60) * 1e-6 / float(steps)

    @property
    def bits(self) -> int:
        """The negative of the base-2 logarithm of a mass that is far below every delta of the claim."""
        deltas = [end for name in ("delta_lower", "delta_upper") if (end := self.ends.get(name))]
        least = min(deltas, default=Fraction(1))
        return max(300, 150 + least.denominator.bit_length() - least.numerator.bit_length())

    def widened(self, width: Fraction) -> Claim:
        """The claim with the ends of the unknown moved outwards by this share of themselves."""
        name = "epsilon" if self.asked == "eps" else "delta"
        lower, upper = self.ends[f"{name}_lower"], self.ends[f"{name}_upper"]
        moved = {
            f"{name}_lower": None if lower is None else lower * (1 - width),
            f"{name}_upper": None if upper is None else upper * (1 + width),
        }
        return replace(self, ends={**self.ends, **moved})


def read(text: str) -> Claim:
    """Read the text of a certificate, or of a guarantee as ``--json`` prints it.

    Raises:
        UsageError: it is malformed. Unsupported: the verifier has no proof for such a process.
    """
    try:
        data = json.loads(
            text, parse_float=_fraction, parse_int=_fraction, parse_constant=_constant, object_pairs_hook=_unique
        )
    except (ValueError, RecursionError) as error:
        raise UsageError(f"wanted a certificate of schema {SCHEMA}; found no JSON of this kind: {error}") from None
    if not isinstance(data, dict) or data.get("schema") not in (SCHEMA, GUARANTEE):
        schema = str(data.get("schema"))[:60] if isinstance(data, dict) else "no object"
        advice = "A claim about the steps of a history is `wpriv verify --claim eps=3,delta=1e-5 --history FILE`"
        if schema.startswith("wpriv.statement"):
            advice = "A statement is proved with the ledger beside it: give the folder of both"
        raise UsageError(f"wanted a certificate of schema {SCHEMA}; found {schema!r}. {advice}")
    return of_data(data)


def of_data(data: Mapping[str, Any]) -> Claim:
    """The claim of a certificate that was parsed with exact numbers."""
    if data.get("notion") != "approximate-dp":
        _fault("notion", "'approximate-dp'", data.get("notion"))
    known = KEYS if data.get("schema") == SCHEMA else (*KEYS, *REMARKS)
    if unknown := sorted(set(data) - set(known)):
        _fault(unknown[0], "no such key", data[unknown[0]])
    group, records = _count(data, "group", 1), _count(data, "records", 0)
    steps = data.get("process")
    if not isinstance(steps, list) or not 1 <= len(steps) <= MAX_STEPS:
        _fault("process", f"a list of 1 to {MAX_STEPS} steps", steps)
    read_steps = tuple(_step(step, data.get("adjacency"), f"process[{i}]") for i, step in enumerate(steps))
    for step in read_steps:
        _check_covered(step, str(data["adjacency"]), group, records)
    premises = _premises(data, steps, read_steps)
    ends = {name: _end(data, name) for name in ENDS}
    asked = data.get("asked")
    if asked not in ("eps", "delta"):
        _fault("asked", "'eps' or 'delta'", asked)
    if data["schema"] == GUARANTEE and asked == "eps" and ends["delta_upper"] == 0:  # pure DP: no loss exceeds eps
        asked, ends = "delta", {**ends, "epsilon_lower": ends["epsilon_upper"]}
    given = "delta" if asked == "eps" else "epsilon"
    if ends[f"{given}_lower"] is None or ends[f"{given}_lower"] != ends[f"{given}_upper"]:
        _fault(f"{given}_lower", f"the given {given}, the same number as {given}_upper", data.get(f"{given}_lower"))
    name = "epsilon" if asked == "eps" else "delta"
    lower, upper = ends[f"{name}_lower"], ends[f"{name}_upper"]
    if lower is None or (upper is not None and lower > upper):
        _fault(f"{name}_lower", f"a number of at most {name}_upper", data.get(f"{name}_lower"))
    if asked == "eps" and not 0 < (ends["delta_lower"] or 0) < 1:
        _fault("delta_lower", "a number above 0 and below 1", data.get("delta_lower"))
    return Claim(read_steps, asked, ends, str(data["adjacency"]), group, records, premises)


def _premises(data: Mapping[str, Any], described: list[Any], steps: tuple[Step, ...]) -> tuple[str, ...]:
    """The premises of a certificate, among which those must be that the pairs of its steps need."""
    premises = data.get("premises", [])
    if not isinstance(premises, list) or any(premise not in PREMISES for premise in premises):
        _fault("premises", "a list of the sentences that the verifier knows", premises)
    for step, written in zip(steps, described, strict=True):
        drawn, adjacency = step.sampling in ("poisson", "allocation"), data["adjacency"]
        needed = {
            HALF: drawn and adjacency == "replace-one",
            SIZES: drawn and adjacency == "zero-out",
            GIVEN: written["mech"] in ("dp", "gdp"),
        }
        for premise, is_needed in needed.items():
            if is_needed and premise not in premises:
                _fault("premises", f"a list with {premise!r}, without which there is no proof of {step.mech}", premises)
    return tuple(premises)


def _check_covered(step: Step, adjacency: str, group: int, records: int) -> None:
    """Refuse groups, replaced records and largest batches for which there is no proof."""
    where = f"the verifier has no proof for {step.sampling} sampling of {step.mech}"
    if step.given and step.sampling != "none" and adjacency == "zero-out":
        raise Unsupported(f"{where} under zero-out, where a stated guarantee may show the size of a batch. {UNPROVED}")
    if step.max_batch and (adjacency, group, step.mech in ("gauss", "laplace"), records > 0) != BATCHES:
        raise Unsupported(
            f"{where} with a largest batch, but for gauss and laplace under add-remove, of single records (group 1), "
            f"where the number of records is given. {UNPROVED}"
        )
    if (step.sampling, adjacency) == ("poisson", "replace-one") and (step.mech, group) != ("gauss", 1):
        raise Unsupported(f"{where} under replace-one, but for gauss and single records (group 1). {UNPROVED}")
    sampled = step.sampling in ("fixed", "allocation") or (step.sampling == "poisson" and step.mech != "gauss")
    others = adjacency not in ("add-remove", "replace-one") or group > MAX_GROUP
    if group > 1 and (sampled or others or step.mech == "randomized-response"):
        raise Unsupported(
            f"{where} with {group} records of one person under {adjacency}; groups of at most {MAX_GROUP} are proved "
            f"under add-remove and replace-one, of noise without sampling and of gauss with poisson. {UNPROVED}"
        )


def _count(data: Mapping[str, Any], name: str, least: int, place: str = "") -> int:
    """A whole number that may be left out."""
    value = data.get(name, Fraction(least))
    if not isinstance(value, Fraction) or value.denominator != 1 or not least <= value <= MAX_COUNT:
        _fault(place + name, f"a whole number from {least} to 2^40", value)
    return int(value)


def _step(data: Any, adjacency: Any, place: str) -> Step:
    if not isinstance(data, dict):
        _fault(place, "a step", data)
    mech, sampling = data.get("mech"), data.get("sampling")
    if not isinstance(mech, str) or mech not in PARAMETERS:
        known = ", ".join(PARAMETERS)
        raise Unsupported(f"the verifier knows {known}; found {place}.mech {str(mech)[:60]!r}. {UNPROVED}")
    if not isinstance(sampling, str) or sampling not in ADJACENCIES:
        known = ", ".join(ADJACENCIES)
        raise Unsupported(f"the verifier knows sampling {known}; found {str(sampling)[:60]!r}. {UNPROVED}")
    if adjacency not in ADJACENCIES[sampling]:
        _fault("adjacency", " or ".join(ADJACENCIES[sampling]) + f" (sampling {sampling})", adjacency)
    unknown = sorted(set(data) - {*STEP_KEYS, *PARAMETERS[mech]})
    if unknown:
        _fault(f"{place}.{unknown[0]}", "no such key", data[unknown[0]])
    values = {name: _number(data, name, place) for name in PARAMETERS[mech]}
    for name, value in values.items():
        if value < 0 or (value == 0 and name != "delta0") or (name == "delta0" and value >= 1):
            _fault(f"{place}.{name}", "a positive number" if name != "delta0" else "at least 0, below 1", data[name])
    if mech.startswith("discrete") and values["sensitivity"].denominator != 1:
        _fault(f"{place}.sensitivity", "a whole number", data["sensitivity"])
    if mech == "gdp":
        values = {"sigma": 1 / values["mu"], "sensitivity": Fraction(1)}
    n = _number(data, "n", place)
    if n.denominator != 1 or not 1 <= n <= MAX_COUNT:
        _fault(f"{place}.n", "a whole number from 1 to 2^40", data["n"])
    rate = Fraction(1) if sampling == "none" and "rate" not in data else _number(data, "rate", place)
    if not 0 < rate <= 1 or (sampling == "none" and rate < 1):
        _fault(f"{place}.rate", "a number above 0, at most 1, and 1 without sampling", data["rate"])
    if sampling == "allocation":
        if abs(rate * round(1 / rate) - 1) > Fraction(1, 10**12):
            _fault(f"{place}.rate", "1/t with a whole number t of steps a pass", data["rate"])
        rate = Fraction(1, round(1 / rate))
        n = n * rate
        if n.denominator > 1:
            _fault(f"{place}.n", f"a multiple of {rate.denominator}, the steps of a pass", data["n"])
    max_batch = _count(data, "max_batch", 0, f"{place}.")
    if max_batch and sampling != "poisson":
        _fault(f"{place}.max_batch", "with sampling poisson only", data["max_batch"])
    kind = "none" if rate == 1 and not max_batch else sampling
    return Step(NAMES.get(mech, mech), tuple(sorted(values.items())), int(n), kind, rate, max_batch, mech in NAMES)


def _number(data: Mapping[str, Any], name: str, place: str) -> Fraction:
    value = data.get(name)
    if not isinstance(value, Fraction):
        _fault(f"{place}.{name}", "a number", value)
    return value


def _end(data: Mapping[str, Any], name: str) -> Fraction | None:
    value = data.get(name)
    if value == "inf" and name == "epsilon_upper":
        return None
    if not isinstance(value, Fraction) or value < 0:
        _fault(name, "a number of at least 0", value)
    return value


def _fault(name: str, wanted: str, found: Any) -> NoReturn:
    shown = float(found) if isinstance(found, Fraction) else found
    raise UsageError(f"certificate: wanted {name} to be {wanted}; found {str(shown)[:60]!r}")


def _fraction(text: str) -> Fraction:
    """A number of JSON, exactly; bounded, so that its digits fit into memory."""
    if (
        len(text) > 60
        or not math.isfinite(float(text))
        or (float(text) == 0 and re.search("[1-9]", text.lower().split("e")[0]))
    ):
        raise ValueError(f"a number out of range: {text[:40]}")
    return Fraction(text)


def _constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) < len(pairs):
        raise ValueError("a key stands twice")
    return data
