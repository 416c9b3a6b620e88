"""Estimators for scikit-learn that are trained with privacy: ``PrivateClassifier``, ``PrivateRegressor``, ``joint``.

``wpriv.sklearn.PrivateClassifier(epsilon=1.0).fit(x, y)`` trains a linear model, or a network, by clipped gradients
with noise, in pipelines and searches as any other estimator. It needs the extra ``sklearn``.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import itertools
import os
import secrets
import tempfile
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wpriv.accounting import evaluate, ledger
from wpriv.core.guarantee import Guarantee
from wpriv.errors import Unsupported, UsageError, lacking
from wpriv.files.durable_writes import locked
from wpriv.numerics.numbers import positive_number, shown
from wpriv.results import model, storage
from wpriv.results.model import Json
from wpriv.training import finalize, own_training, plan, training_run, training_statement
from wpriv.training.data._dataset import FROM_LABELS
from wpriv.training.train_data import ORIGINS

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, is_classifier
    from sklearn.compose import ColumnTransformer
    from sklearn.exceptions import NotFittedError
    from sklearn.frozen import FrozenEstimator
    from sklearn.model_selection import GridSearchCV, KFold, RandomizedSearchCV, StratifiedKFold
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder
    from sklearn.utils import Tags, check_random_state, get_tags
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data
except ImportError as error:
    if error.name == "sklearn":
        raise lacking("sklearn", "wpriv.sklearn") from None
    raise Unsupported(f"wpriv.sklearn needs scikit-learn 1.6 or later ({error}): pip install -U scikit-learn") from None

if TYPE_CHECKING:
    from torch import nn

    from wpriv.training.training_run import Begun

    Network = Callable[[int, int], nn.Module]

# where a fit keeps its folder: no key of its noise is written to a disk, and nothing waits for one
SHARED_MEMORY = "/dev/shm"
SOURCE = "trained from Python by wpriv.sklearn"
# the beginnings of lines of a statement that are on files of a results folder
OF_FILES = ("only the curator may see files", "loss and clipped share", storage.PROVENANCE, storage.CHECKPOINT)
NOT_PRIVATE = (
    "NOT PRIVATE: `random_state` is {value}, and whoever knows it can draw the noise again and subtract it. For a "
    "release take random_state=None"
)
ONE_FIT = (
    "this statement is of one fit. Other fits on these records, as those of a search, cost more: give all one "
    "`account` (a file), and ask wpriv.sklearn.joint for their joint guarantee"
)
IN_ACCOUNT = "this statement is of fit number {run} of the account {path}; wpriv.sklearn.joint has that of all fits"
LEARNT_CLASSES = "the classes {classes} were read from the labels, and are taken as public. Give them by `classes`"
LEARNT_STEP = (
    "the step {name!r} ({kind}) learns from the records without noise, which the guarantee does not cover. Take public "
    "ranges by `bounds` in its place, or fit it on public records and freeze it (sklearn.frozen.FrozenEstimator)"
)
STANDARDISED = (
    "the columns have mean 0 and standard deviation 1: they were scaled by the records themselves, without noise, "
    "which the guarantee does not cover. Take public ranges by `bounds` in its place"
)
CHOSEN = (
    "the scores of a search are computed from held-out records without noise, and neither they nor the choice by them "
    "are covered. Do not publish cv_results_ and best_score_"
)
FOLDS = "a record is in {most} of the {all} trainings: the fold of each record is taken as fixed and public"
STRATIFIED = (
    "folds of StratifiedKFold follow the labels, so that one record may move others. Give "
    "cv=KFold(n, shuffle=True, random_state=0), whose folds depend on no record"
)
Floats = NDArray[np.float64]
Targets = NDArray[np.int64] | NDArray[np.float32]
Run = list[ledger.Entry]
"""The entries of one fit."""
PLANNED = (
    "the number assumes that noise, rate and length of all fits were fixed before the first of them. `wpriv budget "
    "--history {path} --adaptive` has that for fits whose settings were chosen by earlier ones"
)
# the checks of scikit-learn that compare two fits, which noise under a secret key makes different
TWO_FITS = (
    "check_fit_idempotent",
    "check_supervised_y_2d",
    "check_classifier_data_not_an_array",
    "check_regressor_data_not_an_array",
    "check_regressors_int",
)
# the weights that were trained by their id: each may be trained once
_trained: weakref.WeakValueDictionary[int, nn.Parameter] = weakref.WeakValueDictionary()


def expected_failed_checks(estimator: BaseEstimator) -> dict[str, str]:
    """Return the checks of scikit-learn that an estimator fails by nature, with the reason; none with a random state.

    For ``check_estimator`` and ``parametrize_with_checks``, whose argument has the same name.
    """
    reason = "two fits are compared, and noise under a secret key makes them different"
    return {} if estimator.get_params().get("random_state") is not None else dict.fromkeys(TWO_FITS, reason)


class NotPrivate(Unsupported, AttributeError):
    """A fit with a ``random_state`` has no guarantee. As an AttributeError it hides ``guarantee_`` from listings."""


@dataclass(frozen=True)
class Charged:
    """A fit in an account: the file, the number of the fit in it, and the end of the file after it."""

    path: Path
    run: int
    end: ledger.Position


@dataclass(eq=False, repr=False)
class _PrivateEstimator(BaseEstimator):  # type: ignore[misc]  # sklearn has no types
    """The part that both estimators share: checks of records, the training, and what is known after it."""

    network: Network | None = None
    _: KW_ONLY
    epsilon: float = 1.0
    delta: float = 1e-5
    clip: float = 1.0
    batch: int = 256
    epochs: float = 10
    lr: float = 0.5
    bounds: tuple[ArrayLike, ArrayLike] | None = None
    random_state: int | np.random.RandomState | None = None
    account: str | Path | None = None

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.random_state is None
        return tags

    def _inputs(self, x: Floats) -> Floats:
        """Return records as the network takes them: clipped to ``bounds`` and mapped to [-1, 1], or as they are."""
        return x if self._bounds is None else _to_unit(x, *self._bounds)

    def _fit_network(self, x: Floats, targets: Targets, labels: list[object], remarks: list[str]) -> None:
        """Train a new network, and keep it with its guarantee and statement.

        Args:
            targets: [N] classes from 0, or [N, 1] numbers. labels: of the classes; none for numbers.
            remarks: what the guarantee takes as public although it was read from the records.
        """
        if self.random_state is not None and self.account is not None:
            given = f"with random_state={shown(self.random_state)} this one is not private"
            raise UsageError(f"an account is of private fits, and {given}; take random_state=None, or account=None")
        if not (self.account is None or isinstance(self.account, (str, Path))):
            raise UsageError(f"`account` must be the path of a file; found {shown(self.account)}")
        learnt = bool(remarks)
        remarks = [*remarks, *_learnt_before(self, x)]
        unsafe = [] if self.random_state is None else [NOT_PRIVATE.format(value=shown(self.random_state))]
        for line in [*unsafe, *remarks]:
            warnings.warn(line, UserWarning, stacklevel=3)
        seed = None if self.random_state is None else int(check_random_state(self.random_state).randint(2**31))
        self._bounds = None if self.bounds is None else _ends(self.bounds, "bounds", x.shape[1])
        with np.errstate(over="ignore"):  # infinite numbers are refused
            inputs = self._inputs(x).astype(np.float32)
        network = _network(self.network, x.shape[1], max(len(labels), 1), seed)
        guarantee, statement = self._train(network, inputs, targets, len(labels), seed)
        fit = self._charged
        about = ONE_FIT if fit is None else IN_ACCOUNT.format(run=fit.run, path=fit.path)
        if seed is None:
            self._guarantee: Guarantee | str = replace(guarantee, warnings=(*guarantee.warnings, *remarks))
        else:
            self._guarantee = unsafe[0]
            remarks = [*unsafe, *remarks]
        data = dict(statement["data"], name="the records of fit")
        if labels:
            data |= {"classes": list(map(str, labels)), "classes_from": ORIGINS[FROM_LABELS if learnt else ""]}
        facts = {"recipe": type(self).__name__, "source": SOURCE, "data": data}
        self.statement_ = _statement_text({**statement, **facts}, remarks, about)

    def _train(
        self, network: nn.Module, inputs: NDArray[np.float32], targets: Targets, count: int, seed: int | None
    ) -> tuple[Guarantee, Json]:
        """Train a network by wpriv's steps in a folder that is removed afterwards, and return guarantee and statement.

        The account is charged with all steps before the first one, and after the network was accepted.
        """
        # evaluation needs test records: one made-up record, so that no record of the caller is evaluated
        test = np.zeros_like(inputs[:1]), np.zeros_like(targets[:1])
        memory = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else None
        names = ("epsilon", "delta", "clip", "epochs", "lr")
        options = {name: positive_number(getattr(self, name), f"`{name}`") for name in names}
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="wpriv-fit-", dir=memory))
            stack.enter_context(_own_generator())
            training = own_training.own_training(
                network,
                (inputs, targets),
                test=test,
                loss="cross-entropy" if count else "squared",
                classes=list(range(count)) or None,
                eps=options.pop("epsilon"),
                sampling="poisson",
                batch=min(positive_number(self.batch, "`batch`", whole=True), len(inputs)),
                seed=seed,
                **options,
            )
            run = training_run.own_run(training, Path(folder) / "fit", "cpu")
            begun = run.begin(stack)
            engine, batches = run.prepare(begun)
            charged = None if self.account is None else _charge(Path(self.account), begun.plan)
            for indices in batches():
                engine.step(indices)
            accounted = _account_for(begun)
            trained = training.with_weights(run.out, "cpu").double()
        self.network_, self.n_iter_, self._charged = trained, begun.plan.steps, charged
        return accounted

    @property
    def guarantee_(self) -> Guarantee:
        """The proven guarantee of the last fit: eps and delta with both ends, and what it takes as public.

        Raises:
            NotPrivate: the fit had a ``random_state``. NotFittedError: there was none.
        """
        if not hasattr(self, "_guarantee"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet: call fit first")
        if isinstance(self._guarantee, str):
            raise NotPrivate(self._guarantee)
        return self._guarantee

    def _outputs(self, x: ArrayLike) -> Floats:
        """Return the outputs [N, K] of the trained network, in float64: they do not depend on the other records."""
        import torch

        check_is_fitted(self, "network_")
        checked = validate_data(self, x, reset=False, dtype=np.float64)
        with torch.no_grad():
            outputs: Floats = self.network_(torch.from_numpy(self._inputs(checked))).numpy()
        return outputs


@dataclass(eq=False, repr=False, kw_only=True)
class PrivateClassifier(ClassifierMixin, _PrivateEstimator):  # type: ignore[misc]
    """A classifier that is trained by clipped gradients with noise: each record of ``fit`` is protected.

    Args:
        network: None for a linear model, or a function (inputs, outputs) -> torch.nn.Module that makes a new network,
            whose first weights depend on no record.
        epsilon, delta: of one fit. clip: l2 norm of a record's gradient.
        batch: expected records of a step, at most the number of records. epochs: passes. lr: learning rate of SGD.
        classes: all labels; read from y where left out, which is a leak and warned about.
        bounds: (low, high), public numbers or one for each column: x is clipped to them and mapped to [-1, 1].
        random_state: None draws secret noise. A number makes the result NOT PRIVATE, for tests: ``guarantee_`` raises.
        account: a file that counts all fits that name it, for ``joint``.

    After ``fit``: ``classes_``, ``n_features_in_``, ``n_iter_`` (steps), ``network_`` (float64), ``guarantee_``,
    ``statement_`` (Markdown). There is no ``sample_weight``: a weight would scale what a record adds.
    """

    classes: Sequence[object] | None = None

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = self.random_state is None
        return tags

    def fit(self, X: ArrayLike, y: ArrayLike) -> PrivateClassifier:
        """Train on records X [N, D] with labels y [N].

        Raises:
            UsageError: a parameter is out of range, or a label is not among ``classes``.
            Unsupported: the network mixes records, or the target is out of reach. Nothing is spent then.
        """
        x, y = validate_data(self, X, y, dtype=np.float64)
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        remarks = []
        if self.classes is None:
            classes = np.unique(y)
            remarks.append(LEARNT_CLASSES.format(classes=shown(classes.tolist())))
        else:
            given = np.asarray(self.classes)
            if given.ndim != 1:
                raise UsageError(f"`classes` must be a list of all labels; found {shown(self.classes)}")
            classes = np.unique(given)
            if not np.isin(y, classes).all():
                raise UsageError("y has a label that is not among `classes`; give all labels that may occur")
        if len(classes) < 2:
            raise ValueError(f"PrivateClassifier needs two classes or more; found {len(classes)} class")
        self._fit_network(x, np.searchsorted(classes, y).astype(np.int64), classes.tolist(), remarks)
        self.classes_ = classes
        return self

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Return the probability of each class of ``classes_``, [N, K]."""
        outputs = self._outputs(X)
        shares = np.exp(outputs - outputs.max(axis=1, keepdims=True))
        result: Floats = shares / shares.sum(axis=1, keepdims=True)
        return result

    def predict(self, X: ArrayLike) -> NDArray[np.generic]:
        """Return the most probable class of each record, [N]."""
        outputs = self._outputs(X)
        labels: NDArray[np.generic] = self.classes_[outputs.argmax(axis=1)]
        return labels


