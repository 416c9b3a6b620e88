"""Steps with sampling: their dominating pairs, and the refusal of those that have no proven one."""

from __future__ import annotations

import dataclasses
import math

from wpriv.core.adjacency import PROVEN, STANDARD_ADJACENCIES, Adjacency, Neighbours, with_zero_out
from wpriv.core.loss_pair import LossPair, gaussian_mu
from wpriv.core.mechanism import AdditiveNoise, Mechanism
from wpriv.core.sampling.allocation_pair import allocated
from wpriv.core.sampling.fixed_group_pair import fixed_gauss_group
from wpriv.core.sampling.fixed_size_pair import fixed
from wpriv.core.sampling.group_pair import MAX_SAMPLED_GROUP, gauss_group
from wpriv.core.sampling.kinds import Sampling
from wpriv.core.sampling.laplace_group_pair import laplace_group
from wpriv.core.sampling.poisson_pair import poisson
from wpriv.core.sampling.replaced_pair import replaced_gauss
from wpriv.core.sampling.shuffled_pair import shuffled
from wpriv.core.sampling.truncated_pair import truncated_poisson
from wpriv.errors import Unsupported, UsageError


def sampled_pair(mechanism: Mechanism, sampling: Sampling, neighbours: Neighbours) -> LossPair:
    """The dominating pair of one step, or of one pass where a pass takes each record once."""
    if sampling.kind == "none" or (sampling.rate == 1 and not sampling.max_batch):
        return mechanism.grouped(neighbours.group).pair()
    pair, rate = mechanism.pair(), sampling.rate
    if sampling.max_batch:
        replaced = mechanism.grouped(2).pair()
        return truncated_poisson(pair, replaced, rate, sampling.max_batch, neighbours.records)
    if neighbours.group > 1:
        return _group_pair(mechanism, sampling, neighbours)
    if sampling.kind == "allocation":
        return allocated(pair, sampling.pass_steps)
    if sampling.kind == "shuffle":
        return shuffled(pair, _shuffled_noise(mechanism), sampling.pass_steps)
    if sampling.kind == "poisson" and neighbours.adjacency == Adjacency.REPLACE_ONE:
        half = _halved(mechanism).pair()
        return replaced_gauss(half, gaussian_mu(half) or 0.0, rate)
    return (poisson if sampling.kind == "poisson" else fixed)(pair, rate)


def _halved(mechanism: Mechanism) -> Mechanism:
    """Gaussian noise at half the sensitivity, which is how far adding or removing a record moves the query."""
    half = dataclasses.asdict(mechanism)["sensitivity"] / 2
    return dataclasses.replace(mechanism, sensitivity=half)  # type: ignore[call-arg]


def _group_pair(mechanism: Mechanism, sampling: Sampling, neighbours: Neighbours) -> LossPair:
    pairs = [mechanism.grouped(count).pair() for count in range(1, neighbours.group + 1)]
    if sampling.kind == "fixed":
        batch = round(sampling.rate * neighbours.records)
        return fixed_gauss_group(pairs, batch, neighbours.records)
    return (laplace_group if gaussian_mu(pairs[0]) is None else gauss_group)(pairs, sampling.rate)


def check_together(kinds: set[str], adjacency: str) -> None:
    """Refuse samplings in one process that no adjacency covers together, or not the given one ("" if none is)."""
    sampled = sorted(kinds - {"none"})
    common = set.intersection(*(set(PROVEN[kind]) for kind in sampled)) if sampled else set()
    # which of the two defaults is meant is not known, and the sensitivity depends on it
    unclear = {"fixed", "poisson"} <= kinds
    if len(sampled) < 2 or adjacency in common or (common and not adjacency and not unclear):
        return
    proven = ", ".join(f"that of {kind} sampling under {' or '.join(PROVEN[kind])}" for kind in sampled)
    advice = f"Give `adjacency` {min(common)}, or account" if common else "Account"
    raise Unsupported(
        f"the process has steps of {' and of '.join(sampled)} sampling, whose dominating pairs are proven under "
        f"different adjacencies: {proven}. {advice} for each kind by itself"
    )


