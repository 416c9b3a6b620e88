"""The schema of recipes of kind train; ``Train`` is its root."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, WithJsonSchema, field_validator, model_validator

from wpriv import strategies
from wpriv.config.document import Key
from wpriv.config.field_types import (
    Claim,
    Count,
    Expect,
    LocalNoise,
    OwnCode,
    Positive,
    Printed,
    Probability,
    StrictModel,
    Text,
    Time,
    Word,
    key,
    optional,
)
from wpriv.config.train_parts import (
    STABILITY,
    Adapt,
    Augment,
    Average,
    Axes,
    Cluster,
    EarlyStop,
    Init,
    LowRank,
    Patterns,
    Tune,
)
from wpriv.core import theorems
from wpriv.errors import UsageError
from wpriv.hints import did_you_mean, plain

REPORTS = "privatized"
"""The reader of files that ``wpriv privatize`` wrote."""


class DataSet(OwnCode):
    """The data set of a training: a reader in ``wpriv/training/data`` or in a file of the user's, and where to look."""

    file: Word | None = optional(
        "for readers of your own files, the path of one; or a Python file of your own (.py) that defines "
        "the name, a function that returns the records; it is run"
    )
    root: Word | None = optional("folder to look in before $WPRIV_DATA and the system's places")
    records: Count | None = optional("size of the training set that the recipe counts on; another one found is refused")
    limit: Count | None = optional("take only the first so many training records (and test records)")
    first: Count | None = optional("take only the first so many training records, and all test records")
    privatize: LocalNoise | None = optional(
        "put noise on the training records first, as wpriv privatize does; for experiments"
    )

    @property
    def noisy(self) -> bool:
        """Tell whether the training records are reports of ``wpriv privatize``, or get such noise first."""
        return self.privatize is not None or (self.name == REPORTS and not self.own)

    def parameters(self) -> dict[str, object]:
        """Return the parameters of the reader."""
        path = {} if self.file is None or self.own else {"file": self.file}
        return {**path, **super().parameters()}


BATCH_MEAN = ("norm", "mask")
"""Keys that only the published procedure (clip: batch-mean) has."""
OBSERVING = ("bdp", "wdp")
"""Accountants that compare gradients clipped to one norm in all steps."""
NESTED = ("sweep", "seeds", "tune")
"""Keys that make several trainings of one recipe."""


def _clip(value: Any) -> object:
    if isinstance(value, dict):
        if value and all(type(each) in (int, float) and 0 < each < math.inf for each in value.values()):
            return value
        raise ValueError("of groups must be a number above 0 for each pattern of parameters, such as {head.*: 0.5}")
    if value in ("batch-mean", "automatic", "per-layer") or (type(value) in (int, float) and 0 < value < math.inf):
        return value
    raise ValueError(
        "must be a number above 0 (the norm of one example's gradient), automatic, per-layer, a number for each group "
        "of parameters, or batch-mean"
    )


BOUNDS = {"type": "object", "minProperties": 1, "additionalProperties": {"type": "number", "exclusiveMinimum": 0}}
Clip = Annotated[
    Any,
    BeforeValidator(_clip),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0},
                {"enum": ["automatic", "per-layer", "batch-mean"]},
                BOUNDS,
            ]
        }
    ),
]


class Correlated(StrictModel):
    """Noise that is correlated between steps: that of step t is row t of C^-1 Z, for a strategy C."""

    strategy: Word = key(
        "the strategy C as in wpriv budget: identity, lambda:0.9, banded:4, blt:4, bisr:4, ... (without n, the number "
        "of steps, which is that of the training)"
    )
    value: Annotated[float, Field(ge=0, lt=1)] | None = optional("with strategy: lambda, its parameter")
    bands: Count | None = optional("with strategy: banded, bisr, ...: the number of bands")
    buffers: Count | None = optional("with strategy: blt, the number of buffers")

    @property
    def name(self) -> str:
        """The strategy with its parameter, such as ``lambda:0.9``; that of ``wpriv.strategies`` where it has none."""
        given = [f"{key}={getattr(self, key)}" for key in PARAMETERS if getattr(self, key) is not None]
        if not given and ":" not in self.strategy and (kind := strategies.KINDS.get(self.strategy)) and kind.parameter:
            given = [f"{kind.default:g}"]
        return f"{self.strategy}{',' if ':' in self.strategy else ':'}{','.join(given)}" if given else self.strategy

    def rules(self) -> Iterator[tuple[Key, str]]:
        if self.strategy.endswith(".npy"):
            message = "training takes a strategy by name, whose noise follows from few earlier steps; found a file"
            yield ("strategy",), f"{message}. Give lambda, banded, blt or bisr"
            return
        try:
            if steps := strategies.steps_of(self.name):
                yield ("strategy",), f"the number of steps is that of the training: leave out n={steps}"
        except UsageError as error:
            yield ("strategy",), str(error)


