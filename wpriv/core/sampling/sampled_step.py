"""Steps with sampling: their dominating pairs, and the refusal of those that have no proven one."""

from __future__ import annotations

from wpriv.core.adjacency import PROVEN, Adjacency, with_zero_out
from wpriv.core.loss_pair import LossPair
from wpriv.core.mechanism import AdditiveNoise, Mechanism
from wpriv.core.sampling.allocation_pair import allocated
from wpriv.core.sampling.fixed_size_pair import fixed
from wpriv.core.sampling.kinds import Sampling
from wpriv.core.sampling.poisson_pair import poisson
from wpriv.core.sampling.shuffled_pair import shuffled
from wpriv.errors import Unsupported


def sampled_pair(mechanism: Mechanism, sampling: Sampling) -> LossPair:
    """The dominating pair of one step, or of one pass where a pass takes each record once."""
    pair = mechanism.pair()
    if sampling.kind == "none":
        return pair
    if sampling.kind == "allocation":
        return allocated(pair, sampling.pass_steps)
    if sampling.kind == "shuffle":
        return shuffled(pair, _shuffled_noise(mechanism), sampling.pass_steps)
    return (poisson if sampling.kind == "poisson" else fixed)(pair, sampling.rate)


def check_together(kinds: set[str]) -> None:
    """Refuse samplings in one process that no adjacency covers together."""
    sampled = sorted(kinds - {"none"})
    if len(sampled) > 1 and not set.intersection(*(set(PROVEN[kind]) for kind in sampled)):
        proven = ", ".join(f"that of {kind} sampling under {' or '.join(PROVEN[kind])} only" for kind in sampled)
        raise Unsupported(
            f"the process has steps of {' and of '.join(sampled)} sampling, whose dominating pairs are proven under "
            f"different adjacencies: {proven} (Zhu, Dong, Wang 2022). Account for each kind by itself"
        )


def check_step(mechanism: Mechanism, sampling: Sampling, adjacency: str) -> None:
    """Refuse a step without a proven dominating pair under the adjacency."""
    kind = sampling.kind
    if kind in ("poisson", "allocation") and mechanism.why_not_poisson:
        name = "Poisson sampling" if kind == "poisson" else "random allocation"
        raise Unsupported(f"{mechanism.name} has no {name}: {mechanism.why_not_poisson}")
    if adjacency not in with_zero_out(mechanism.adjacencies):
        raise Unsupported(
            f"{mechanism.name} is defined under {' or '.join(mechanism.adjacencies)}; found adjacency {adjacency!r}. "
            f"Give `adjacency` {mechanism.adjacencies[0]}"
        )
    if kind == "none":
        return
    if not mechanism.dominating or mechanism.why_not_sampled:
        raise Unsupported(f"{mechanism.name} cannot be subsampled: {mechanism.why_not_sampled}")
    if kind == "shuffle":
        _check_shuffled(mechanism, sampling, adjacency)
    if adjacency not in PROVEN[kind]:
        other = "poisson" if kind == "fixed" else "fixed"
        common = [a for a in PROVEN[kind] if a in mechanism.adjacencies]
        advice = f"`adjacency='{common[0]}'`, or `sampling='{other}'`" if common else f"`sampling='{other}'`"
        raise Unsupported(
            f"{kind} sampling has a proven dominating pair under {PROVEN[kind][0]} only (Zhu, Dong, Wang 2022); found "
            f"adjacency {adjacency!r}. Use {advice}"
        )
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
