"""A strategy of Flower for federated learning with a guarantee for each client: ``PrivateFedAvg``.

The server draws every client by a coin, clips each client's update, adds them with weight 1, adds noise once, and
divides by the expected number of clients. It needs the extra ``flower``.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import secrets
import time
import weakref
from collections.abc import Iterable
from dataclasses import replace
from logging import INFO
from pathlib import Path
from typing import SupportsIndex

import numpy as np
import torch
from numpy.typing import NDArray

from wpriv.accounting import evaluate, ledger
from wpriv.accounting.mechanisms.gauss import Gauss
from wpriv.core.guarantee import Guarantee
from wpriv.core.kinds import Adjacency, Poisson, Sampling
from wpriv.core.process import Process, Step
from wpriv.errors import Unsupported, UsageError, lacking
from wpriv.files import durable_writes
from wpriv.hints import did_you_mean
from wpriv.numerics.numbers import positive_number, shown
from wpriv.results import storage
from wpriv.training import own_training, plan
from wpriv.training.noise.release import Bounded, add_noise

try:
    from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
    from flwr.common.logger import log
    from flwr.serverapp import Grid
    from flwr.serverapp.strategy import FedAvg
except ImportError as error:
    if error.name == "flwr":
        raise lacking("flwr", "wpriv.flower") from None
    raise Unsupported(f"wpriv.flower needs Flower 1.22 or later ({error}): pip install -U flwr") from None

Update = dict[str, NDArray[np.float64]]
# the options of FedAvg that are refused, and why
FIXED_NUMBER = "each client is drawn by a coin, as the accounting assumes, and not a fixed number; give `expected`"
OF_CLIENTS = "what clients measure is a release without noise. Evaluate on public records, by evaluate_fn of start"
REFUSED = {
    "fraction_train": FIXED_NUMBER,
    "min_train_nodes": FIXED_NUMBER,
    "weighted_by_key": "every update has weight 1: a weight by examples would let a client move the sum by more than "
    "`clip`, and the number of its examples is private. Leave it out",
    **dict.fromkeys(
        ("fraction_evaluate", "min_evaluate_nodes", "train_metrics_aggr_fn", "evaluate_metrics_aggr_fn"), OF_CLIENTS
    ),
}
# the relative margin of the clipping factor over the rounding of a norm in float64
SLACK = 1e-9
WAIT_SECONDS = 1.0
UNIT = "a client with all of its records: what it sends, whether it takes part, and how many records it has"
STATEMENT = """\
# Privacy statement: PrivateFedAvg

- {headline}

| what | |
|---|---|
| protected | {unit} |
| neighbours | add-remove: two federations are neighbours where one of them has one client more |
| sampling | every client joins every round by an independent coin flip of probability {0.rate:.6g} |
| rounds | {0.spent} of {0.rounds} |
| clipped | each client's update, all arrays as one vector, to an l2 norm of {0.clip:g} |
| noise | standard deviation {deviation:.6g} on the sum of the updates, before it is divided by {0.expected:g} |

## Trust model

- the server is trusted: it sees the update of each client, who was drawn, and every random number
- clients and all others are not trusted: the guarantee holds against anyone who sees the global arrays of every round

## Not covered

