"""Folders of opake: accountant.json, and trainer_state.json with its private fields."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from wpriv.checks.premises import Fact, Found, StepSpec
from wpriv.checks.readers import _documents, dp_accounting
from wpriv.checks.readers._documents import count, mapping, real
from wpriv.checks.readers._gaussian_steps import counted, gauss, total
from wpriv.checks.readers.transformers import last_logged, state_file, tuning_notes
from wpriv.errors import Unsupported, UsageError

ACCOUNT = "accountant.json"
# processes that hold others, under these fields
HOLDERS = {"Composed": ("left", "right"), "CachedProcess": ("inner",), "Repeated": ("inner",)}
KNOWN = (*HOLDERS, "Identity", "Gaussian", "Poisson", "AdaClip", "KOutOfT", "EpsDelta", "NonPrivate")
# processes of which no pair is proven here; the figures of some are drawn at random
MONTE_CARLO = ("BallsInBins", "BMinSep")
UNPROVEN = (*MONTE_CARLO, "ParallelPoisson", "MfGaussian", "CyclicPoisson")


def recognises(x: object) -> bool:
    """Tell whether x is a folder of opake's trainer, one of its checkpoints, its account, or its state."""
    account, state = _files(x)
    return account is not None or (state is not None and _documents.is_json_object(state, "privacy_resolved_delta"))


def _files(x: object) -> tuple[Path | None, Path | None]:
    """The account and the state of a run, from a folder, a checkpoint or one of the two files."""
    if not isinstance(x, Path):
        return None, None
    state = state_file(x)
    try:
        folder = x if x.is_dir() else None
        beside = state.parent if state is not None else folder
        if beside is not None and (beside / ACCOUNT).is_file():
            return beside / ACCOUNT, state
        if folder is None and x.suffix == ".json" and _documents.is_json_object(x, "process"):
            other = x.with_name("trainer_state.json")
            return x, other if x.name == ACCOUNT and other.is_file() else None
    except (OSError, ValueError):
        return None, None
    return None, state


def read(x: object, further: Mapping[str, object]) -> Found:
    """Read the process that was accounted for, and what the trainer resolved, planned and logged."""
    account, state = _files(x)
    accounted: tuple[StepSpec, ...] = ()
    facts: list[Fact] = []
    read: list[str] = []
    notes: tuple[str, ...] = ()
    if account is not None:
        data = mapping(_documents.document(account), str(account))
        try:
            accounted = steps_of(data.get("process"))
            read.append(f"{account.name} of {total(accounted)} steps")
        except _UnprovenError as error:
            notes = (str(error),)
            read.append(account.name)
            if error.name in MONTE_CARLO:
                facts.append(Fact("claim.kind", "estimate", where=f"the figure of {error.name} is a Monte Carlo one"))
        facts += dp_accounting.facts_of(accounted)
        if isinstance(data.get("budget"), dict) and state is None:
            facts += _budget(mapping(data["budget"], "budget"))
    if state is not None:
        data = mapping(_documents.document(state), str(state))
        notes += tuning_notes(data)
        facts = _merged(facts, _of_trainer(data))
        read.append(f"global_step {data.get('global_step')}")
        if account is None:
            z, rate = (real(data, f"privacy_{key}", state.name) for key in ("resolved_noise_multiplier", "sample_rate"))
            accounted = (gauss(z, rate, count(data, "privacy_total_steps", state.name)),)
    return dp_accounting.with_noise(Found("opake", tuple(facts), accounted, (), notes, tuple(read)))


def _merged(facts: list[Fact], more: list[Fact]) -> list[Fact]:
    """Facts of the account first; those of the trainer where the account has none."""
    known = {fact.field for fact in facts}
    return [*facts, *(fact for fact in more if fact.field not in known)]


def _budget(data: Mapping[str, object]) -> list[Fact]:
    """The target of an account without a trainer; of other metrics than eps or delta there is none."""
    if data.get("type") not in ("EpsilonBudget", "DeltaBudget"):
        return []
    names = {"claim.eps": "epsilon", "claim.delta": "delta"}
    return [Fact(name, real(data, key, "the budget"), where="budget") for name, key in names.items()]


def _of_trainer(data: Mapping[str, object]) -> list[Fact]:
    """What the trainer resolved, counted and logged."""
    owner = "trainer_state.json"
    updates = count(data, "global_step", owner)
    facts = [
        *counted(updates),
        Fact("clip.per", "record", where="opake clips gradients of single records"),
        Fact("claim.by", "opake pld"),
    ]
    if data.get("privacy_resolved_delta") is not None:
        facts.append(Fact("claim.delta", real(data, "privacy_resolved_delta", owner), where="privacy_resolved_delta"))
    logged = last_logged(data, "privacy_epsilon")
    if logged is not None:
        facts.append(Fact("claim.eps", logged[1], where="the last privacy_epsilon of log_history"))
    elif data.get("privacy_calibration_achieved_epsilon") is not None:
        achieved = real(data, "privacy_calibration_achieved_epsilon", owner)
        facts.append(Fact("claim.eps", achieved, where="privacy_calibration_achieved_epsilon"))
    if data.get("privacy_expected_batch_size") is not None:
        batch = count(data, "privacy_expected_batch_size", owner)
        facts.append(Fact("divisor", "constant", where=f"privacy_expected_batch_size is {batch}"))
    std, norm = (last_logged(data, f"privacy_{key}") for key in ("noise_std", "clipping_norm"))
    if std is not None and norm is not None and norm[1] > 0:
        where = "the last privacy_noise_std and privacy_clipping_norm of log_history"
        facts += [Fact("noise.std", std[1], where=where), Fact("clip.norm", norm[1], where=where)]
    return facts