NoiseForm = Annotated[
    Annotated[Literal["rounded", "exact"], Tag("noise")] | Annotated[Correlated, Tag("correlated")],
    Discriminator(lambda value: "correlated" if isinstance(value, (dict, Correlated)) else "noise"),
]
PARAMETERS = ("value", "bands", "buffers")
"""Keys of correlated noise that are the parameter of a strategy."""


class Privacy(StrictModel):
    """The target (eps and delta) or the noise (sigma). With all three the run stops before eps is exceeded."""

    eps: Positive | None = optional("eps of the whole training; the noise is solved for")
    delta: Probability | None = optional("delta of the guarantee; take it well below 1 / records")
    sigma: Positive | None = optional(
        "noise multiplier: standard deviation of the noise over the sensitivity of the sum"
    )
    accountant: Word | None = optional(
        "calibrates the noise for eps (default pld); published ones, such as swd-tail:w=clt, may be unsafe"
    )
    sampling: Literal["poisson", "fixed", "allocation", "none"] = key(
        "how the records of a step are drawn, which is also what is accounted for: each by itself "
        "(poisson), a set of fixed size (fixed), each in one random step of every pass (allocation), or all (none)",
        "poisson",
    )
    adjacency: Literal["add-remove", "replace-one"] | None = optional(
        "neighbouring relation; left out, it follows from the sampling and the task"
    )
    group: Count = key("largest number of records of one person, who is protected as a whole", 1)
    clip: Clip = key(
        "l2 norm to which each example's gradient is clipped; automatic, which divides each gradient by "
        "its norm plus stability; per-layer, which clips the part of each of L layers to 1 / sqrt(L); a norm for each "
        "group of parameters by pattern, {head.*: 0.5, body.*: 1}; or batch-mean",
        1.0,
    )
    stability: Positive | None = optional(
        f"with clip: automatic, the number that is added to each norm (default {STABILITY:g})"
    )
    adapt: Adapt | None = optional("let the clipping norm follow a quantile of the gradients' norms, from clip on")
    norm: Positive = key("with clip: batch-mean, the norm to which the mean gradient of a batch is clipped", 1.0)
    mask: Annotated[float, Field(ge=0, lt=1)] = key(
        "share of coordinates set to zero at each step, after the noise", 0.0
    )
    pairs: Annotated[int, Field(ge=3, le=100)] = key(
        "records whose gradients are compared for the accountants bdp and wdp", 8
    )
    method: Literal["auto", "ghost", "vmap", "loop"] = key("how per-example gradients are clipped; all agree", "auto")
    noise: NoiseForm = key(
        "rounded: float64 noise, rounded with the sum to a grid; exact: sums and noise without any "
        "floating-point error, so that the guarantee is about the numbers that are released "
        "(one record at a time, slower); or a strategy, such as lambda:0.9 or {strategy: lambda, value: 0.9}: noise "
        "that is correlated between steps, with records that keep one bin (sampling: allocation)",
        "rounded",
    )

    @model_validator(mode="before")
    @classmethod
    def _in_bins(cls, values: object) -> object:
        if not isinstance(values, dict):
            return values
        noise = values.get("noise")
        if isinstance(noise, str) and (":" in noise or noise in strategies.KINDS):
            noise = {"strategy": noise}
        return {"sampling": "allocation", **values, "noise": noise} if isinstance(noise, dict) else values

    @field_validator("sampling", mode="before")
    @classmethod
    def _of_training(cls, value: object) -> object:
        if value == "shuffle":
            raise ValueError(
                "training offers no shuffled batches: they are certified, but no amplification is proven for them; use "
                "poisson, or account for another program by budget"
            )
        return "allocation" if isinstance(value, str) and plain("samplings", value) == "allocation" else value

    def rules(self) -> Iterator[tuple[Key, str]]:
        if self.eps is None and self.sigma is None:
            noise = "the noise (sigma, and the delta at which eps is reported)"
            yield (), f"privacy needs a target (eps and delta), or {noise}; found neither eps nor sigma"
        if self.delta is None:
            yield (), "privacy needs delta, at which eps is asked or reported"
        if self.accountant is not None and self.sigma is not None:
            message = "accountant calibrates the noise for eps, and sigma gives the noise; remove one of them"
            yield ("accountant",), message
        # under replace-one, Poisson sampling has a proof only where a record moves the sum by half of the sensitivity
        proven = theorems.adjacencies(self.sampling)[: 1 if self.sampling == "poisson" else None]
        if proven and self.adjacency not in (None, *proven):
            accounted = f"{self.sampling} sampling is accounted for under {proven[0]} adjacency"
            yield ("adjacency",), f"{accounted}; found {self.adjacency}"
        if self.exact and self.method not in ("auto", "loop"):
            message = f"noise: exact clips one record after another (loop); found {self.method}. Leave method out"
            yield ("method",), message
        if self.clip != "batch-mean":
            for name in BATCH_MEAN:
                if name in self.model_fields_set:
                    yield (name,), f"'{name}' belongs to the published procedure (clip: batch-mean); remove it"
        elif self.eps is not None:
            reason = "is the published procedure, whose noise is given (sigma), not calibrated"
            yield ("eps",), f"clip: batch-mean {reason}; remove eps"
        if self.by_group and self.exact:
            yield ("noise",), "exact noise needs one clipping norm, and clip has one for each group. Use rounded"
        if self.stability is not None and self.clip != "automatic":
            yield ("stability",), "stability belongs to automatic clipping (clip: automatic); remove it"
        if self.adapt is not None:
            yield from self._adaptive(self.adapt)
        if self.correlated is not None:
            yield from self._correlated()

    def _correlated(self) -> Iterator[tuple[Key, str]]:
        """What the theorem of correlated noise does not cover (docs/theory/balls-in-bins.md)."""
        if self.sampling != "allocation":
            message = f"is accounted for with records that keep one bin; found sampling: {self.sampling}"
            yield ("sampling",), f"correlated noise {message}. Give sampling: balls-in-bins"
        if self.group > 1:
            yield ("group",), "correlated noise has no proof for groups of records. Leave group out"
        if self.clip == "batch-mean":
            yield ("clip",), "correlated noise is for sums of records that are clipped one by one. Give clip a number"
        if self.adapt is not None:
            message = "adapt changes the norm, and correlated noise is on sums of one norm in all steps"
            yield ("adapt",), f"{message}. Leave adapt out"
        if self.eps is not None and self.sigma is not None:
            message = "with correlated noise all steps are one release, which does not stop before eps is exceeded"
            yield ("sigma",), f"{message}: give eps or sigma"

    def _adaptive(self, adapt: Adapt) -> Iterator[tuple[Key, str]]:
        if not isinstance(self.clip, (int, float)):
            first = "adapt changes a clipping norm that begins with a number"
            yield ("adapt",), f"{first}; found clip: {self.clip}. Give a number"
        elif not adapt.smallest <= self.clip <= adapt.largest:
            ends = f"{adapt.smallest:g} and {adapt.largest:g}"
            yield ("clip",), f"clip, the norm at the first step, must lie between {ends}; found {self.clip:g}"
        if self.exact:
            reason = "one grid for all steps, and adapt changes the norm and so the grid"
            yield ("noise",), f"exact noise needs {reason}. Use rounded"

    @property
    def bound(self) -> float:
        """The norm that no clipped gradient exceeds (at the first step, where it is adapted); 1 if automatic."""
        if self.clip == "batch-mean":
            return self.norm
        if isinstance(self.clip, dict):
            return math.hypot(*self.clip.values()) * (1 + 2.0**-50)
        return 1.0 if isinstance(self.clip, str) else float(self.clip)

    @property
    def by_group(self) -> bool:
        """Tell whether parts of a gradient are clipped to norms of their own."""
        return self.clip == "per-layer" or isinstance(self.clip, dict)

    @property
    def correlated(self) -> Correlated | None:
        """The strategy of noise that is correlated between steps; None for independent noise."""
        return self.noise if isinstance(self.noise, Correlated) else None

    @property
    def exact(self) -> bool:
        """Tell whether sums and noise have no floating-point error."""
        return self.noise == "exact"


