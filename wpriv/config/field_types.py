"""Types of the values in recipes: numbers, words and grids, and the models that several kinds of recipe share."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints, WithJsonSchema

# tasks declare their options with these three; nothing outside of config/ imports pydantic
from pydantic import BeforeValidator as BeforeValidator
from pydantic import Field as Field
from pydantic import model_validator as model_validator

from wpriv.config.document import Key, models_in
from wpriv.core import registry, repeats
from wpriv.core.parameters import MAX_COUNT
from wpriv.errors import UsageError, WprivError
from wpriv.numerics import ball_projection
from wpriv.numerics.numbers import number, to_int

MAX_POINTS = 10_000
_SPREADS = {"linspace": "[0, 4, 81]", "geomspace": "[0.1, 10, 41]", "powers": "[2, 0, 16]"}


def expand_values(values: object, *, whole: bool = False) -> list[float]:
    """Expand the values of a sweep.

    Args:
        values: a list of numbers, or {linspace: [a, b, k]}, {geomspace: [a, b, k]}, {powers: [base, first, last]}.
        whole: round the points of a linspace or geomspace, for a quantity such as n; equal points are merged.
    """
    if isinstance(values, list):
        points = [to_int(value) for value in values]
        if not all(isinstance(point, (int, float)) and not isinstance(point, bool) for point in points):
            raise ValueError("a sweep's values must be numbers")
    elif isinstance(values, dict) and len(values) == 1 and next(iter(values)) in _SPREADS:
        points = _spread(*next(iter(values.items())))
    else:
        forms = ", ".join(f"{{{kind}: {example}}}" for kind, example in _SPREADS.items())
        raise ValueError(f"a sweep's values are a list of numbers, or one of {forms}")
    if not 1 <= len(points) <= MAX_POINTS:
        raise ValueError(f"a sweep has from 1 to {MAX_POINTS:,} values; found {len(points):,}")
    if whole and isinstance(values, dict) and "powers" not in values:
        points = list(dict.fromkeys(round(point) for point in points))
    return points


def _spread(kind: str, numbers: object) -> list[float]:
    if not (isinstance(numbers, list) and len(numbers) == 3 and all(type(n) in (int, float) for n in numbers)):
        raise ValueError(f"{kind} takes three numbers, as in {{{kind}: {_SPREADS[kind]}}}")
    try:
        points = _powers(*numbers) if kind == "powers" else _spaced(kind, *numbers)
        is_finite = all(math.isfinite(point) for point in points)
    except OverflowError:
        is_finite = False
    if not is_finite:
        raise ValueError(f"{kind} reaches beyond the largest number that a computer holds (1.8e308)")
    return points


def _powers(base: float, first: float, last: float) -> list[float]:
    are_exponents = all(exponent == int(exponent) and abs(exponent) <= 60 for exponent in (first, last))
    if not (0 < base <= 1e6 and are_exponents and first <= last):
        raise ValueError("powers takes a base > 0 and two whole exponents from -60 to 60, the lower first")
    return [base**exponent for exponent in range(int(first), int(last) + 1)]


def _spaced(kind: str, low: float, high: float, count: float) -> list[float]:
    k = to_int(count)
    if not isinstance(k, int) or not 2 <= k <= MAX_POINTS:
        raise ValueError(f"{kind} needs from 2 to {MAX_POINTS:,} points; found {count}")
    if kind == "linspace":
        return [low + (high - low) * i / (k - 1) for i in range(k)]
    if not (low > 0 and high > 0):
        raise ValueError("geomspace needs ends greater than 0")
    return [low ** (1 - i / (k - 1)) * high ** (i / (k - 1)) for i in range(k)]


def _check_grid(values: object) -> object:
    expand_values(values)
    return values


Count = Annotated[
    int,
    BeforeValidator(to_int),
    Field(ge=1, le=MAX_COUNT),
    WithJsonSchema({"anyOf": [{"type": "number", "minimum": 1, "maximum": MAX_COUNT}, {"type": "string"}]}),
]


def read_real(value: object) -> object:
    """A number of text such as 1%, 60_000, 256/60000 or 2^-3; anything else as it is, for a validator to refuse."""
    if not (isinstance(value, str) and re.search(r"\d.*[%_,/^*]", value)):
        return value
    try:
        return number(value, "the number")
    except UsageError as error:
        raise ValueError(str(error)) from None


READ = BeforeValidator(read_real)
Number = Annotated[float, Field(strict=True, allow_inf_nan=False), READ]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False), READ]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False), READ]
Probability = Annotated[float, Field(gt=0, lt=1), READ]
Delta = Annotated[float, Field(ge=0, lt=1), READ]
Share = Annotated[float, Field(ge=0, le=1), READ]
Rate = Annotated[float, Field(gt=0, le=1), READ]
Tolerance = Annotated[float, Field(ge=1e-9, le=0.5), READ]
Word = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Text = Annotated[str, StringConstraints(min_length=1, max_length=1000)]
Grid = Annotated[
    object,
    BeforeValidator(_check_grid),
    WithJsonSchema({"description": "numbers, or {linspace|geomspace|powers: [.., .., ..]}"}),
]


def read_by(parse: Callable[[str], object]) -> AfterValidator:
    """Return a validator of text that ``parse`` must be able to read; the text itself is kept."""

    def check(text: str) -> str:
        try:
            parse(text)
        except WprivError as error:
            # the place of the text has the name of the argument
            raise ValueError(re.sub(r"`\w+`: | \(`\w+`\)", "", str(error)).replace("`", "")) from None
        return text

    return AfterValidator(check)


Repeats = Annotated[Word, read_by(repeats.parse)]


class StrictModel(BaseModel):
    """A model that refuses unknown keys, text for a number and a number for text."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    def rules(self) -> Iterator[tuple[Key, str]]:
        """Yield what is wrong with keys that are sound one by one: the path of a key from here, and a message."""
        yield from ()