class _UnprovenError(Unsupported):
    """A process of which no pair is proven here, with its name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no pair of {name} of opake is proven here; give what ran as the premise `process`")
        self.name = name


def steps_of(process: object) -> tuple[StepSpec, ...]:
    """The steps of a process, in the order of its composition, with equal neighbours merged.

    Raises:
        UsageError: a class is unknown, or a field is missing, of another type or out of range.
        Unsupported: of a class no pair is proven here.
    """
    steps: list[dict[str, object]] = []
    stack: list[tuple[object, int]] = [(process, 1)]
    while stack:
        node, n = stack.pop()
        data = mapping(node, "a process")
        name = str(data.get("type"))
        if name == "Repeated":
            n *= count(data, "count", name)
        if name in HOLDERS:
            stack += [(data.get(key), n) for key in reversed(HOLDERS[name])]
            continue
        for step in _releases(name, data):
            added = n * int(step.get("n", 1))  # type: ignore[call-overload]
            if steps and {**steps[-1], "n": 0} == {**step, "n": 0}:
                added += int(steps.pop()["n"])  # type: ignore[call-overload]
            if added:
                steps.append({**step, "n": added})
    return tuple(steps)


def _releases(name: str, data: Mapping[str, object]) -> list[dict[str, object]]:
    """The steps of a process that holds no others but its noise."""
    if name in UNPROVEN:
        raise _UnprovenError(name)
    if name not in KNOWN:
        raise UsageError(f"no process of opake is called {name[:60]!r}; known are {', '.join((*KNOWN, *UNPROVEN))}")
    if name == "Identity":
        return []
    if name == "EpsDelta":
        return [{"mech": "dp", "eps0": real(data, "epsilon", name), "delta0": real(data, "delta", name)}]
    if name == "KOutOfT":
        return _allocated(data)
    if name != "Poisson":
        return [{"mech": "gauss", "noise_multiplier": _sigma(name, data)}]
    inner = mapping(data.get("inner"), "the inner process of Poisson")
    rate = real(data, "sample_rate", name)
    step: dict[str, object] = {"mech": "gauss", "noise_multiplier": _sigma(str(inner.get("type")), inner)}
    if rate < 1:
        step |= {"sampling": "poisson", "rate": rate}
    if data.get("truncated_batch_size") is not None:
        step |= {"max_batch": count(data, "truncated_batch_size", name), "records": count(data, "dataset_size", name)}
    return [step]


def _sigma(name: str, data: Mapping[str, object]) -> float:
    """The noise multiplier; with adaptive clipping that of the gradient and of the noisy shares of clipped records."""
    if name == "NonPrivate":
        return 0.0
    if name == "Gaussian":
        return real(data, "noise_multiplier", name)
    if name != "AdaClip":
        raise UsageError(f"no noise of opake is called {name[:60]!r}; known are Gaussian, AdaClip and NonPrivate")
    inner = mapping(data.get("inner"), "the inner process of AdaClip")
    z = _sigma(str(inner.get("type")), inner)
    std = real(data, "fraction_noise_std", name) * real(data, "expected_batch_size", name)
    if not z or not std:
        return 0.0
    return float((z**-2 + count(data, "num_groups", name) * (2 * std) ** -2) ** -0.5)


def _allocated(data: Mapping[str, object]) -> list[dict[str, object]]:
    """k-out-of-t allocation by blocks: passes of two sizes that differ by one step at most."""
    k, t = count(data, "k", "KOutOfT"), count(data, "n_steps", "KOutOfT")
    if not 1 <= k <= t:
        raise UsageError(f"KOutOfT has k from 1 to its steps; found k {k} of {t}")
    if k > 1 and data.get("allocation") != "block":
        raise _UnprovenError("KOutOfT with allocation 'total'")
    inner = mapping(data.get("inner"), "the inner process of KOutOfT")
    sigma, steps = _sigma(str(inner.get("type")), inner), list[dict[str, object]]()
    for size, blocks in ((t // k, k - t % k), (t // k + 1, t % k)):
        if blocks:
            drawn: dict[str, object] = {"sampling": "allocation", "rate": 1 / size} if size > 1 else {}
            steps.append({"mech": "gauss", "noise_multiplier": sigma, **drawn, "n": size * blocks})
    return steps