class Optimizer(StrictModel):
    """Plain SGD or Adam on the noisy gradients."""

    name: Literal["sgd", "adam", "adamw", "given"] = key(
        "stochastic gradient descent, Adam, Adam with decoupled weight decay, or given: one of the calling program",
        "sgd",
    )
    lr: Positive = key("learning rate")
    momentum: Annotated[float, Field(ge=0, lt=1)] = key("of sgd", 0.0)
    nesterov: bool = key("Nesterov's form of the momentum of sgd", False)
    betas: Annotated[list[float], Field(min_length=2, max_length=2)] = key(
        "decay of the two averages of adam and adamw", [0.9, 0.999]
    )
    weight_decay: Annotated[float, Field(ge=0, allow_inf_nan=False)] = key(
        "multiple of the weights that is added to their gradient; with adamw, share of the weights that "
        "each step takes away, times lr",
        0.0,
    )
    decay: Literal["none", "linear", "cosine"] = key("how lr falls to 0 over the run, or after the warm-up", "none")
    warmup: Count | None = optional("number of first steps over which lr rises linearly to its value")

    @field_validator("name", mode="before")
    @classmethod
    def _known(cls, value: object) -> object:
        known = ("sgd", "adam", "adamw")
        if isinstance(value, str) and value not in (*known, "given"):
            near = did_you_mean(value, known)
            raise ValueError(f"must be sgd, adam or adamw (in Python also one of torch.optim); found {value!r}{near}")
        return value

    def rules(self) -> Iterator[tuple[Key, str]]:
        if self.nesterov and not (self.name == "sgd" and self.momentum):
            reason = "is one of the momentum of sgd; give a momentum above 0, or leave nesterov out"
            yield ("nesterov",), f"Nesterov's form {reason}"