def key(description: str, default: object = ...) -> Any:
    """A key of a model, required where it has no default."""
    return Field(default, description=description)


def optional(description: str) -> Any:
    """A key of a model that may be left out, and is None then."""
    return Field(None, description=description)


def as_list(value: object) -> object:
    """Wrap one mapping where a list of mappings may stand."""
    return [value] if isinstance(value, dict) else value


class PluginRef(StrictModel):
    """A plug-in by name, with its own parameters beside the name."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    name: Word = key("its name; its own parameters stand beside this key")

    def parameters(self) -> dict[str, object]:
        """Return the keys beside those that every plug-in of its kind has."""
        return dict(self.model_extra or {})


class OwnCode(PluginRef):
    """A plug-in by name, or a function or class of that name in a Python file of the user's."""

    file: Word | None = optional("a Python file of your own (.py) that defines the name; it is run")
    sha256: Word | None = optional(
        "first 16 digits of the SHA-256 of that file, filled in; a file with another one is refused"
    )

    @property
    def own(self) -> bool:
        """Tell whether the name is one of the user's file."""
        return self.file is not None and self.file.endswith(".py")


class Expect(StrictModel):
    """Expected numbers: the row (``where``), the columns with their values, the tolerance, the kind and the source."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    where: dict[str, int | float | str | bool] = Field(
        default_factory=dict, description="values of columns that select the row; empty for a single row"
    )
    within: Positive = key("tolerance, relative unless absolute: true")
    absolute: bool = key("take within as a difference, not as a share of the expected number", False)
    at_least: bool = key("one-sided: missed only below the expected number minus the tolerance", False)
    at_most: bool = key("one-sided: missed only above the expected number plus the tolerance", False)
    held: bool = key("false: compared but never missed, for a number that this run need not reach", True)
    contradicted: Text | None = optional(
        "the proof that a published number is wrong: an exact value, a counterexample, a run of the paper's procedure"
    )
    procedure: Text | None = optional(
        "what was run, in a short phrase, where it is not the paper's procedure: a published number is then shown "
        "beside ours and counts neither as met nor as missed; left out, that of the recipe"
    )
    kind: Literal["published", "reference", "own"] = key(
        "published: printed in the source; reference: computed apart, such as a closed form or another "
        "program; own: an earlier run of this recipe",
        "reference",
    )
    commit: Word | None = optional(
        "of an own number: the commit of wpriv that gave it, written by `wpriv recipe refresh`"
    )
    noise_version: Count | None = optional(
        "of an own number: the version of the rule that makes noise of a seed, which it depends on"
    )
    source: Word = key("where the number is printed, or how it was computed")


Setting = int | float | str | bool | list[int | float | str]


class Printed(StrictModel):
    """The settings that the source prints, by the dotted path of their keys in the recipe, with their place."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)
    __pydantic_extra__: dict[str, Setting]

    source: Text = key("where the settings are printed; the settings stand beside it, such as optimizer.lr: 0.05")

    @property
    def settings(self) -> dict[str, Setting]:
        """The printed values by the path of their keys."""
        return dict(self.__pydantic_extra__ or {})

    def unknown(self, kind: type[StrictModel]) -> Iterator[tuple[Key, str]]:
        """Yield the paths that name no key of a recipe, as ``StrictModel.rules`` does."""
        for path in self.settings:
            if not has_key(kind, path):
                yield ("printed", path), f"printed: a recipe of this kind has no key {path!r}"