@dataclass(eq=False, repr=False, kw_only=True)
class PrivateRegressor(RegressorMixin, _PrivateEstimator):  # type: ignore[misc]
    """A regressor that is trained on squared errors by clipped gradients with noise: each record is protected.

    Args:
        target_bounds: (low, high), public numbers: targets are clipped to them and mapped to [-1, 1], and predictions
            are mapped back and clipped. Left out, targets are as they are, and are learnt well only near [-1, 1].
        network, epsilon, delta, clip, batch, epochs, lr, bounds, random_state, account: as in ``PrivateClassifier``.

    After ``fit``: ``n_features_in_``, ``n_iter_``, ``network_``, ``guarantee_``, ``statement_``.
    """

    target_bounds: tuple[float, float] | None = None

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags

    def fit(self, X: ArrayLike, y: ArrayLike) -> PrivateRegressor:
        """Train on records X [N, D] with targets y [N]; raises as ``PrivateClassifier.fit``."""
        x, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        targets = column_or_1d(y, warn=True).astype(np.float64)
        ends = None if self.target_bounds is None else _ends(self.target_bounds, "target_bounds", 1)
        if ends is not None:
            targets = _to_unit(targets, *ends)
        with np.errstate(over="ignore"):
            numbers = targets.astype(np.float32)[:, None]
        self._fit_network(x, numbers, [], [])
        self._targets = ends
        return self

    def predict(self, X: ArrayLike) -> Floats:
        """Return the predicted target of each record, [N]."""
        outputs = self._outputs(X)[:, 0]
        if self._targets is None:
            return outputs
        low, high = self._targets
        return (np.clip(outputs, -1, 1) * (high - low) + low + high) / 2


