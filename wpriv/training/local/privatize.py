"""The verb ``privatize``: clip every record and add noise to it, once, before anything else uses it."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from wpriv import randomness
from wpriv.config.plain_words import in_plain_words
from wpriv.core.process import Process, Step
from wpriv.errors import UsageError, require
from wpriv.files.shown import Shown
from wpriv.numerics import ball_projection
from wpriv.numerics.numbers import shown, whole
from wpriv.results.model import Json
from wpriv.training.local import local_mechanism, local_statement
from wpriv.training.local.local_mechanism import LocalMechanism, Plan
from wpriv.training.local.records import Records, records
from wpriv.training.reports import words

Array = NDArray[Any]
# numbers processed together; also the blocks of the noise stream, so that a seed gives the same file whatever the
# memory
BLOCK = 2**20
# records that are told from those of another source by their numbers; records that are hashed together
FEW, DIGESTED = 10, 4096
SECONDS = 5.0  # between two lines of progress


class ReaderParameters(TypedDict, total=False):
    """The parameters of all data sets that ship with wpriv, for type checkers and editors; their readers check them."""

    agreement: float
    attribute: str
    attributes: str
    categories: Mapping[str, object] | str
    classes: Sequence[object] | str
    core: int
    core_variance: float
    crop: int
    d: int
    draw: int
    draw_seed: int
    drop: str
    features: str
    file: str
    folder: str
    grey: bool
    labels: str
    law: str
    length: int
    max_per_person: int
    number: bool
    part: str
    points: int
    ranges: Mapping[str, object] | str
    sensitive: str
    side: int
    size: float
    source: str
    split_seed: int
    spread: float
    spurious: int
    spurious_variance: float
    target: str
    test: str
    test_file: str
    test_share: float
    test_size: int
    tests: int
    tokens: int
    train: str
    verify: bool
    x: Sequence[str] | str
    y: str


@dataclass(frozen=True, eq=False, repr=False)
class Privatized(Shown):
    """Records with noise, and their privacy statement.

    Args:
        x: the noisy records; None where they were written to a file.
        labels: the unchanged labels, where they are public.
        statement: the privacy statement as plain data.
        files: those that were written, the records first.
    """

    x: Array | None
    labels: Array | None
    statement: Json
    files: tuple[Path, ...] = ()

    def sentence(self) -> str:
        data = self.statement["data"]
        shape = " x ".join(str(side) for side in data["shape"])
        return f"{data['records']} records of {shape}: {words.headline(local_statement.read(self.statement))}"

    @property
    def warnings(self) -> tuple[str, ...]:
        """Those of the statement."""
        return tuple(self.statement["warnings"])

    def facts(self) -> list[tuple[str, str]]:
        """The facts of the statement, and the written files."""
        written = [("written", str(file)) for file in self.files]
        return [*words.report_facts(local_statement.read(self.statement)), *written]


@in_plain_words
def privatize(
    data: Any,
    mech: str | None = None,
    *,
    eps: float | None = None,
    delta: float | None = None,
    sigma: float | None = None,
    scale: float | None = None,
    radius: float | None = None,
    formula: str | None = None,
    center: float | None = None,
    nonnegative: bool = False,
    dct: bool = False,
    quantile: float | None = None,
    quantile_from: str | None = None,
    public: Any = None,
    thresholds: Any = None,
    seed: int | None = None,
    dtype: str = "float32",
    limit: int | None = None,
    array: str = "",
    header: bool | None = None,
    public_labels: bool = False,
    root: str | Path | None = None,
    out: str | Path | None = None,
    dry_run: bool = False,
    ledger: str | None = None,
    say: Callable[[str], None] = lambda line: None,
    **reader: Unpack[ReaderParameters],
) -> Privatized:
    """Clip every record of a data set to a ball and add Gauss or Laplace noise: local differential privacy.

    Any two records are neighbours. Everything computed from the result is post-processing and has no further cost; a
    second result from the same records costs again. Numbers may be text such as ``1e-5``.

    Args:
        data: an array [N, ...], a .npz, .npy or .csv file, or a data set (``mnist``, ``mnist:test``) with the
            parameters of its reader in ``reader``.
        mech: ``local-gauss`` (l2 ball, needs delta) or ``local-laplace`` (l1 ball).
        eps: eps of every record, for which the noise is found.
        delta: delta of every record; for Laplace noise 0 by default.
        sigma: instead of eps, the standard deviation of Gaussian noise.
        scale: instead of eps, the scale b of Laplace noise.
        radius: of the ball, in the units of the data (bytes are divided by 255); defaults to the norm of the bounds.
        formula: of Gaussian noise for a target, ``analytic`` (default, the least noise) or ``eq4``.
        center: of the ball, for every number; public, such as 0.5 for pixels (default 0).
        nonnegative: negative numbers become 0 first, which reduces Gaussian noise by a factor of sqrt 2.
        dct: clip and publish the orthonormal cosine transform of each record.
        quantile: clamp each number to this quantile of its magnitude in public records.
        quantile_from: ``public`` (default), or ``private``: the quantile of the records themselves, as Reshetova, Chen,
            Ozgur (2023) do, with NO guarantee.
        public: these public records, given like ``data``.
        thresholds: instead of a quantile, an array or file of the bounds.
        seed: None draws the noise from the operating system, as a release needs.
        dtype: of the result, ``float32`` or ``float64``.
        limit: use only the first so many records.
        array: the name of the records in a .npz with several arrays.
        header: whether the first line of a .csv names its columns; found from its cells where it is clear.
        public_labels: publish the labels unchanged.
        root: folder of data sets.
        out: a .npz to write; None returns the records instead.
        dry_run: validate and return the statement only.
        ledger: the URL of a ledger that pays for the reports before any record is used.
        say: called with lines of progress.
        reader: parameters of the data set's reader.
    Raises:
        UsageError: an argument is wrong, or ``out`` exists.
        Unsupported: the target is out of reach.
        MissingResource: the data set or file does not exist or holds no finite numbers.

    >>> import numpy as np
    >>> done = privatize(np.array([[3.0, 4.0], [0.1, 0.0]]), "local-gauss", radius=1, eps=2, delta=1e-5)
    >>> done.x.shape, done.statement["guarantees"][0]["epsilon"] <= 2
    ((2, 2), True)
    """
    mechanism = LocalMechanism(
        mech=mech, radius=radius, eps=eps, delta=delta, sigma=sigma, scale=scale, formula=formula, center=center,
        nonnegative=nonnegative, dct=dct, quantile=quantile, quantile_from=quantile_from, thresholds=thresholds,
        dtype=dtype, seed=seed,
    )  # fmt: skip
    count = None if limit is None else whole(limit, "`limit`")
    folder, path = _path(root, "`data_root`"), _path(out, "`out`")
    files = None if path is None else local_statement.files_at(path)
    private = records(data, folder, array=array, header=header, limit=count, parameters=reader)
    labels = _labels(private) if public_labels else None
    named = header if str(public).lower().endswith(".csv") else None
    known = None if public is None else _public(records(public, folder, header=named), private)
    if mechanism.leaks:
        if known is not None:
            raise UsageError("`quantile_from` private takes the quantile of the protected records; leave out `public`")
        known = private
    plan = local_mechanism.plan(mechanism, private.shape, dtype=private.x.dtype, public=known, root=folder)
    statement = local_statement.statement(plan, private, labels is not None)
    if dry_run:
        return Privatized(None, labels, statement)
    with contextlib.nullcontext() if ledger is None else _paid(ledger, mechanism, statement):
        noisy = blocks(plan, private, say)
        if files is None:
            return Privatized(np.concatenate(list(noisy)), labels, statement)
        small = local_statement.array_facts(plan, statement) | ({} if labels is None else {"y": labels})
        local_statement.write(files, small, {"shape": private.x.shape, "dtype": plan.dtype}, noisy, statement)
        return Privatized(None, labels, statement, files)


@contextlib.contextmanager
def _paid(url: str, mechanism: LocalMechanism, statement: Json) -> Iterator[None]:
    """Spend one report of every record from a ledger, and note there how the block ends."""
    if mechanism.leaks:
        raise UsageError("`ledger` pays for guarantees, and `quantile_from` private gives none. Leave one of them out")
    require("sqlalchemy", "a ledger")
    from wpriv.ledger.service import Ledger

    (row, *_) = statement["guarantees"]
    step = Step.from_dict({**statement["mechanism"], "n": 1})
    with Ledger(url) as ledger, ledger.release(Process((step,), row["adjacency"]), reason="reports of every record"):
        yield


def blocks(plan: Plan, private: Records, say: Callable[[str], None] = lambda line: None) -> Iterator[Array]:
    """Yield the noisy records in blocks, in ``plan.dtype``.

    Record and noise are both rounded to one grid and added there without rounding, so that the digits of a sum reveal
    nothing about the record beyond the sum itself (Mironov 2012). Rounding noise on the grid, and the sum to float32,
    is post-processing.
    """
    key, size = randomness.key("privatize", plan.seed), math.prod(private.shape)
    count, noise_in_cells = max(1, BLOCK // size), plan.noise / plan.step
    sample = randomness.normal if plan.p == 2 else randomness.laplace
    last_line = time.monotonic()
    for number, start in enumerate(range(0, len(private.x), count)):
        cells = clipped(plan, private.rows(start, start + count))
        noise = np.rint(sample(randomness.words(key, number, cells.size)) * noise_in_cells)
        noisy = cells + noise.reshape(cells.shape)
        yield (noisy * plan.step + plan.center).astype(plan.dtype)
        if time.monotonic() - last_line > SECONDS:
            last_line = time.monotonic()
            say(f"{start + len(cells)} of {len(private.x)} records")


def clipped(plan: Plan, rows: Array) -> Array:
    """Center, transform, clamp and clip records, as before the noise; the result is in whole cells of the grid."""
    rows = rows - plan.center
    if plan.dct:
        rows = local_mechanism.transformed(rows)
    if plan.bounds is not None:
        rows = np.clip(rows, -plan.bounds, plan.bounds)
    if plan.nonnegative:
        rows = np.maximum(rows, 0.0)
    p = plan.p
    inside = ball_projection.nearest(rows.reshape(len(rows), -1), plan.radius, p)
    return ball_projection.on_grid(inside, plan.radius, p, plan.step).reshape(rows.shape)


def _labels(private: Records) -> Array:
    if private.labels is None or len(private.labels) != len(private.x):
        raise UsageError(
            f"--public-labels needs labels, an array y of {len(private.x)} entries, and {private.name} has none; "
            f"leave out --public-labels"
        )
    return private.labels


def _public(public: Records, private: Records) -> Records:
    """Return records that are declared public, unless they are the protected ones.

    They are where their numbers are equal in order, or where most of them stand among protected records that hardly
    ever repeat. A few records, or those of few values such as single counts, are alike by chance in other sources.
    """
    count = min(len(public.x), len(private.x))
    alike = public.shape == private.shape and np.array_equal(public.rows(0, count), private.rows(0, count))
    same = alike and (count >= FEW or public.name == private.name or _is_one_file(public.name, private.name))
    if same or (public.shape == private.shape and _mostly(public, private)):
        raise UsageError(
            f"`public` {public.name} holds the protected records of {private.name}, or some of them; name other "
            f"records that are public"
        )
    return public


def _is_one_file(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except (OSError, ValueError):  # a named data set
        return False


def _mostly(public: Records, private: Records) -> bool:
    """Tell whether most of the distinct public records are among protected ones that hardly ever repeat."""
    known = _digests(private)
    some = _digests(public)
    return len(some) >= FEW and len(known) > 0.9 * len(private.x) and len(some & known) > len(some) / 2


def _digests(records: Records) -> set[bytes]:
    """Digests of the distinct records, as numbers of single precision."""
    digests = set()
    for start in range(0, len(records.x), DIGESTED):
        rows = np.ascontiguousarray(records.rows(start, start + DIGESTED), np.float32) + np.float32(0)  # -0 is 0
        digests |= {hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in rows}
    return digests


def _path(value: object, name: str) -> Path | None:
    if value is not None and not isinstance(value, (str, Path)):
        raise UsageError(f"{name} must be a path; found {shown(value)}")
    return None if value is None else Path(value)
