"""What is known of a run: its parts, where it differs from what was accounted for, and the processes that bound it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from wpriv.core.kinds import Adjacency, Sampling
from wpriv.core.mechanism import Mechanism
from wpriv.core.process import Process, Step

ADD, ZERO, REPLACE = Adjacency.ADD_REMOVE, Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE
# samplings in which a record takes part once in each pass of 1 / rate steps
IN_PASSES = ("shuffle", "order", "allocation")


@dataclass(frozen=True)
class Part:
    """``n`` releases of one mechanism: how records were drawn, at which rate, and in which batches or bands."""

    mechanism: Mechanism
    n: int
    kind: str = "none"
    rate: float = 1.0
    max_batch: int = 0
    bands: int = 1
    # whether its noise is relative to what one record adds, of which a replacement changes twice
    relative: bool = False

    def words(self) -> str:
        """``gauss (sigma 1, sensitivity 1), n = 500, poisson sampling at rate 0.01``."""
        values = {key: value for key, value in self.mechanism.describe().items() if key != "mech" and value is not None}
        inner = ", ".join(f"{key} {f'{each:.6g}' if isinstance(each, float) else each}" for key, each in values.items())
        drawn = f", {self.kind} sampling at rate {self.rate:.6g}" if self.kind != "none" else ", no sampling"
        return f"{self.mechanism.name} ({inner}), n = {self.n}{drawn}"

    def step(self) -> Step:
        """The step of a part whose sampling has an exact pair."""
        return Step(self.mechanism, self.n, Sampling(self.kind, self.rate, self.max_batch, self.bands))

    @property
    def pass_steps(self) -> int:
        """Steps of a pass: a last batch that is smaller counts as one."""
        return max(math.ceil(1 / self.rate - 1e-3), 1)


@dataclass(frozen=True)
class Difference:
    """One way in which what ran is not what was accounted for.

    Args:
        field: the premise. words: what ran, in a sentence: "sampling is shuffle". accounted: what was accounted for,
            in a few words: "poisson was accounted for". where: where it was seen; "" where it was computed.
        worse: whether it costs privacy; otherwise more was accounted for than ran.
    """

    field: str
    words: str
    accounted: str
    where: str = ""
    worse: bool = True


@dataclass(frozen=True)
class Run:
    """What ran.

    Args:
        parts: the releases. adjacency: the neighbours of the claim. group: records of one person.
        lowers: processes whose lower ends hold; none where nothing is known from below. uppers: those whose upper ends
            hold. zero_out: whether the lower ends are about zero-out neighbours although the claim is about others.
        kept: the probability that no pass leaves the record out, where the rest of the last batch is dropped.
        accounted: the process that was accounted for, where it is known.
        differences: between the two. endless: why no finite eps holds; "" where one may.
        notes: how premises were read. refusal: why there is no process, where there is none.
    """

    parts: tuple[Part, ...]
    adjacency: str
    group: int = 1
    lowers: tuple[Process, ...] = ()
    uppers: tuple[Process, ...] = ()
    zero_out: bool = False
    kept: float = 1.0
    accounted: tuple[Part, ...] = ()
    differences: tuple[Difference, ...] = ()
    endless: str = ""
    notes: tuple[str, ...] = ()
    refusal: str = ""

    @property
    def total(self) -> int:
        """The number of all releases."""
        return sum(part.n for part in self.parts)