def _account_for(begun: Begun) -> tuple[Guarantee, Json]:
    """Return the guarantee of the steps in the ledger of a finished training, and its statement."""
    from wpriv.files import checkpoint

    job, entries, process = finalize.from_ledger(begun.plan, begun.folder)
    assert process is not None
    rows, refused = plan.guarantees(job, process)
    stored = checkpoint.load(begun.folder.path / storage.MODEL)
    tested = {name: stored[name] for name in ("clipping", "checked", "remarks") if stored.get(name)}
    about = {**model.json_object(begun.folder.path / storage.PROVENANCE), **tested}
    statement = training_statement.statement(job, process, rows, refused, about)
    return rows[0], storage.as_stored({**statement, "ledger": ledger.position(entries).as_dict()})


def _statement_text(statement: Json, remarks: list[str], about: str) -> str:
    """Return a statement in Markdown, without what it says of the files of a results folder, which a fit has not."""
    trust, limits = (
        [line for line in statement[key] if not line.startswith(OF_FILES)] for key in ("trust_model", "not_covered")
    )
    lists = {"trust_model": trust, "not_covered": [about, *limits], "warnings": [*remarks, *statement["warnings"]]}
    return training_statement.to_markdown({**statement, **lists, "publish": []})


@contextlib.contextmanager
def _own_generator(seed: int | None = None) -> Iterator[None]:
    """Draw first weights from a seed of this fit, and leave torch's generator as the caller has it."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(secrets.randbits(63) if seed is None else seed)
        yield


def _network(network: Network | None, inputs: int, outputs: int, seed: int | None) -> nn.Module:
    """Return the network of a fit, with new weights in float32."""
    from torch import nn

    if isinstance(network, nn.Module) or not (network is None or callable(network)):
        raise UsageError(
            f"`network` must be None or a function (inputs, outputs) -> torch.nn.Module, which makes a new network for "
            f"each fit; found {shown(network) if not isinstance(network, nn.Module) else type(network).__name__}. "
            f"For example: lambda inputs, outputs: nn.Linear(inputs, outputs)"
        )
    with _own_generator(seed):
        made = nn.Linear(inputs, outputs) if network is None else network(inputs, outputs)
    if not isinstance(made, nn.Module):
        raise UsageError(f"`network` must return a torch.nn.Module; found {type(made).__name__}")
    if any(_trained.get(id(weight)) is weight for weight in made.parameters()):
        raise UsageError("`network` returned weights of an earlier fit, which hold its records: make new ones inside")
    _require_outputs(copy.deepcopy(made), inputs, outputs)
    _trained.update((id(weight), weight) for weight in made.parameters())
    return made.float()


def _require_outputs(network: nn.Module, inputs: int, outputs: int) -> None:
    """Refuse a network that cannot predict in float64, or has other outputs, before anything is spent on it."""
    import torch

    try:
        with torch.no_grad():
            predicted = network.double().eval()(torch.zeros(2, inputs, dtype=torch.float64))
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UsageError(
            f"`network` must take records [N, {inputs}], in float32 when it is trained and in float64 when it "
            f"predicts; in float64 it fails: {reason}"
        ) from None
    shape = list(getattr(predicted, "shape", ()))
    if shape != [2, outputs]:
        raise UsageError(f"`network` must return outputs of shape [2, {outputs}] for 2 records; found {shape}")


def _to_unit(values: Floats, low: Floats, high: Floats) -> Floats:
    """Return values clipped to public bounds and mapped to [-1, 1]."""
    return (2 * np.clip(values, low, high) - low - high) / (high - low)


def _ends(bounds: tuple[ArrayLike, ArrayLike], name: str, count: int) -> tuple[Floats, Floats]:
    """Return both ends of public bounds as arrays of no or ``count`` numbers."""
    try:
        low, high = (np.asarray(end, dtype=np.float64) for end in bounds)
    except (TypeError, ValueError):
        low = high = np.empty((0, 0))
    fits = all(end.shape in ((), (count,)) for end in (low, high))
    with np.errstate(over="ignore", invalid="ignore"):
        fits = fits and bool(np.isfinite(2 * (high - low)).all() and (low < high).all())
    if not fits:
        of_columns = f"each one number for all columns or {count} numbers, one for each"
        wanted = of_columns if name == "bounds" else "two numbers"
        raise UsageError(f"`{name}` must be a pair (low, high) with low < high, {wanted}; found {shown(bounds)}")
    return low, high


def _learns(step: object) -> bool:
    """Return whether a step of a pipeline learns from the records; listed columns and categories are public."""
    if step in (None, "passthrough", "drop") or isinstance(step, FrozenEstimator):
        return False
    if isinstance(step, ColumnTransformer):
        parts = [*step.transformers, ("", step.remainder, [])]
        return any(callable(columns) or _learns(part) for _, part, columns in parts)
    if isinstance(step, (OneHotEncoder, OrdinalEncoder)) and not isinstance(step.categories, str):
        return step.min_frequency is not None or step.max_categories is not None
    return bool(get_tags(step).requires_fit)


def _learnt_before(estimator: _PrivateEstimator, x: Floats) -> list[str]:
    """Return a line for each step before the estimator that learnt from the records, as far as that can be seen.

    A pipeline does not tell its last step what came before, so it is looked for among the callers.
    """
    frame = inspect.currentframe()
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, Pipeline) and owner.steps[-1][1] is estimator:
            return [
                LEARNT_STEP.format(name=name, kind=type(step).__name__)
                for name, step in owner.steps[:-1]
                if _learns(step)
            ]
        frame = frame.f_back
    means, deviations = x.mean(axis=0), x.std(axis=0)
    scaled = (abs(deviations - 1) < 1e-6) & (abs(means) < 1e-6)
    return [STANDARDISED] if len(x) > 2 and scaled.any() and (scaled | (deviations == 0)).all() else []


# The account of several fits on the same records: one ledger with a run for each, charged before it begins.


def _charge(path: Path, job: plan.Plan) -> Charged:
    """Write all steps of a fit to the account, and return where."""
    assert job.step is not None
    with locked(path.with_name(f"{path.name}.lock"), f"another process writes {path}", wait=True):
        run = ledger.last_run(ledger.entries(path)) + 1
        stream = secrets.token_hex(8)
        book = ledger.Ledger(path, run, job.steps, adjacency=job.adjacency, stream=stream)
        try:
            for number in range(1, job.steps + 1):
                book.spend(number, job.step, f"{job.records} records")
        finally:
            book.close()
        return Charged(path.absolute(), run, book.position())


def joint(search: BaseEstimator | str | Path, *, delta: float | None = None) -> Guarantee:
    """Return the joint guarantee of all fits in an account: of a grid search, or of everything that names the file.

    All fits of the account are composed. Of a ``GridSearchCV`` or ``RandomizedSearchCV`` over folds of ``KFold`` or
    ``StratifiedKFold`` that was refitted, a record is left out of the fits that its fold tests: with n folds and m
    candidates (n - 1) m + 1 trainings count, and the warnings say so.

    Args:
        search: a fitted search, pipeline or estimator with ``account``, or the path of the account.
        delta: of the answer; that of the estimator, or 1e-5, where left out.
    Raises:
        UsageError: there is no account, no fit in it, or not the fit of the estimator.
    """
    estimator = None if isinstance(search, (str, Path)) else _estimator_of(search)
    charged: Charged | None = getattr(estimator, "_charged", None)
    path = search if estimator is None else charged.path if charged else estimator.account
    if estimator is not None and charged is None and hasattr(estimator, "network_"):
        path = None  # whatever was set after its fit
    if path is None:
        raise UsageError("no account was kept. Give the estimator one, account='fits.jsonl', before it is fitted")
    rows = ledger.entries(Path(path))
    if not rows:
        raise UsageError(f"the account {path} has no fit. Give the file that the estimators name by `account`")
    if charged is not None:
        ledger.require(rows, charged.end, Path(path), f"this {type(estimator).__name__}")
    asked = delta if delta is not None else 1e-5 if estimator is None else estimator.delta
    runs = [list(run) for _, run in itertools.groupby(rows, key=lambda entry: entry.run)]
    kept, notes = [runs], []
    if isinstance(search, (GridSearchCV, RandomizedSearchCV)):
        kept = _without_folds(search, runs)
        notes = [CHOSEN, *[FOLDS.format(most=len(kept[0]), all=len(runs))] * (len(kept[0]) < len(runs))]
        notes += [STRATIFIED] * (_folds_of(search) is StratifiedKFold)
    if len({(run[0].release, len(run)) for run in runs}) > 1:
        notes.append(PLANNED.format(path=path))
    processes = dict.fromkeys(ledger.process(list(itertools.chain(*some))) for some in kept)
    guarantees = [plan.guarantee(each, plan.ACCOUNTANT, evaluate.answer_tol(each), asked) for each in processes]
    worst = max(guarantees, key=lambda row: row.epsilon.safe)
    reading = f"{len(kept[0])} of the {len(runs)} trainings in the account {path}, which have a record in common"
    return replace(worst, warnings=(*worst.warnings, *notes)).with_extra(reading=[reading])


def _estimator_of(search: BaseEstimator) -> _PrivateEstimator:
    """Return the private estimator inside of a search, a pipeline or another estimator; the fitted one if there is."""
    estimator = search
    while not isinstance(estimator, _PrivateEstimator):
        inner = (
            estimator.steps[-1][1] if isinstance(estimator, Pipeline) else getattr(estimator, "best_estimator_", None)
        )
        inner = getattr(estimator, "estimator", None) if inner is None else inner
        if inner is None or isinstance(inner, str):
            wanted = "a search, pipeline or the like with a PrivateClassifier or PrivateRegressor, or an account's path"
            raise UsageError(f"wanted {wanted}; found {type(search).__name__}")
        estimator = inner
    return estimator


def _folds_of(search: BaseEstimator) -> type | None:
    """Return the kind of a search's folds, if every record is in the test part of exactly one of them."""
    if search.cv is None or isinstance(search.cv, int):
        return type(StratifiedKFold() if is_classifier(search.estimator) else KFold())
    kind: type = type(search.cv)
    return kind if kind in (KFold, StratifiedKFold) else None


