"""What a results folder holds, as typed records: statements, guarantees, expected numbers, audits, origins.

The files keep their keys. A record keeps keys that it does not know, and reading one that lacks a key ends in one
error, raised here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ModelWrapValidatorHandler, ValidationError, model_validator

from wpriv.core.guarantee import RIGOROUS
from wpriv.errors import UsageError, of_file

Number = int | float
Row = dict[str, Any]
"""A row of a table: numbers, words and None by column."""
Json = dict[str, Any]
"""A JSON object as it is written: a statement, an entry of one, a provenance."""

TRAIN_AGAIN = "Delete it and train again with the same command: it is written again from the model and the ledger"
PRIVATISE_AGAIN = "Write the reports again"


class Stored(BaseModel):
    """A JSON object of a results folder."""

    model_config = ConfigDict(extra="allow", frozen=True)

    _order: tuple[str, ...] = ()

    @model_validator(mode="wrap")
    @classmethod
    def _keep_order(cls, data: object, handler: ModelWrapValidatorHandler[Self]) -> Self:
        record = handler(data)
        record._order = tuple(data) if isinstance(data, dict) else ()
        return record

    def as_dict(self) -> Json:
        """Return the entries of the file in their order; what it lacks is left out."""
        entries = self.model_dump(exclude_unset=True)
        return {**{key: entries[key] for key in self._order if key in entries}, **entries}


class Figure(Stored):
    """The answer of one accountant, a row of ``guarantees``."""

    notion: str
    claim: str
    accountant: str
    epsilon: Number
    epsilon_lower: Number | None = None
    epsilon_upper: Number | None = None
    delta: Number
    source: str = ""
    process: list[dict[str, object]] = []
    warnings: list[str] = []

    @property
    def is_proven(self) -> bool:
        """True for a proven (eps, delta)-DP guarantee: exact, certified or upper bound."""
        return self.notion == "approximate-dp" and self.claim in RIGOROUS


class Share(Stored):
    """Delta beside 1 / records, see ``words.share``."""

    value: float
    records: int
    times_records: float
    meaning: str


class Answer(Stored):
    """Whether a file may be published (``yes`` or ``no``), and why."""

    file: str
    publish: str
    why: str


class Sampling(Stored):
    """How records were sampled; ``pass_steps`` is that of random allocation alone."""

    kind: str
    rate: Number
    batch: Number | None = None
    pass_steps: int | None = None
    implemented: str


class Noise(Stored):
    """The noise of a training and the bound on a contribution; the last entries belong to rules of clipping.

    With a ``strategy`` C the standard deviation is that of Z, of which step t has row t of C^-1 Z.
    """

    multiplier: float
    clip: float
    clipped: str
    clipped_by: str | None = None
    sensitivity: float
    standard_deviation: float
    standard_deviation_at_most: float | None = None
    of: str
    strategy: str | None = None
    earlier: str = ""
    rule: str | None = None
    stability: float = 0.0
    quantile: float = 0.0
    count_standard_deviation: float = 0.0
    gradient_multiplier: float = 0.0
    groups: dict[str, float] = {}


class ReportNoise(Stored):
    """The noise of local reports: ``sigma`` of a Gauss or ``scale`` of a Laplace distribution."""

    sigma: float | None = None
    scale: float | None = None
    on: str
    sensitivity: float
    chosen_by: str
    grid: float


class ReportClip(Stored):
    """The ball onto which records are clipped before noise is added to them."""

    norm: str
    radius: float
    center: float
    how: str
    nonnegative: bool
    bounds_from: str | None
    domain: str


class Repeats(Stored):
    """The distribution of the number of runs of a tuned training."""

    kind: str
    mean: float

    @property
    def numbers(self) -> dict[str, float]:
        """The parameters of the distribution by name, in the order of the file."""
        return {"mean": self.mean, **(self.model_extra or {})}


class Tuning(Stored):
    """What a tuned training chose from, and what it chose."""

    repeats: Repeats
    candidates: list[dict[str, object]]
    chosen: dict[str, object] | None
    one_run: dict[str, float] = {}


class Refused(Stored):
    """An accountant without an answer."""

    accountant: str
    reason: str


class EarlierRun(Stored):
    """A run that was moved aside in the same folder."""

    folder: str
    steps: int
    problem: str | None = None


class Data(Stored):
    """The records of a training."""

    name: str
    records: int
    classes: list[str] = []
    classes_from: str = ""


class ReportData(Data):
    """The records of local reports."""

    shape: list[int]
    dtype: str
    read_as: list[str]


class Position(Stored):
    """The position in a ledger."""

    lines: int
    digest: str


class Weights(Stored):
    """A file of weights and their digest; ``file`` is None where the format does not hold them, which ``why`` says."""

    file: str | None = None
    weights_sha256: str | None = None
    why: str | None = None


class Protection(Stored):
    """What a private training and local reports both state."""

    unit: str
    group: int = 1
    adjacency: str
    adjacency_means: str
    guarantees: list[Figure]
    trust_model: list[str] | None = None
    premises: list[str] | None = None
    covered: list[str]
    not_covered: list[str]
    not_assessed: list[str]
    warnings: list[str] = []
    seed: int | None = None
    delta: Share | None = None
    tuning: Tuning | None = None

    @property
    def best(self) -> Figure | None:
        """The proven guarantee with the least eps, or None."""
        return min((row for row in self.guarantees if row.is_proven), key=lambda row: row.epsilon, default=None)

    @property
    def neighbours(self) -> str:
        return f"{self.adjacency}: {self.adjacency_means}"


class Releases(Protection):
    """The part of a statement that a training with noise of its own has."""

    delta: Share
    sampling: Sampling
    noise: Noise
    steps: int
    for_comparison: list[Figure] = []
    refused: list[Refused] = []
    parameters: Json | None = None
    cut_passes: list[dict[str, int | bool]] = []


class Reports(Protection):
    """The statement of local reports; ``delta`` is missing in those of early versions."""

    noise: ReportNoise
    clip: ReportClip
    data: ReportData
    publish: list[Answer]
    versions: dict[str, object]


class Statement(Stored):
    """The privacy statement of a training.

    Attributes:
        releases: what a training with noise of its own states besides. reports: the statement of its records, where
            these were privatised before the training.
    """

    recipe: str
    source: str
    task: str
    private: bool
    publish: list[Answer]
    remarks: list[str] = []
    promise: str = ""
    trust_model: list[str] | None = None
    covered: list[str] | None = None
    not_covered: list[str] | None = None
    not_assessed: list[str] | None = None
    warnings: list[str] = []
    seed: int | None
    versions: dict[str, object]
    data: Data
    reports: Reports | None = None
    releases: Releases | None = None
    model: Weights | None = None
    average: Weights | None = None
    ledger: Position | None = None
    earlier_runs: list[EarlierRun] = []

    @model_validator(mode="before")
    @classmethod
    def _releases(cls, data: object) -> object:
        """The entries of a private training stand beside the others in the file."""
        return {**data, "releases": data} if isinstance(data, dict) and data.get("private") else data

    @property
    def protection(self) -> Releases | Reports | None:
        """The part that has the guarantee; None where there is none."""
        return self.releases or self.reports

    def publishable(self) -> list[str]:
        """Return the files that may be published."""
        return [entry.file for entry in self.publish if entry.publish == "yes"]


class Together(Stored):
    """What several trainings keep together, or the ``problem`` for which there is no figure."""

    trainings: int = 0
    problem: str | None = None
    epsilon: float | None = None
    delta: float | None = None
    claim: str | None = None
    accountant: str | None = None
    adjacency: str = ""
    adjacency_means: str = ""
    unit: str = ""

    @model_validator(mode="after")
    def _whole(self) -> Together:
        if self.epsilon is not None and None in (self.delta, self.claim, self.accountant):
            raise ValueError("an eps has no delta, claim or accountant")
        return self


class Run(Stored):
    """A training of several, alone."""

    folder: str
    labels: dict[str, object]
    seed: int | None = None
    promise: str | None = None
    epsilon: float | None = None
    delta: float | None = None
    claim: str | None = None
    accountant: str | None = None


class Setting(Stored):
    """The runs of one setting of a recipe with repeated runs."""

    labels: dict[str, object]
    runs: int
    epsilon_of_one: float | None
    epsilon: float | None


class OfAll(Stored):
    """The part of the statement of several trainings that summaries and pages show."""

    together: Together
    warnings: list[str]


class OfTrainings(OfAll):
    """The statement of several trainings."""

    recipe: str
    source: str
    trainings: int
    finished: int
    means: str
    runs: list[Run]
    settings: list[Setting] | None = None
    covered: list[str]
    not_covered: list[str]
    versions: dict[str, object]


class Certified(Stored):
    """The certified end of eps in an audit."""

    epsilon: float
    claim: str
    accountant: str


class AuditAnswer(Stored):
    """The content of ``audit.json``."""

    recipe: str
    verdict: str
    epsilon_at_least: float
    delta: float
    confidence: float
    certified: Certified
    gap: float
    canaries: int
    runs: int
    method: str
    adjacency: str
    source: str
    warnings: list[str]


class Claim(Stored):
    """A statement of a paper that is not borne out, with the finding, the reason, and what this says of the paper."""

    paper: str
    found: str
    because: str
    verdict: str = "contradicted"


class Claims(Stored):
    """The part of ``provenance.json`` that pages quote."""

    claims: list[Claim] = []


AnyStored = TypeVar("AnyStored", bound=Stored)


def json_object(path: Path) -> Json:
    """The object in a JSON file; UsageError if damaged or other, MissingResource if it cannot be read."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise of_file(error, path, "read", "run the recipe again") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is damaged: {error}") from None
    if not isinstance(data, dict):
        raise UsageError(f"{path} is damaged: it holds no JSON object")
    return data


def checked(kind: type[AnyStored], data: object, path: Path | str, advice: str) -> AnyStored:
    """Return plain data as a record."""
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        missing = first["type"] == "missing"
        fault = f"it lacks an entry that every one has, {place}" if missing else f"{place}: {first['msg']}"
        raise UsageError(f"{path} is damaged: {fault}. {advice}") from None


def read(kind: type[AnyStored], path: Path, advice: str = "Run the recipe again") -> AnyStored:
    """Return a JSON file as a record.

    Raises:
        UsageError: it is damaged, or lacks an entry. MissingResource: it is missing, or cannot be read.
    """
    return checked(kind, json_object(path), path, advice)