def has_key(kind: type[BaseModel], path: str) -> bool:
    """Return whether a recipe of a kind can have a key at a dotted path; parameters of plug-ins can have any name.

    >>> has_key(LocalNoise, "radius"), has_key(LocalNoise, "radios")
    (True, False)
    """
    name, _, rest = path.partition(".")
    if name not in kind.model_fields:
        return kind.model_config.get("extra") == "allow"
    inner = list(models_in(kind.model_fields[name].annotation))
    return not rest or not inner or any(has_key(model, rest) for model in inner)


class Claim(StrictModel):
    """A statement of the source that does not hold here, what this program finds instead, and the reason."""

    paper: Text = key("what the paper says")
    found: Text = key("what this program finds, with its numbers")
    because: Text = key(
        "why the two differ: the proof, the counterexample, or what of the procedure is not the paper's"
    )
    verdict: Literal["contradicted", "partly", "not reached", "other procedure"] = key(
        "what this says of the paper: contradicted, where it is wrong; the others are no evidence against it",
        "contradicted",
    )


class Time(StrictModel):
    """The time that a recipe takes on one core, or on a GPU, and how that is known."""

    seconds: Positive = key("of the whole recipe, all trainings of a sweep together")
    known: Literal["measured", "extrapolated", "estimated"] = key(
        "measured on a full run, extrapolated from part of one, or estimated from its networks' operations"
    )
    device: Literal["cpu", "cuda"] = key("cpu: one core; cuda: one GPU", "cpu")


class LocalNoise(StrictModel):
    """Clipping and noise of every record, for a target or at a given noise."""

    mech: Literal["local-gauss", "local-laplace"] = key(
        "local-gauss clips to an l2 ball and needs delta; local-laplace clips to an l1 ball"
    )
    eps: Positive | None = optional("eps of every report; the noise is solved for")
    delta: Probability | None = optional("delta of every report; 0 where left out with local-laplace")
    sigma: Positive | None = optional("instead of eps: standard deviation of Gaussian noise")
    scale: Positive | None = optional("instead of eps: scale b of Laplace noise")
    radius: Positive | None = optional("norm to which every record is clipped, chosen without looking at the records")
    center: Number | None = optional("middle of the ball, for every number of a record (default 0)")
    formula: Literal["analytic", "eq4"] | None = optional(
        "noise of local-gauss for eps: the least one (default), or equation (4) of Reshetova et al."
    )
    nonnegative: bool = key("negative numbers become 0, and Gaussian noise is smaller by sqrt 2", False)
    dct: bool = key("clip and publish the orthonormal cosine transform of each record", False)
    quantile: Annotated[float, Field(gt=0, le=1)] | None = optional(
        "each number is clamped to this quantile of its magnitude in public records"
    )
    quantile_from: Literal["public", "private"] | None = optional(
        "whose quantile: of public records (default), or of the protected ones as published, with NO guarantee"
    )
    public: Word | None = optional("public records for the quantile: a data set or a file")
    thresholds: Word | None = optional("instead of quantile: a file with the bound that each number is clamped to")
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = optional(
        "repeatable noise, for tests: whoever knows the seed can remove the noise"
    )
    public_labels: bool = key("the labels are public and are written unchanged", False)

    def rules(self) -> Iterator[tuple[Key, str]]:
        is_gauss = self.mech == "local-gauss"
        parameter, other = ("sigma", "scale") if is_gauss else ("scale", "sigma")
        noise = getattr(self, parameter)
        if getattr(self, other) is not None:
            yield (), f"{self.mech} has a {parameter}, not a {other}; give {parameter}, or the other mechanism"
        elif (noise is None) == (self.eps is None):
            count = "neither" if noise is None else "both"
            yield (), f"give a target (eps) or the noise itself ({parameter}); found {count}"
        if self.formula is not None and noise is not None:
            yield (), f"formula chooses the noise for a target; remove formula or {parameter}"
        if is_gauss and self.delta is None:
            yield (), "Gaussian noise has no finite eps at delta = 0: give delta, well below 1 / records, such as 1e-5"
        if not is_gauss and self.nonnegative:
            reason = "the l1 diameter of the nonnegative part is 2 radii as well"
            yield (), f"nonnegative saves no Laplace noise: {reason}. Remove it"
        if not is_gauss and self.formula == "eq4":
            yield (), "formula eq4 is about Gaussian noise; Laplace noise is exact as it is. Remove it"
        if self.radius is not None:
            try:
                # noise of the size of the radius stands for noise that is solved for
                ball_projection.check(self.radius, noise or self.radius)
                registry.mechanism(self.mech)(**{"radius": self.radius, parameter: noise or self.radius})
            except UsageError as error:
                yield (), str(error)
