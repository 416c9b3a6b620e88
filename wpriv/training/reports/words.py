"""How a guarantee, noise, clipping, sampling and the composition of steps are said, in all statements, pages and lines.

Figures of a guarantee are rounded up, lower ends down.
"""

from __future__ import annotations

from collections.abc import Mapping

from wpriv.accounting import adaptive_history
from wpriv.accounting.ledger import CutPass
from wpriv.errors import Unsupported
from wpriv.numerics.numbers import rounded, short, text
from wpriv.results import storage
from wpriv.results.model import Figure, Noise, Releases, Reports, Share, Statement, Together, Tuning

SCHEMA = "wpriv.statement/1"
NO_GUARANTEE = "no accountant of the recipe gives an (eps, delta) guarantee"
NOT_PRIVATE = "trained without privacy: no guarantee"
FIXED_SEED = (
    "the seed is fixed and recorded: whoever knows it can draw the same noise and subtract it. "
    "Leave the seed out for a release"
)
LOCAL, CENTRAL = "Local", "Central"


def point(row: Figure) -> str:
    """Return ``eps = 3.4 at delta = 1e-5``."""
    return f"eps = {up(row.epsilon)} at delta = {short(rounded(row.delta, up=True))}"


def up(value: float | None) -> str:
    """Return a figure rounded up, and nothing for None."""
    return "" if value is None else text(value, up=True)


def down(value: float | None) -> str:
    """Return a figure rounded down, and nothing for None."""
    return "" if value is None else text(value, up=False)


def ends(row: Figure, before: str = "") -> str:
    """Return ``[34.9, 35]`` behind some words for a certified guarantee, and nothing for others."""
    return f"{before}[{down(row.epsilon_lower)}, {up(row.epsilon_upper)}]" if row.claim == "certified" else ""


def figure(row: Figure) -> str:
    """Return the figure of one accountant: eps, delta, notion, claim and bracket."""
    notion = "" if row.notion == "approximate-dp" else f" ({row.notion}, no (eps, delta) guarantee)"
    return f"{point(row)}{notion}: {row.claim} by {row.accountant}{ends(row, ', in ')}"


def guarantee(row: Figure) -> str:
    """Return a guarantee with its claim and both ends, for readers who see nothing else of it."""
    claim = "an upper bound" if row.claim == "upper-bound" else row.claim
    return f"{point(row)}, {claim} by {row.accountant}{ends(row, ' to lie in ')}"


def headline(reports: Reports) -> str:
    """Return ``eps = 34.9995 at delta = 1e-4 for every record by itself, exact by pld``."""
    row = reports.guarantees[0]
    pure = " (pure DP)" if row.delta == 0 else ""
    if not row.is_proven:
        return f"NO guarantee; as published, {point(row)}{pure} for every record by itself"
    return f"{point(row)}{pure} for every record by itself, {row.claim} by {row.accountant}{ends(row, ' in ')}"


def promise(statement: Statement) -> str:
    """Return what a statement guarantees, in one sentence without a full stop."""
    if statement.releases is None:
        return statement.promise if statement.reports is not None else NOT_PRIVATE
    row = statement.releases.best
    if row is None:
        return NO_GUARANTEE
    return f"{point(row)}, {row.claim} by {row.accountant}, for {statement.releases.unit}"


def guarantee_of_all(together: Together) -> str:
    """Return the guarantee of several trainings together; or why there is none."""
    if together.epsilon is None:
        return f"no number, since {together.problem}"
    at = short(rounded(together.delta or 0.0, up=True))
    return f"eps = {up(together.epsilon)} at delta = {at}, {together.claim} by {together.accountant}"


def all_trainings(together: Together) -> str:
    """Return the guarantee of several trainings together with their number, for a line of its own."""
    count = together.trainings
    if not count:
        return "no training is private: there is no guarantee"
    name = f"all {count} private trainings together" if count > 1 else "the only private training"
    return f"{name}: {guarantee_of_all(together)}"