def check_step(mechanism: Mechanism, sampling: Sampling, neighbours: Neighbours) -> None:
    """Refuse a step without a proven dominating pair between the neighbours."""
    kind, adjacency = sampling.kind, neighbours.adjacency
    if kind in ("poisson", "allocation") and mechanism.why_not_poisson:
        name = "Poisson sampling" if kind == "poisson" else "random allocation"
        raise Unsupported(f"{mechanism.name} has no {name}: {mechanism.why_not_poisson}")
    if adjacency not in with_zero_out(mechanism.adjacencies):
        raise Unsupported(
            f"{mechanism.name} is defined under {' or '.join(mechanism.adjacencies)}; found adjacency {adjacency!r}. "
            f"Give `adjacency` {mechanism.adjacencies[0]}"
        )
    if neighbours.group > 1 and adjacency not in STANDARD_ADJACENCIES:
        raise Unsupported(
            f"groups of records are accounted for under {' or '.join(STANDARD_ADJACENCIES)}; found {adjacency}. Leave "
            f"out `group`"
        )
    mechanism.grouped(neighbours.group)
    if kind == "none":
        return
    if not mechanism.dominating or mechanism.why_not_sampled:
        raise Unsupported(f"{mechanism.name} cannot be subsampled: {mechanism.why_not_sampled}")
    if kind == "shuffle":
        _check_shuffled(mechanism, sampling, adjacency)
    if adjacency not in PROVEN[kind]:
        _refuse_adjacency(mechanism, kind, adjacency)
    if kind == "allocation":
        pair = mechanism.pair()
        if pair.mass_at_plus_infinity or pair.mass_at_minus_infinity or pair.sandwich(1.0) is not None:
            raise Unsupported(
                f"random allocation needs a pair with finite losses that are known exactly; {mechanism.name} has none. "
                f"Use `sampling='poisson'`"
            )
    if kind == "fixed" and not mechanism.pair().symmetric:
        raise Unsupported(
            f"fixed-size sampling needs a pair with the same loss distribution in both orders of the neighbours; "
            f"{mechanism.name} has none"
        )
    if kind == "poisson" and adjacency == Adjacency.REPLACE_ONE:
        _check_replaced(mechanism, sampling, neighbours)
    if sampling.max_batch:
        _check_truncated(mechanism, sampling, neighbours)
    if neighbours.group > 1 and sampling.rate < 1:
        _check_group(mechanism, sampling, neighbours)


def _refuse_adjacency(mechanism: Mechanism, kind: str, adjacency: str) -> None:
    other = "poisson" if kind == "fixed" else "fixed"
    common = [a for a in PROVEN[kind] if a in mechanism.adjacencies]
    advice = f"`adjacency='{common[0]}'`, or `sampling='{other}'`" if common else f"`sampling='{other}'`"
    source = "Feldman, Shenfeld 2025" if kind == "allocation" else "Zhu, Dong, Wang 2022"
    raise Unsupported(
        f"{kind} sampling has a proven dominating pair under {PROVEN[kind][0]} only ({source}); found "
        f"adjacency {adjacency!r}. Use {advice}"
    )


def _check_replaced(mechanism: Mechanism, sampling: Sampling, neighbours: Neighbours) -> None:
    """Poisson sampling under replace-one: proven for Gaussian noise and single records."""
    noise = mechanism.additive_noise()
    if noise is None or not noise.is_textbook("gauss"):
        raise Unsupported(
            f"poisson sampling has a proven dominating pair under add-remove only (Zhu, Dong, Wang 2022), and for "
            f"Gaussian noise on a query (`mech='gauss'`) under replace-one; found {mechanism.name} under replace-one. "
            f"Use `adjacency='add-remove'`, or `sampling='fixed'`"
        )
    if neighbours.group > 1 and sampling.rate < 1:
        raise Unsupported(
            f"poisson sampling of groups of records is accounted for under add-remove; found `group` "
            f"{neighbours.group} under replace-one. Use `adjacency='add-remove'`, or `sampling='fixed'`"
        )


