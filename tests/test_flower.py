"""The strategy for Flower, with clients in this process; the oracles are sums by hand and the calculator."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.supercore.task_identity import TaskIdentity

import wpriv
from wpriv.accounting import ledger
from wpriv.errors import UsageError
from wpriv.flower import PrivateFedAvg, clipped

GENERATOR = np.random.default_rng(0)
PLAN = {"epsilon": 8, "delta": 1e-3, "clip": 1.0, "clients": 40, "expected": 20, "rounds": 15}
ZERO = {"weight": np.zeros((2, 3), np.float32), "bias": np.zeros(3, np.float32), "count": np.array(7)}


@pytest.fixture(autouse=True)
def _identity(monkeypatch):
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


@pytest.fixture
def strategy(tmp_path):
    return lambda **options: PrivateFedAvg(**{**PLAN, "out": tmp_path / "federated", **options})


def record(arrays):
    return ArrayRecord({name: Array(np.asarray(value)) for name, value in arrays.items()})


def reply_to(message, arrays, examples=1, **more):
    content = {"arrays": record(arrays), "metrics": MetricRecord({"num-examples": examples, "loss": 0.5}), **more}
    return Message(RecordDict(content), reply_to=message)


class Clients:
    """A Grid of clients in this process, each a function (message, arrays) -> reply."""

    def __init__(self, clients):
        self.clients = clients

    def get_node_ids(self):
        return list(self.clients)

    def send_and_receive(self, messages, *, timeout=None):
        return [
            self.clients[message.metadata.dst_node_id](
                message, {name: array.numpy() for name, array in message.content["arrays"].items()}
            )
            for message in messages
        ]


def constant(value, examples=1):
    def answer(message, arrays):
        moved = {
            name: np.asarray(array + value).astype(array.dtype) if array.dtype.kind == "f" else np.asarray(array + 5)
            for name, array in arrays.items()
        }
        return reply_to(message, moved, examples)

    return answer


def sum_of(strategy, clients):
    """The sum before noise of a round in which all clients are drawn."""
    grid = Clients(clients)
    messages = strategy.configure_train(1, record(ZERO), ConfigRecord(), grid)
    values = {name: value.astype(float) for name, value in ZERO.items() if name != "count"}
    total = strategy._sum(values, grid.send_and_receive(messages))
    assert total.sensitivity == strategy.clip
    return np.concatenate([part.numpy().ravel() for part in total.parts])


ALL = {"clients": 3, "expected": 3}


def shaped(**changes):
    return lambda message, arrays: reply_to(message, {**arrays, **changes})


@pytest.mark.parametrize(
    "client",
    [
        constant(0.01),
        constant(1e30, examples=10**6),
        constant(-3.0),
        constant(np.nan),
        constant(np.inf),
        shaped(weight=np.full((2, 3), 1e308)),
        shaped(weight=np.ones((3, 2), np.float32)),
        shaped(weight=np.ones((200, 300), np.float32)),
        shaped(weight=np.ones((2, 3), np.int64)),
        shaped(weight=np.ones((2, 3), np.complex64)),
        shaped(weight=np.array([["a"] * 3] * 2)),
        shaped(another=np.ones(3)),
        lambda message, arrays: reply_to(message, {"bias": arrays["bias"]}),
        lambda message, arrays: Message(Error(1, "no memory"), reply_to=message),
        lambda message, arrays: Message(RecordDict({}), reply_to=message),
        lambda message, arrays: reply_to(message, arrays, second=record(arrays)),
    ],
)
def test_a_client_moves_the_sum_by_at_most_the_clip_whatever_it_sends(strategy, client):
    others = {1: constant(0.1), 2: constant(5.0)}
    private = strategy(**ALL, clip=0.25)
    without, with_client = sum_of(private, others), sum_of(private, {**others, 3: client})
    moved = np.linalg.norm(with_client - without)
    assert moved <= 0.25 * (1 + 1e-9)
    assert np.isfinite(with_client).all()


def test_the_sum_is_that_of_updates_clipped_by_hand(strategy):
    total = sum_of(strategy(**ALL), {1: constant(0.1), 2: constant(5.0, examples=99), 3: constant(-0.01)})
    parts = [np.full(9, value, np.float32).astype(float) for value in (0.1, 5.0, -0.01)]
    assert np.allclose(total, sum(part * min(1, 1 / np.linalg.norm(part)) for part in parts), rtol=1e-8, atol=0)


@pytest.mark.parametrize("scale", [1e-200, 1e-160, 1.0, 1e160, 1e300])
def test_clipping_holds_where_squares_leave_the_range_of_doubles(scale):
    update = {"a": np.array([3.0, 4.0]) * scale, "b": np.array(12.0) * scale}
    parts = clipped(update, scale / 10)
    length = math.hypot(*(float(value) / scale for part in parts.values() for value in np.ravel(part)))
    assert math.isclose(length, 0.1, rel_tol=1e-8)


def test_two_replies_of_a_client_and_replies_of_others_count_once_and_not_at_all(strategy):
    private = strategy(**ALL)
    grid = Clients({node: constant(0.1) for node in (1, 2, 3)})
    messages = list(private.configure_train(1, record(ZERO), ConfigRecord(), grid))
    private._drawn.discard(3)
    values = {"bias": np.zeros(3)}
    replies = grid.send_and_receive([*messages, *messages])
    assert np.allclose(private._sum(values, replies).parts[0], 0.2, rtol=1e-6)


# --- rounds ---


def data(count):
    x = GENERATOR.normal(size=(count, 10))
    return x, (x @ TRUE).argmax(1)


TRUE = GENERATOR.normal(size=(10, 3))


def learner(x, y):
    def learn(message, arrays):
        weight, bias = arrays["weight"].astype(float), arrays["bias"].astype(float)
        for _ in range(20):
            shares = np.exp(x @ weight + bias)
            shares /= shares.sum(1, keepdims=True)
            shares[np.arange(len(y)), y] -= 1
            weight, bias = weight - 0.5 * x.T @ shares / len(y), bias - 0.5 * shares.mean(0)
        return reply_to(message, {"weight": weight.astype(np.float32), "bias": bias.astype(np.float32)}, len(y))

    return learn


def test_forty_clients_of_unequal_size_learn_in_fifteen_rounds_at_eps_8(strategy):
    grid = Clients({node: learner(*data(int(size))) for node, size in enumerate(GENERATOR.integers(5, 60, 40))})
    private, (x, y) = strategy(), data(1000)
    first = {"weight": np.zeros((10, 3), np.float32), "bias": np.zeros(3, np.float32)}
    result = private.start(grid, record(first), num_rounds=15)
    last = {name: array.numpy() for name, array in result.arrays.items()}
    assert ((x @ last["weight"] + last["bias"]).argmax(1) == y).mean() > 0.8
    assert last["weight"].dtype == np.float32
    assert not result.train_metrics_clientapp
    assert not result.evaluate_metrics_clientapp
    rows = ledger.entries(private.out / "ledger.jsonl")
    assert len(rows) == private.spent == 15
    assert 7.9 < private.guarantee.epsilon.upper <= 8
    again = wpriv.budget("gauss", sigma=private.sigma, sampling="poisson", rate=0.5, n=15, delta=1e-3)
    assert math.isclose(again.epsilon.upper, private.guarantee.epsilon.upper, rel_tol=1e-6)
    assert "| rounds | 15 of 15 |" in (private.out / "statement.md").read_text()
    with pytest.raises(UsageError, match="all 15 rounds"):
        private.start(grid, result.arrays, num_rounds=1)


def test_the_noise_is_drawn_once_and_divided_by_the_expected_number(strategy):
    """Nobody replies: the difference of the arrays is the noise, of standard deviation sigma C / expected."""
    private = strategy(clip=2.0, server_lr=0.5)
    arrays = record({"weight": np.zeros(40_000), "count": np.array(7)})
    private.configure_train(1, arrays, ConfigRecord(), Clients({}.fromkeys(range(2), constant(0))))
    moved, metrics = private.aggregate_train(1, [])
    assert metrics is None
    assert int(moved["count"].numpy()) == 7
    deviation = 0.5 * private.sigma * 2.0 / 20
    assert math.isclose(moved["weight"].numpy().std(), deviation, rel_tol=0.02)


def test_arrays_without_dimensions_and_without_numbers_are_aggregated(strategy):
    first = {"scale": np.array(1.0), "none": np.zeros((0, 3)), "half": np.zeros(2, np.float16)}
    grid = Clients({node: constant(5) for node in (1, 2, 3)})
    result = strategy(**ALL, rounds=1).start(grid, record(first), num_rounds=1)
    shapes = {name: (array.numpy().shape, array.numpy().dtype) for name, array in result.arrays.items()}
    assert shapes == {name: (array.shape, array.dtype) for name, array in first.items()}


def test_integer_arrays_stay_the_servers(strategy):
    grid = Clients({node: constant(5) for node in (1, 2, 3)})
    result = strategy(**ALL, rounds=1).start(grid, record(ZERO), num_rounds=1)
    assert int(result.arrays["count"].numpy()) == 7


def test_each_client_is_drawn_by_a_coin_of_its_own(strategy):
    private = strategy(clients=1000, expected=100, rounds=40)
    grid = Clients(dict.fromkeys(range(1000), constant(0)))
    counts = np.zeros(1000)
    sizes = []
    for number in range(1, 41):
        drawn = [m.metadata.dst_node_id for m in private.configure_train(number, record(ZERO), ConfigRecord(), grid)]
        counts[drawn] += 1
        sizes.append(len(drawn))
    # 40,000 coins of probability .1: mean 4000, standard deviation 60
    assert abs(counts.sum() - 4000) < 6 * 60
    assert np.std(sizes) > 3


def test_a_round_that_is_aborted_is_spent_and_released_once(strategy):
    private, grid = strategy(rounds=2), Clients(dict.fromkeys(range(40), constant(0)))
    private.configure_train(1, record(ZERO), ConfigRecord(), grid)
    private.configure_train(1, record(ZERO), ConfigRecord(), grid)
    assert private.spent == 2
    private.aggregate_train(1, [])
    with pytest.raises(UsageError, match="released once"):
        private.aggregate_train(1, [])
    with pytest.raises(UsageError, match="all 2 rounds"):
        private.configure_train(2, record(ZERO), ConfigRecord(), grid)


def test_a_folder_is_continued_with_the_same_plan_and_refused_with_another(strategy, tmp_path):
    private, grid = strategy(), Clients(dict.fromkeys(range(40), constant(0)))
    private.configure_train(1, record(ZERO), ConfigRecord(), grid)
    with pytest.raises(UsageError, match="open"):
        strategy()
    del private
    assert strategy().spent == 1
    with pytest.raises(UsageError, match="another plan"):
        strategy(epsilon=3)
    assert strategy().spent == 1


def test_a_copy_is_refused(strategy):
    with pytest.raises(UsageError, match="cannot be copied"):
        copy.deepcopy(strategy())


def test_arrays_without_finite_numbers_are_refused_before_anything_is_spent(strategy):
    private, grid = strategy(), Clients({1: constant(0), 2: constant(0)})
    for arrays in ({"count": np.array(3)}, {"weight": np.array([1.0, np.nan])}, {}):
        with pytest.raises(UsageError, match="all finite"):
            private.configure_train(1, record(arrays), ConfigRecord(), grid)
    assert private.spent == 0


def test_no_client_is_asked_for_an_evaluation(strategy):
    private = strategy()
    assert private.configure_evaluate(1, record(ZERO), ConfigRecord(), Clients({1: constant(0)})) == []
    assert private.aggregate_evaluate(1, []) is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"weighted_by_key": "num-examples"}, "weight 1"),
        ({"fraction_train": 0.5}, "by a coin"),
        ({"min_train_nodes": 5}, "by a coin"),
        ({"fraction_evaluate": 1.0}, "evaluate_fn"),
        ({"train_metrics_aggr_fn": print}, "evaluate_fn"),
        ({"min_available_node": 3}, "did you mean 'min_available_nodes'"),
        ({"epsilon": -1}, "epsilon"),
        ({"epsilon": "much"}, "epsilon"),
        ({"delta": 2}, "delta"),
        ({"clip": math.nan}, "clip"),
        ({"clients": 2.5}, "clients"),
        ({"expected": 41}, "at most the number of clients"),
        ({"rounds": 0}, "rounds"),
        ({"server_lr": 0}, "server_lr"),
    ],
)
def test_faulty_options_are_refused_and_nothing_is_written(strategy, tmp_path, options, words):
    with pytest.raises(UsageError, match=words):
        strategy(**options)
    assert not list(tmp_path.iterdir())
