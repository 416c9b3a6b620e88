"""Steps with sampling: their dominating pairs, and the refusal of those that have no proven one."""

from __future__ import annotations

import dataclasses
import math

from wpriv.core import theorems
from wpriv.core.allocation_pair import allocated
from wpriv.core.group_pairs import MAX_SAMPLED_GROUP, FixedGaussGroupPair, GaussGroupPair, LaplaceGroupPair
from wpriv.core.kinds import Adjacency, Neighbours, Release, Sampling
from wpriv.core.loss_pair import LossPair, gaussian_mu
from wpriv.core.mechanism import Mechanism
from wpriv.core.shuffled_pair import shuffled
from wpriv.core.subsampled_pairs import ReplacedGaussPair, fixed, poisson, truncated_poisson
from wpriv.core.theorems import BANDS, GROUP, LARGEST_BATCH, OPTIONS, TABLE, Combination
from wpriv.errors import Unsupported, UsageError

# kinds of release that a refusal names at most
MAX_NAMED = 4


def sampled_pair(mechanism: Mechanism, sampling: Sampling, neighbours: Neighbours) -> LossPair:
    """The dominating pair of one step, or of one pass where a pass takes each record once."""
    if sampling.kind == "none" or (sampling.rate == 1 and not sampling.max_batch):
        return mechanism.between(neighbours).pair()
    pair, rate = mechanism.pair(), sampling.rate
    if sampling.max_batch:
        replaced = mechanism.grouped(2).pair()
        return truncated_poisson(pair, replaced, rate, sampling.max_batch, neighbours.records)
    if neighbours.group > 1:
        pairs = [mechanism.grouped(count).pair() for count in range(1, neighbours.group + 1)]
        if sampling.kind == "fixed":
            return FixedGaussGroupPair(pairs, round(rate * neighbours.records), neighbours.records)
        return (LaplaceGroupPair if gaussian_mu(pairs[0]) is None else GaussGroupPair)(pairs, rate)
    if sampling.kind == "allocation":
        return mechanism.pair_in_bins(sampling.pass_steps) or allocated(pair, sampling.pass_steps)
    if sampling.kind == "shuffle":
        noise = mechanism.additive_noise()
        assert noise is not None  # the table of theorems has shuffled batches for additive noise alone
        return shuffled(pair, noise, sampling.pass_steps)
    if sampling.kind == "poisson" and neighbours.adjacency == Adjacency.REPLACE_ONE:
        # adding or removing a record moves the query by half the sensitivity
        sensitivity = dataclasses.asdict(mechanism)["sensitivity"] / 2
        half = dataclasses.replace(mechanism, sensitivity=sensitivity).pair()  # type: ignore[call-arg]
        return ReplacedGaussPair(half, gaussian_mu(half) or 0.0, rate)
    return (poisson if sampling.kind == "poisson" else fixed)(pair, rate)


def defined_under(mechanism: Mechanism | type[Mechanism]) -> tuple[Adjacency, ...]:
    """The neighbouring relations of a mechanism without sampling, the usual one first."""
    if mechanism.release == Release.PAIR:
        return mechanism.adjacencies
    return theorems.adjacencies("none", mechanism.release)


def check_together(kinds: set[str], adjacency: str) -> None:
    """Refuse samplings in one process that no adjacency covers together, or not the given one ("" if none is)."""
    proven = {kind: theorems.adjacencies(kind) for kind in sorted(kinds - {"none"})}
    common = set.intersection(*map(set, proven.values())) if proven else set()
    # which of the two defaults is meant is not known, and the sensitivity depends on it
    unclear = {"fixed", "poisson"} <= kinds
    if len(proven) < 2 or adjacency in common or (common and not adjacency and not unclear):
        return
    words = ", ".join(f"that of {kind} sampling under {' or '.join(relations)}" for kind, relations in proven.items())
    advice = f"Give `adjacency` {min(common)}, or account" if common else "Account"
    raise Unsupported(
        f"the process has steps of {' and of '.join(proven)} sampling, whose dominating pairs are proven under "
        f"different adjacencies: {words}. {advice} for each kind by itself"
    )


def combination(mechanism: Mechanism, sampling: Sampling, neighbours: Neighbours) -> Combination:
    """The row of a step in the table of theorems, whose pair is that of ``sampled_pair``."""
    adjacency = neighbours.adjacency
    present = {GROUP: neighbours.group > 1, LARGEST_BATCH: sampling.max_batch > 0, BANDS: sampling.parts > 1}
    options = [option for option, is_present in present.items() if is_present]
    # where all records take part there is nothing to be drawn
    whole = sampling.rate == 1 and options == [GROUP]
    kind = "none" if whole else sampling.kind
    stated = mechanism.release != Release.PAIR or (
        adjacency in mechanism.adjacencies and (mechanism.dominating or kind == "none")
    )
    row = theorems.find(mechanism.release, kind, adjacency, options[0] if options else "")
    if row is None and options == [GROUP]:
        mechanism.between(neighbours)  # has the better advice where no group at all has a pair
    if row is None or not stated or len(options) > 1:
        raise _refusal(mechanism, sampling, neighbours, kind, options)
    mechanism.between(neighbours)
    if kind == "allocation" and mechanism.release != Release.MATRIX:
        pair = mechanism.pair()
        if pair.mass_at_plus_infinity or pair.mass_at_minus_infinity or pair.sandwich(1.0) is not None:
            raise Unsupported(
                f"random allocation needs a pair with finite losses that are known exactly; {mechanism.name} has none. "
                f"Use `sampling='poisson'`"
            )
    if kind == "fixed" and not mechanism.pair().symmetric:
        raise Unsupported(
            f"fixed-size sampling needs a pair with the same loss distribution in both orders of the neighbours; "
            f"{mechanism.name} has none. Use `sampling='poisson'`"
        )
    if options == [LARGEST_BATCH] and not neighbours.records:
        raise UsageError(
            f"a largest batch of {sampling.max_batch} needs `records`, the largest number of records of a data set, "
            f"which says how often a batch is cut"
        )
    if options == [GROUP] and kind != "none":
        _check_group(sampling, neighbours)
    return row