def _check_truncated(mechanism: Mechanism, sampling: Sampling, neighbours: Neighbours) -> None:
    """A largest batch: proven for single records under add-remove, and for a known size of the data set."""
    if neighbours.adjacency != Adjacency.ADD_REMOVE or neighbours.group > 1:
        relation = f"{neighbours.adjacency} neighbours" if neighbours.group == 1 else f"groups of {neighbours.group}"
        raise Unsupported(
            f"a largest batch is accounted for under add-remove, for single records; found {relation}. Leave out "
            f"`max_batch`, or use `adjacency='add-remove'` without `group`"
        )
    if not neighbours.records:
        raise UsageError(
            f"a largest batch of {sampling.max_batch} needs `records`, the largest number of records of a data set, "
            f"which says how often a batch is cut"
        )
    noise = mechanism.additive_noise()
    known = noise is not None and (noise.is_textbook("gauss") or noise.is_textbook("laplace"))
    if not known and gaussian_mu(mechanism.pair()) is None:
        raise Unsupported(
            f"a largest batch is accounted for with Gaussian and Laplace noise; found {mechanism.name}. Leave out "
            f"`max_batch`, and let batches have any size"
        )


def _check_group(mechanism: Mechanism, sampling: Sampling, neighbours: Neighbours) -> None:
    """Groups under sampling: Gaussian noise, or Laplace noise under Poisson sampling."""
    group, rate, noise = neighbours.group, sampling.rate, mechanism.additive_noise()
    gauss = gaussian_mu(mechanism.pair()) is not None
    laplace = noise is not None and noise.is_textbook("laplace") and sampling.kind == "poisson"
    joined = min(group * rate, 1.0) if sampling.kind != "poisson" else -math.expm1(group * math.log1p(-rate))
    bound = f"an upper bound is that of all {group} records at once (sensitivity times {group}) at rate {joined:.6g}"
    if sampling.kind == "allocation":
        raise Unsupported(
            f"random allocation has no proven pair for groups of records; found `group` {group}. Use "
            f"`sampling='poisson'`"
        )
    if not (gauss or laplace):
        raise Unsupported(
            f"{sampling.kind} sampling of groups of records is accounted for with Gaussian noise (and with Laplace "
            f"noise under Poisson sampling); found {mechanism.name}. Leave out `group`; {bound}"
        )
    if group > MAX_SAMPLED_GROUP:
        raise Unsupported(
            f"sampled groups of up to {MAX_SAMPLED_GROUP} records are accounted for; found `group` {group}. Leave out "
            f"`group`; {bound}"
        )
    if sampling.kind == "fixed":
        batch = sampling.rate * neighbours.records
        if not neighbours.records or abs(batch - round(batch)) > 1e-6 * batch or not round(batch) >= 1:
            raise UsageError(
                f"fixed-size sampling of groups needs the size of a batch and that of the data set: give `batch` with "
                f"`records`; found rate {rate:g} of {neighbours.records or 'an unknown number of'} records"
            )
        if group > neighbours.records:
            raise UsageError(f"`group` must be at most `records`; found {group} of {neighbours.records} records")


def _check_shuffled(mechanism: Mechanism, sampling: Sampling, adjacency: str) -> None:
    """Refuse shuffled batches of anything but Gaussian or Laplace noise on sums, and under any other neighbours."""
    if adjacency != Adjacency.ZERO_OUT:
        raise Unsupported(
            f"shuffled batches of public sizes are bracketed under zero-out only, where a record contributes nothing "
            f"and its place stays; found adjacency {adjacency!r}. Use `adjacency='zero-out'`; under replace-one, "
            f"`sampling='none'` with n = 1 for each pass of {sampling.pass_steps} steps is an upper bound"
        )
    _shuffled_noise(mechanism)


def _shuffled_noise(mechanism: Mechanism) -> AdditiveNoise:
    """The noise of a mechanism that can be released on shuffled batches, or raise Unsupported."""
    noise = mechanism.additive_noise()
    if noise is None or not (noise.is_textbook("gauss") or noise.is_textbook("laplace")):
        raise Unsupported(
            f"shuffled batches are bracketed for Gaussian and Laplace noise on sums, `mech='gauss'` and "
            f"`mech='laplace'`; found {mechanism.name}. Use `sampling='none'` with n = 1 for each pass, which is an "
            f"upper bound"
        )
    return noise