def guaranteed(statement: Statement, purpose: str) -> tuple[Releases | Reports, Figure]:
    """Return the part of a statement that has the guarantee, and the proven guarantee of the least eps."""
    source = statement.protection
    if source is None:
        raise Unsupported(
            f"{purpose} describes a private release, and this training had no privacy. Its {storage.STATEMENT_TEXT} "
            f"says what may be published"
        )
    if source.best is None:
        reason = "no accountant of this training gives one. Add pld to its accountants"
        if isinstance(source, Reports):
            reason = "the reports that this training used have none. Privatise the records with public bounds"
        raise Unsupported(f"{purpose} states a proven (eps, delta) guarantee, and {reason}")
    return source, source.best


def share(delta: float, records: int) -> Share:
    """Compare delta with 1 / records, which it should lie far below.

    Returns:
        ``value``, ``records``, ``times_records`` (delta over 1 / records) and ``meaning`` in words.
    """
    times = delta * records
    if delta == 0:
        meaning = "pure DP: no failure probability"
    elif times >= 1:
        meaning = f"{times:.3g} / records, NOT below 1 / records: a mechanism with this delta may publish whole records"
    else:
        meaning = f"{times:.3g} / records: below 1 / records, at which a mechanism may publish whole records"
    return Share(value=delta, records=records, times_records=times, meaning=meaning)


def delta(share: Share | None) -> str:
    """Return delta beside 1 / records; nothing where a statement lacks it."""
    return "" if share is None else f"{up(share.value)} = {share.meaning}"


def model_of(source: Releases | Reports) -> str:
    """Return the setting: who adds the noise."""
    return LOCAL if isinstance(source, Reports) else CENTRAL


def rule(noise: Noise) -> str:
    """Return what is clipped and how."""
    if noise.rule == "automatic":
        formula = f"g becomes g / (|g| + {noise.stability:g})"
        return f"{noise.clipped}, by automatic clipping: {formula}, of an l2 norm below {noise.clip:g}"
    if noise.rule == "adaptive":
        aim = f"the quantile {noise.quantile:g} of the norms of gradients"
        return f"{noise.clipped}, to an l2 norm C that is {noise.clip:g} at first and follows {aim}"
    if noise.rule == "groups":
        parts = ", ".join(f"{pattern} to {norm:g}" for pattern, norm in noise.groups.items())
        how = parts or "each layer's to 1 over the root of the number of layers"
        return f"{noise.clipped}, part by part ({how}), to an l2 norm of {noise.clip:g} in all"
    return f"{noise.clipped}, to an l2 norm of {noise.clip:g}"


def deviation(noise: Noise, largest: str = "") -> str:
    """Return the standard deviation of the noise."""
    if noise.strategy is not None:
        z = f"Z of standard deviation {noise.standard_deviation:g}"
        return f"row t of C^-1 Z in step t, {z}, strategy C = {noise.strategy} ({noise.earlier}),"
    if noise.rule != "adaptive":
        return f"standard deviation {noise.standard_deviation:g}{largest}"
    unit = noise.sensitivity / noise.clip
    count = f"{noise.count_standard_deviation:g} on the number of unclipped gradients, released with it"
    return f"standard deviation {noise.gradient_multiplier * unit:g} C (and {count})"


def noise(source: Releases | Reports) -> str:
    """Return mechanism, bound on a contribution and noise in one line."""
    if isinstance(source, Reports):
        bound = f"every record is clipped to an {source.clip.norm} norm of {source.clip.radius:g}"
        distribution, parameter, value = _distribution(source)
        return f"{bound}; {distribution} noise of {parameter} {value:g} on {source.noise.on}"
    added = source.noise
    plain = f"{added.clipped} is clipped to an l2 norm of {added.clip:g}"
    bound = plain if added.rule is None else rule(added)
    return f"{bound}; Gaussian noise ({deviation(added)}, multiplier {added.multiplier:g}) on {added.of}"


def _distribution(reports: Reports) -> tuple[str, str, float]:
    sigma, scale = reports.noise.sigma, reports.noise.scale
    return ("Gauss", "sigma", sigma) if sigma is not None else ("Laplace", "scale", scale or 0.0)


def sampling(source: Releases | Reports) -> str:
    """Return the sampling that was accounted for and that was run; nothing where records were privatised before."""
    if isinstance(source, Reports):
        return ""
    sampling = source.sampling
    rate = "" if sampling.kind == "none" else f" at rate {sampling.rate:.6g}"
    return f"{sampling.kind}{rate} is accounted for; run was: {sampling.implemented}"