def _refusal(
    mechanism: Mechanism, sampling: Sampling, neighbours: Neighbours, kind: str, options: list[str]
) -> Unsupported:
    """The refusal of a combination without a row, with what may be changed to one that has a row."""
    adjacency = neighbours.adjacency
    words = f"{'without' if kind == 'none' else f'with {kind}'} sampling"
    more = "".join(f" {'for' if option == GROUP else 'and'} {OPTIONS[option]}" for option in options)
    if len(options) > 1:
        given = " and ".join(f"`{option}`" for option in options)
        return Unsupported(f"{given} have no proven reading together. Leave out one of them")
    option = options[0] if options else ""
    start = f"{mechanism.name} has no proven pair {words}{more} under {adjacency} neighbours"
    if mechanism.why_not_sampled and not theorems.adjacencies(kind, mechanism.release):
        return Unsupported(f"{start}: {mechanism.why_not_sampled}")
    rows = [row for row in TABLE if (row.sampling, row.option) == (kind, option) and adjacency in row.adjacencies]
    others = dict.fromkeys(release.value for row in rows for release in row.releases)
    there = f" (proven there: {', '.join(others)})" if 0 < len(others) <= MAX_NAMED else ""
    bound = ""
    if options == [GROUP] and kind != "none":
        bound = _bound_of_group(mechanism, sampling, neighbours)
    elif kind == "shuffle":
        bound = "; `sampling='none'` with n = 1 for each pass is an upper bound, under replace-one as well"
    return Unsupported(f"{start}{there}. {_advice(mechanism, kind, adjacency, option)}{bound}")


def _advice(mechanism: Mechanism, kind: str, adjacency: str, option: str) -> str:
    """What to change: the neighbours, the sampling, or the option."""
    release, ways = mechanism.release, []
    if release == Release.PAIR:
        return f"The plug-in states its pair under {' or '.join(mechanism.adjacencies)}"
    relations = theorems.adjacencies(kind, release, option)
    ways += [f"`adjacency='{relations[0]}'`"] if relations else []
    kinds = [other for other in theorems.samplings(release, adjacency, option) if other != "none"]
    ways += [f"`sampling='{other}'`" for other in kinds[:1]]
    if not ways and theorems.samplings(release, adjacency, option):
        ways += ["no `sampling`"]
    if option and theorems.find(release, kind, adjacency):
        leave = f"leave out `{option}`"
        return f"Use {', or '.join(ways)}; or {leave}" if ways else leave.capitalize()
    if not ways:
        relation = defined_under(mechanism)[0]
        ways += [f"`adjacency='{relation}'` without {f'`{option}`' if option else '`sampling`'}"]
    return f"Use {', or '.join(ways)}"


def _bound_of_group(mechanism: Mechanism, sampling: Sampling, neighbours: Neighbours) -> str:
    """The upper bound of a sampled group that holds for every mechanism with groups of records."""
    if theorems.find(mechanism.release, "none", neighbours.adjacency, GROUP) is None:
        return ""
    group, rate = neighbours.group, sampling.rate
    joined = min(group * rate, 1.0) if sampling.kind != "poisson" else -math.expm1(group * math.log1p(-rate))
    return f"; an upper bound is that of all {group} records at once (sensitivity times {group}) at rate {joined:.6g}"


def _check_group(sampling: Sampling, neighbours: Neighbours) -> None:
    group, rate = neighbours.group, sampling.rate
    if group > MAX_SAMPLED_GROUP:
        raise Unsupported(
            f"sampled groups of up to {MAX_SAMPLED_GROUP} records are accounted for; found `group` {group}. Leave out "
            f"`group`; an upper bound is that of all {group} records at once (sensitivity times {group}) at {group} "
            f"times the rate"
        )
    if sampling.kind != "fixed":
        return
    batch = rate * neighbours.records
    if not neighbours.records or abs(batch - round(batch)) > 1e-6 * batch or not round(batch) >= 1:
        raise UsageError(
            f"fixed-size sampling of groups needs the size of a batch and that of the data set: give `batch` with "
            f"`records`; found rate {rate:g} of {neighbours.records or 'an unknown number of'} records"
        )
    if group > neighbours.records:
        raise UsageError(f"`group` must be at most `records`; found {group} of {neighbours.records} records")