- messages between server and clients: who sees them sees updates without noise, and who was drawn
- what clients send beside the arrays (metrics, numbers of examples) is dropped; integer arrays stay the server's
- the number of clients, the clipping norm and the learning rate, if they were chosen by looking at these clients
- floating point: the sum is rounded before noise is added to it on a grid of 2^-20 standard deviations
"""


class PrivateFedAvg(FedAvg):  # type: ignore[misc]  # no types are installed with flwr for mypy
    """Federated averaging with client-level privacy: no client moves the sum of a round by more than ``clip``.

    A round is written to ``ledger.jsonl`` before its messages are sent, and is spent whatever comes back: an error, a
    reply that does not fit and a client that is silent add zero, and the noisy sum is released all the same.

    Args:
        epsilon, delta: of all rounds together. clip: l2 norm of a client's update, over all arrays of numbers.
        clients: how many there are, a public number. expected: how many take part in a round on average.
        rounds: of the whole training; one more is refused. server_lr: factor on the mean update.
        out: folder of ``ledger.jsonl`` and ``statement.md``, by default ``results/federated``, with a number if it
            exists. A folder with fewer rounds of the same plan is continued.
        min_available_nodes, arrayrecord_key, configrecord_key: as in ``FedAvg``. Its other options are refused.
    Raises:
        UsageError: an argument is out of range, or an option would break the guarantee. Nothing is spent.
    """

    def __init__(
        self,
        *,
        epsilon: float,
        delta: float,
        clip: float,
        clients: int,
        expected: float,
        rounds: int,
        server_lr: float = 1.0,
        out: str | Path | None = None,
        min_available_nodes: int = 2,
        arrayrecord_key: str = "arrays",
        configrecord_key: str = "config",
        **others: object,
    ):
        for name in others:
            if others[name] in (None, 0) and REFUSED.get(name) == OF_CLIENTS:
                continue  # not to ask clients is what happens anyway
            if name in REFUSED:
                raise UsageError(f"`{name}` cannot be given to PrivateFedAvg: {REFUSED[name]}")
            known = list(inspect.signature(PrivateFedAvg).parameters)
            raise UsageError(f"PrivateFedAvg has no option {name!r}{did_you_mean(name, known) or '.'}")
        super().__init__(
            min_available_nodes=min_available_nodes, arrayrecord_key=arrayrecord_key, configrecord_key=configrecord_key
        )
        self.clip, self.server_lr = positive_number(clip, "`clip`"), positive_number(server_lr, "`server_lr`")
        self.rounds = positive_number(rounds, "`rounds`", whole=True)
        count = positive_number(clients, "`clients`", whole=True)
        self.expected = positive_number(expected, "`expected`")
        if self.expected > count:
            raise UsageError(f"`expected` must be at most the number of clients, {count}; found {shown(expected)}")
        self.delta, self.rate = positive_number(delta, "`delta`"), self.expected / count
        if self.delta >= 1:
            raise UsageError(f"`delta` must be below 1; found {shown(delta)}")
        eps = positive_number(epsilon, "`epsilon`")
        solution = plan.least_noise(self._process_at, plan.ACCOUNTANT, eps, self.delta, evaluate.ANSWER_TOL)
        self.sigma = solution.value
        (step,) = self._process_at(self.sigma).steps
        self._step = replace(step, n=1)
        self.out = own_training.free_folder("federated") if out is None else Path(out)
        self._ledger = self._open()
        # the arrays of the round that was begun, and the nodes that were drawn; None between rounds
        self._begun: dict[str, Array] | None = None
        self._drawn: set[int] = set()

    def _process_at(self, sigma: float) -> Process:
        """Return all rounds at a noise multiplier, as they are accounted for."""
        sampling = Poisson(self.rate) if self.rate < 1 else Sampling()
        return Process((Step(Gauss(sigma, 1.0), self.rounds, sampling),), Adjacency.ADD_REMOVE)

    def _open(self) -> ledger.Ledger:
        """Open the ledger, and refuse the rounds of another plan in it."""
        path = self.out / storage.LEDGER
        busy = f"another PrivateFedAvg has {self.out} open. Give another `out`, or delete that one first"
        with contextlib.ExitStack() as stack:
            stack.enter_context(durable_writes.locked(self.out / durable_writes.LOCK, busy))
            release, stream = ledger.describe(self._step), secrets.token_hex(8)
            if any((entry.release, entry.planned) != (release, self.rounds) for entry in ledger.entries(path)):
                raise UsageError(f"{self.out} holds rounds of another plan. Give the same arguments, or another `out`")
            book = ledger.Ledger(path, 1, self.rounds, adjacency=Adjacency.ADD_REMOVE, stream=stream, resume=True)
            stack.callback(book.close)
            # the folder is free again when this object is gone
            weakref.finalize(self, stack.pop_all().close)
        return book

    def __reduce_ex__(self, protocol: SupportsIndex) -> str:
        raise UsageError("a PrivateFedAvg cannot be copied: the rounds of a copy would be spent and not counted")

    @property
    def spent(self) -> int:
        """The number of rounds that were begun, each of which is spent."""
        return int(self._ledger.steps)

    @property
    def guarantee(self) -> Guarantee:
        """The client-level guarantee of the rounds that were begun.

        Raises:
            UsageError: there was none.
        """
        process = ledger.process(self._ledger.entries)
        return plan.guarantee(process, plan.ACCOUNTANT, evaluate.answer_tol(process), self.delta)

    def summary(self) -> None:
        """Log the plan."""
        log(INFO, "\t├──> Each client joins a round with probability %.6g", self.rate)
        log(INFO, "\t├──> Updates are clipped to %g; noise multiplier %.6g on their sum", self.clip, self.sigma)
        log(INFO, "\t└──> %d of %d rounds are spent; results in %s", self.spent, self.rounds, self.out)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Draw the clients of a round by coins, and write the round to the ledger.

        Raises:
            UsageError: all rounds are spent, or the global arrays hold no finite numbers to train.
        """
        if self.spent >= self.rounds:
            spent = f"all {self.rounds} rounds of the plan are spent"
            raise UsageError(f"{spent}, and one more would exceed its epsilon. Give `rounds` as many as num_rounds")
        _trained(arrays)  # refused before anything is spent
        while len(nodes := set(grid.get_node_ids())) < self.min_available_nodes:
            log(INFO, "Waiting for clients: %d of %d are connected", len(nodes), self.min_available_nodes)
            time.sleep(WAIT_SECONDS)
        self._ledger.spend(self.spent + 1, self._step)
        self._ledger.force()
        coin = secrets.SystemRandom()
        self._begun = dict(arrays)
        self._drawn = {node for node in sorted(nodes) if coin.random() < self.rate}
        config["server-round"] = server_round
        record = RecordDict({self.arrayrecord_key: arrays, self.configrecord_key: config})
        messages: Iterable[Message] = self._construct_messages(record, sorted(self._drawn), MessageType.TRAIN)
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Return the global arrays after the noisy mean of the updates, and no metrics.

        Raises:
            UsageError: no round was begun, or the arrays are not finite any more.
        """
        if self._begun is None:
            raise UsageError("the replies of a round are released once: call configure_train before aggregate_train")
        arrays, self._begun = self._begun, None
        values = _trained(arrays)
        noisy = add_noise(self._sum(values, replies), self.sigma)
        result = dict(arrays)
        for (name, value), part in zip(values.items(), noisy, strict=True):
            with np.errstate(over="ignore"):
                moved = np.asarray(value + self.server_lr / self.expected * part.numpy(), arrays[name].numpy().dtype)
            result[name] = Array(moved)
            if not np.isfinite(moved).all():
                what = f"the array {name!r} is not finite after round {server_round}"
                raise UsageError(f"{what}: take a smaller server_lr")
        headline, deviation = self.guarantee.headline(), self.sigma * self.clip
        text = STATEMENT.format(self, headline=headline, unit=UNIT, deviation=deviation)
        durable_writes.replace(self.out / storage.STATEMENT_TEXT, text)
        return ArrayRecord(result), None

    def _sum(self, values: Update, replies: Iterable[Message]) -> Bounded:
        """Return the sum of the clipped updates of the drawn clients, one of each, with its bound."""
        sums = {name: torch.zeros(value.shape, dtype=torch.float64) for name, value in values.items()}
        waiting = set(self._drawn)
        for message in replies:
            node = message.metadata.src_node_id
            if node not in waiting:
                continue
            waiting.discard(node)
            update = None if message.has_error() else _update(message.content, values)
            if update is None:
                log(INFO, "\t> node %d sent no update that fits the global arrays: it adds zero", node)
                continue
            for name, part in clipped(update, self.clip).items():
                sums[name] += torch.from_numpy(np.asarray(part))
        return Bounded(list(sums.values()), self.clip, Adjacency.ADD_REMOVE)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask no client for an evaluation, which would be a release without noise."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Drop the metrics of clients."""
        return None