def composition(source: Releases | Reports) -> str:
    """Return how the releases are composed."""
    if isinstance(source, Reports):
        return "one report of each record; the training on the reports is post-processing"
    by = f"composed by {source.best.accountant} ({source.best.source})" if source.best else "not composed"
    return ". ".join([f"{source.steps} noisy steps, {by}", *adaptive_history.lines(source.parameters)])


def earlier_runs(statement: Statement) -> list[str]:
    """Return the runs that were moved aside in the same folder, which the guarantee does not include."""
    return [
        f"{run.folder} ({run.steps} steps{f', {run.problem}' if run.problem else ''})" for run in statement.earlier_runs
    ]


def training_facts(source: Releases, records: int) -> list[tuple[str, str]]:
    """Return the rows of the table of a private training, as names and one-line texts."""
    sampling, noise = source.sampling, source.noise
    size = sampling.batch if isinstance(sampling.batch, int) else f"{sampling.batch:g}"
    rate = "" if sampling.kind == "none" else f", rate {sampling.rate:.6g} (batch {size} of {records})"
    passes = "" if sampling.pass_steps is None else f", passes of {sampling.pass_steps} steps"
    cut = "".join(f"; {CutPass(**cut)}" for cut in source.cut_passes)
    method = "" if noise.clipped_by is None else f" (computed by {noise.clipped_by})"
    most = noise.standard_deviation_at_most
    largest = "" if most is None else f" to {most:g}"
    return [
        ("protected", source.unit),
        ("neighbours", source.neighbours),
        ("sampling accounted", f"{sampling.kind}{rate}{passes}"),
        ("sampling run", sampling.implemented),
        ("steps", f"{source.steps}{cut}"),
        ("delta", delta(source.delta)),
        ("clipped", f"{rule(noise)}{method}"),
        ("noise", f"{deviation(noise, largest)} on {noise.of} (multiplier {noise.multiplier:g})"),
    ]


def report_facts(reports: Reports) -> list[tuple[str, str]]:
    """Return the facts of local reports besides their guarantee, as names and one-line texts."""
    noise, clip = reports.noise, reports.clip
    distribution, parameter, value = _distribution(reports)
    center = f" about {clip.center:g}" if clip.center else ""
    bounds = f", after each number was clamped to {clip.bounds_from}" if clip.bounds_from else ""
    floor = ", after negative numbers became 0" if clip.nonnegative else ""
    ball = f"to an {clip.norm} norm of {clip.radius:g}{center}, exactly, {clip.how}"
    amount = f"{distribution}, {parameter} {value:g} on {noise.on} (sensitivity {noise.sensitivity:g})"
    grid = f"records and noise lie on one grid of {noise.grid:g}, where their sum is exact; then {reports.data.dtype}"
    rows = [
        ("protected", reports.unit),
        ("neighbours", reports.neighbours),
        ("clipped", f"{ball}{bounds}{floor}; domain: {clip.domain}"),
        ("noise", f"{amount}; {noise.chosen_by}"),
        ("delta", delta(reports.delta)),
        ("rounding", grid),
    ]
    return [(name, fact) for name, fact in rows if fact]


def tuning(tuning: Tuning | None) -> list[str]:
    """Return what the guarantees of a tuned training are about; nothing of another training."""
    if tuning is None:
        return []
    kind, mean, count = tuning.repeats.kind, tuning.repeats.mean, len(tuning.candidates)
    chosen = "nothing is released: the number of runs was 0"
    if tuning.chosen is not None:
        chosen = f"the best run has {labels(tuning.chosen)}"
    lines = [
        f"these are guarantees of the best of K runs, K {kind} with mean {mean:g}, each of one of {count} candidates "
        f"drawn uniformly; {chosen}"
    ]
    alone = tuning.one_run.items()
    return lines + [f"one run alone, not chosen among others: eps = {up(eps)} by {name}" for name, eps in alone]


def labels(values: Mapping[str, object]) -> str:
    """Return ``optimizer.lr = 0.5, batch = 100``."""
    return ", ".join(f"{key} = {value}" for key, value in values.items())


def versions(values: Mapping[str, object]) -> str:
    """Return the versions of the program and of what it used."""
    return ", ".join(f"{key} {value}" for key, value in values.items() if value is not None)