def _no_privacy(value: object) -> object:
    if isinstance(value, dict) and value.get("eps") in ("inf", math.inf):
        if value.get("sigma") is not None:
            raise ValueError("eps: inf trains without noise, and sigma asks for some; remove one of them")
        return None  # an infinite eps promises nothing
    return None if value == "none" else value


NoPrivacy = Annotated[
    Privacy | None,
    BeforeValidator(_no_privacy, json_schema_input_type=Privacy | Literal["none"]),
    Field(
        description="target or noise, sampling and clipping; or the word none (eps: inf is the same): no clipping, no "
        "noise, no guarantee"
    ),
]


class Train(StrictModel):
    """kind: train. A model trained with or without differential privacy, and its guarantee."""

    kind: Literal["train"]
    source: Word = key("the paper and its reproduced table or figure, or where the job comes from")
    task: Word = key("what is trained, and what a step releases")
    data: DataSet = key("the records")
    model: OwnCode = key("the network")
    options: dict[str, object] = Field(default_factory=dict, description="options of the task")
    privacy: NoPrivacy
    init: Init = optional(
        "a file of weights from which the network begins: its path, or a mapping. They count as public"
    )
    freeze: Patterns | None = optional("parameters that are not trained, by name, such as features.*")
    lora: LowRank | None = optional("train low-rank changes of linear layers in the place of their weights")
    optimizer: Optimizer = key("how noisy gradients change the weights")
    augment: Augment | None = optional(
        "average each record's gradient over copies (changed images, or other draws of the network) before clipping"
    )
    average: Average | None = optional("measure and release an exponential moving average of the weights as well")
    early_stop: EarlyStop | None = optional("end where a figure of the test records does not get better any more")
    batch: Count | None = optional(
        "records of a step, on average under Poisson sampling and random allocation (a pass then has "
        "records / batch steps, rounded to a whole number); all of them where left out"
    )
    epochs: Positive | None = optional(
        "passes over the data; steps = epochs x records / batch, rounded up (to whole passes under random "
        "allocation). Give epochs or steps"
    )
    steps: Count | None = optional("number of steps; a whole number of passes under random allocation")
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = optional(
        "makes a run repeatable, and its noise known to whoever knows the seed; left out, randomness comes "
        "from the operating system, as a release needs"
    )
    seeds: Annotated[int, Field(ge=1, le=1000)] | None = optional(
        "train so many times, each run with randomness of its own and in a folder of its own; tables have "
        "means and standard deviations, and the statement the cost of all runs together. A quick run takes its own "
        "number, or 1. With seed, the seeds of the runs are derived from it"
    )
    physical: Count | None = optional("records that go through the model at once; found from memory where left out")
    precision: Literal["bf16"] | None = optional(
        "bf16: the network computes outputs and gradients of layers in bfloat16 where torch.autocast does; weights, "
        "norms, sums and noise stay float32, as all is where it is left out"
    )
    memory: Annotated[int, Field(ge=16)] = key("megabytes that the activations of one physical batch may take", 1000)
    shard_weights: bool = key(
        "divide weights, sums of gradients, noise and optimizer among the processes of torchrun (FSDP); "
        "needs a network that is clipped by the method ghost",
        False,
    )
    checkpoint: Annotated[float, Field(ge=0)] = key("seconds between checkpoints; there is one an epoch as well", 60.0)
    accountants: Annotated[list[Word], Field(min_length=1)] = key(
        "the accountants of the statement, with options as name:option=value", ["pld"]
    )
    figure: Word | None = optional("what draws the metrics (default: training) or a sweep's table")
    title: str | None = optional("title of the figure")
    expect: list[Expect] = Field(
        default_factory=list, description="numbers to compare with the last row of metrics.csv or of a sweep"
    )
    claims: list[Claim] = Field(
        default_factory=list, description="statements of the paper that do not hold, printed after results"
    )
    printed: Printed | None = optional(
        "settings that the source prints; pages name those from which a run deviates, beside each number"
    )
    procedure: Text | None = optional("what is trained, in a short phrase, where it is not the paper's procedure")
    time: Time | None = optional("how long the recipe takes")
    sweep: Axes | None = optional("one axis, or a list of axes whose product is the grid")
    cluster: Cluster | None = optional(
        "what the tasks of a sweep ask of a cluster, where --backend submitit submits them"
    )
    tune: Tune | None = optional(
        "train a random number of runs of settings drawn at random, and keep only the best of them"
    )
    quick: dict[str, object] | None = optional(
        "keys that differ in a quick run; mappings are merged, a sweep is replaced"
    )

    def rules(self) -> Iterator[tuple[Key, str]]:
        if (self.epochs is None) == (self.steps is None):
            yield ("epochs",), "give either epochs or steps: how long to train"
        if self.cluster is not None and not self.has_several:
            places = "the trainings of a sweep, or repeated runs, take place"
            yield ("cluster",), f"'cluster' says where {places}. Leave it out"
        if (self.seeds or 1) > 1 and any(axis.over == "run" for axis in self.sweep or []):
            yield ("sweep",), "with seeds the column run numbers the runs; call the axis otherwise"
        swept = dict.fromkeys(path for axis in self.sweep or [] for _, keys in axis.points() for path in keys)
        for path in swept:
            if path.partition(".")[0] in NESTED:  # a statement is about the one training in its folder
                several = f"each cell is one training, and {path} would make several of it"
                yield ("sweep",), f"sweep: {several}; leave it out of the axes"
        if self.optimizer.name == "given" and self.data.name != "given":
            yield ("optimizer", "name"), "given is an optimizer of a Python program; take sgd, adam or adamw"
        if self.early_stop is not None:
            yield from self._looks(self.early_stop)
        if self.privacy is not None:
            yield from self._batches(self.privacy)
        if self.printed is not None:
            yield from self.printed.unknown(Train)

    def _looks(self, rule: EarlyStop) -> Iterator[tuple[Key, str]]:
        private, reason = self.privacy, ""
        if private is not None and rule.records is None:
            yield ("early_stop",), "early_stop needs records: public, or private; found neither"
        if rule.records != "private":
            return
        if private is None:
            reason = "have the delta of `privacy`, and this training has none"
        elif rule.eps is None and private.eps is None:
            reason = "have an eps: give early_stop.eps, since privacy has none"
        elif private.group > 1 or "max_per_person" in self.data.parameters():
            reason = "are counted one by one, and a person has several here. Give public records"
        elif self.tune is not None or self.has_several:
            reason = "are counted for one training, and this recipe has several. Give public records"
        if reason:
            yield ("early_stop", "records"), f"looks at private records {reason}"

    def _batches(self, private: Privacy) -> Iterator[tuple[Key, str]]:
        if private.sampling != "none" and self.batch is None:
            yield ("privacy", "sampling"), f"{private.sampling} sampling needs 'batch', the number of records of a step"
        if private.sampling == "none" and self.batch is not None:
            ways = "leave out batch, or sample (poisson, fixed, allocation)"
            yield ("batch",), f"without sampling every step uses all records; {ways}"
        for name in self.observing[:1]:
            if self.batch is not None and self.batch < private.pairs:
                fault = f"compares {private.pairs} records of every step; found a batch of {self.batch}"
                yield ("privacy", "pairs"), f"{name} {fault}. Take a larger batch, or fewer pairs"
            if private.adapt is not None or private.correlated is not None:
                reason = "compares gradients under one clipping norm, which adapt changes"
                if private.adapt is None:
                    reason = "compares gradients of steps with independent noise, and this one is correlated"
                yield ("accountants",), f"accountants: {name} {reason}; use pld"

    @property
    def observing(self) -> list[str]:
        """The accountants that observe gradients during the training."""
        return [name for name in self.accountants if name.partition(":")[0] in OBSERVING]

    @property
    def on_reports(self) -> bool:
        """Tell whether the training adds no noise, and its records had some before: it is post-processing of them."""
        return self.privacy is None and self.data.noisy

    @property
    def has_several(self) -> bool:
        """Tell whether the recipe is of several trainings, of which each has a folder of its own."""
        return self.sweep is not None or (self.seeds or 1) > 1