def clipped(update: Update, clip: float) -> Update:
    """Return an update scaled to an l2 norm of at most ``clip`` over all arrays; zero if it is not finite.

    >>> clipped({"w": np.array([3.0, 4.0])}, 1.0)["w"].round(6).tolist()
    [0.6, 0.8]
    """
    largest = max((float(np.abs(part).max(initial=0.0)) for part in update.values()), default=0.0)
    if largest == 0:
        return update
    # in units of the largest number, so that no square overflows or becomes 0
    with np.errstate(invalid="ignore"):
        norm = largest * math.sqrt(sum(float(np.square(part / largest).sum()) for part in update.values()))
    if not math.isfinite(norm):
        return {name: np.zeros_like(part) for name, part in update.items()}
    factor = min(1.0, clip / (norm * (1 + SLACK)))
    return {name: part * factor for name, part in update.items()}


def _trained(arrays: dict[str, Array] | ArrayRecord) -> Update:
    """Return the arrays of floating-point numbers, which are trained, in float64; integers stay as they are."""
    read = {name: array.numpy() for name, array in arrays.items()}
    values = {name: value.astype(np.float64) for name, value in read.items() if value.dtype.kind == "f"}
    if not values or not all(np.isfinite(value).all() for value in values.values()):
        raise UsageError("the global arrays must hold floating-point numbers, all finite; give initial_arrays of these")
    return values


def _update(content: RecordDict, values: Update) -> Update | None:
    """Return what a client adds to the global arrays; None where its reply does not have the same arrays."""
    records = list(content.array_records.values())
    if len(records) != 1 or not values.keys() <= records[0].keys():
        return None
    update = {}
    for name, value in values.items():
        array = _read(records[0][name], value.size)
        if array is None or array.shape != value.shape or array.dtype.kind != "f":
            return None
        with np.errstate(over="ignore", invalid="ignore"):
            update[name] = array.astype(np.float64) - value
    return update


def _read(array: Array, size: int) -> NDArray[np.generic] | None:
    """Return the numbers of a client's array; None where its bytes are too many or are no array."""
    if len(array.data) > 16 * size + 4096:
        return None
    try:
        read = array.numpy()
    except (ValueError, TypeError, EOFError, OSError, MemoryError):
        return None
    return read if isinstance(read, np.ndarray) else None
