"""Steps with sampling: their dominating pairs, and the refusal of those that have no proven one."""

from __future__ import annotations

from wpriv.core.adjacency import PROVEN
from wpriv.core.loss_pair import LossPair
from wpriv.core.mechanism import Mechanism
from wpriv.core.sampling.allocation_pair import allocated
from wpriv.core.sampling.fixed_size_pair import fixed
from wpriv.core.sampling.kinds import Sampling
from wpriv.core.sampling.poisson_pair import poisson
from wpriv.errors import Unsupported


def sampled_pair(mechanism: Mechanism, sampling: Sampling) -> LossPair:
    """The dominating pair of one step, or of one pass under random allocation."""
    pair = mechanism.pair()
    if sampling.kind == "none":
        return pair
    if sampling.kind == "allocation":
        return allocated(pair, sampling.pass_steps)
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
    if adjacency not in mechanism.adjacencies:
        raise Unsupported(
            f"{mechanism.name} is defined under {' or '.join(mechanism.adjacencies)}; found adjacency {adjacency!r}. "
            f"Give `adjacency` {mechanism.adjacencies[0]}"
        )
    if kind == "none":
        return
    if not mechanism.dominating or mechanism.why_not_sampled:
        raise Unsupported(f"{mechanism.name} cannot be subsampled: {mechanism.why_not_sampled}")
    if adjacency not in PROVEN[kind]:
        other = "poisson" if kind == "fixed" else "fixed"
        common = [a for a in PROVEN[kind] if a in mechanism.adjacencies]
        source = "Feldman, Shenfeld 2025" if kind == "allocation" else "Zhu, Dong, Wang 2022"
        advice = f"`adjacency='{common[0]}'`, or `sampling='{other}'`" if common else f"`sampling='{other}'`"
        raise Unsupported(
            f"{kind} sampling has a proven dominating pair under {PROVEN[kind][0]} only ({source}); found "
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