def _without_folds(search: BaseEstimator, runs: list[Run]) -> list[list[Run]]:
    """Return for each size of the training sets of a search the runs that one record was in, as many as it can be.

    The fits of one fold are of one training set, so that their runs name the same number of records. Of the runs with
    this number, each fold has an equal share of each kind. All runs count where the folds are no partition, fits
    failed, or others came in between.
    """
    fitted, candidates = getattr(search, "best_estimator_", None), len(search.cv_results_["params"])
    scores = [value for key, value in search.cv_results_.items() if key.startswith("split") and "_test_" in key]
    charged: Charged | None = None if fitted is None else getattr(_estimator_of(search), "_charged", None)
    hides_failures = search.error_score != "raise" and not np.isnan(search.error_score)
    if charged is None or _folds_of(search) is None or hides_failures or not np.isfinite(scores).all():
        return [runs]
    # the run of the refit is the last one, and the runs of the search are before it
    last = charged.run
    first = last - 1 - candidates * search.n_splits_
    if first < 0:
        return [runs]
    searched, whole = runs[first : last - 1], runs[last - 1][0].settings
    kept = []
    for size in {run[0].settings for run in searched}:
        kinds = Counter((run[0].release, len(run)) for run in searched if run[0].settings == size)
        of_size, rest = divmod(sum(kinds.values()), candidates)
        if rest or size == whole or any(count % of_size for count in kinds.values()):
            return [runs]
        left_out = Counter({kind: count // of_size for kind, count in kinds.items()})
        with_record = [*runs[:first], *runs[last - 1 :]]
        for run in searched:
            kind = run[0].release, len(run)
            if run[0].settings == size and left_out[kind]:
                left_out[kind] -= 1
            else:
                with_record.append(run)
        kept.append(with_record)
    return kept
