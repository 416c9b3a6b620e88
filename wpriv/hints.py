"""Suggestions for unknown names: the nearest known one, or the name here of a term of other programs and papers."""

from __future__ import annotations

from collections.abc import Sequence

_MULTIPLIER = "the noise multiplier is sigma / sensitivity"
_STEPS = "the number of compositions"
_RATE = "the fraction of the records in one step"
_RECORDS = "the size of the data set"
_BATCH = "the size of a batch or lot"
_CLIP = "the clipping norm is the sensitivity of a sum of clipped gradients"
_RHO = "rho-zCDP of gauss noise is sigma = sensitivity / sqrt(2 rho); a given rho is a parameter of mechanism zcdp"
_ADD_REMOVE = "one data set has one record more"
_REPLACE_ONE = "one record is replaced by another"
_MU = "mu-GDP of gauss noise is sigma = sensitivity / mu; a given mu is a parameter of mechanism gdp"
# terms of other programs and papers; their names here, of which the first known in the context is suggested; a remark
_SYNONYMS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("noise-multiplier multiplier noise-scale z", ("sigma", "mech"), _MULTIPLIER),
    ("std stddev sd stdev standard-deviation noise-std noise", ("sigma",), "the standard deviation of the noise"),
    ("rho", ("sigma", "gauss"), _RHO),
    ("mu", ("sigma", "gauss"), _MU),
    ("b laplace-scale", ("scale",), "the scale b of Laplace noise"),
    ("steps num-steps compositions iterations iters iter rounds releases queries count t k", ("n",), _STEPS),
    ("q sample-rate sampling-rate sampling-probability sampling-prob prob probability", ("rate",), _RATE),
    ("subsampling-rate gamma fraction", ("rate",), _RATE),
    ("lot lot-size batch-size batchsize minibatch mini-batch expected-batch-size", ("batch",), _BATCH),
    ("dataset-size data-size num-examples examples num-samples samples", ("records",), _RECORDS),
    ("sample-size size num-records population", ("records",), _RECORDS),
    ("num-epochs passes", ("epochs",), ""),
    ("epsilon", ("eps",), ""),
    ("target-epsilon target-eps", ("eps", "epsilon"), ""),
    ("target-delta", ("delta",), ""),
    ("max-epsilon epsilon-limit", ("max-eps",), ""),
    ("max-grad-norm l2-norm-clip clip-norm clipping-norm norm-bound", ("clip", "sensitivity"), _CLIP),
    ("l2-sensitivity delta-f df", ("clip", "sensitivity"), _CLIP),
    ("clip", ("sensitivity",), _CLIP),
    ("mechanism noise-type distribution", ("mech",), ""),
    ("accounting method", ("accountant", "accountants"), ""),
    ("neighbors neighbours neighboring neighbouring relation neighboring-relation", ("adjacency",), ""),
    ("tolerance precision", ("tol",), ""),
    ("ledger", ("history",), ""),
    ("output o outdir out-dir output-dir dest", ("out",), ""),
    ("learning-rate", ("lr",), ""),
    ("gaussian normal gaussian-mechanism analytic-gaussian", ("gauss",), ""),
    ("mu-gdp f-dp", ("gdp",), "a given mu; Gaussian noise of known sigma is gauss"),
    ("rho-zcdp cdp", ("zcdp",), "a given rho; Gaussian noise of known sigma is gauss"),
    ("rdp renyi rdp-table renyi-curve", ("rdp-curve",), "Renyi divergences from a table"),
    ("pure-dp approximate-dp approx-dp eps-delta-dp eps-dp", ("dp",), "a given eps and delta"),
    ("exponential-mechanism bounded-range report-noisy-max gumbel", ("exponential",), ""),
    ("dpsgd dp-sgd sgm subsampled-gaussian sampled-gaussian", ("gauss",), "with --sampling poisson and a rate"),
    (
        "matrix matrix-mechanism matrix-factorization mf dp-mf dp-ftrl bandmf banded",
        ("matrix-gauss",),
        "correlated noise",
    ),
    ("lap laplacian laplace-mechanism", ("laplace",), ""),
    ("rr krr k-rr randomised-response", ("randomized-response",), ""),
    ("discrete-gaussian", ("discrete-gauss",), ""),
    ("geometric two-sided-geometric", ("discrete-laplace",), "the two-sided geometric distribution"),
    ("prv fft fourier privacy-buckets buckets", ("pld",), "the privacy loss distribution, as a certified bracket"),
    ("renyi-dp renyi-accountant", ("rdp",), ""),
    ("gaussian-dp gaussian-differential-privacy", ("gdp", "gauss"), ""),
    ("moments-accountant ma abadi", ("moments",), ""),
    ("strong strong-composition advanced-composition", ("advanced",), ""),
    ("naive linear sequential", ("basic",), ""),
    ("optimal optimal-composition kairouz", ("kov",), ""),
    ("bernoulli binomial iid", ("poisson",), "each record is drawn independently"),
    ("balls-in-bins random-allocation allocated", ("allocation",), "each record in one random step of every pass"),
    ("shuffled shuffling shuffled-batches reshuffling random-reshuffling random-shuffling", ("shuffle",), ""),
    ("uniform without-replacement swor subset fixed-size", ("fixed",), "batches of a fixed size, without replacement"),
    ("full full-batch no", ("none",), ""),
    ("add-or-remove add-or-remove-one add-remove-one unbounded", ("add-remove",), _ADD_REMOVE),
    ("zeroed-out zero-out-one zeroing-out null-record ghost-record", ("zero-out",), "the number of records is public"),
    ("bounded substitute substitution swap replace replacement change-one", ("replace-one",), _REPLACE_ONE),
)
ALIASES = {term: (names, remark) for terms, names, remark in _SYNONYMS for term in terms.split()}


def fold(word: str) -> str:
    """Normalise a name for comparison: lower case, hyphens for underscores, no surrounding blanks."""
    return word.strip().lower().replace("_", "-")


def did_you_mean(word: str, known: Sequence[str], prefix: str = "") -> str:
    """Return "; did you mean 'name'?" for an unknown word, or "" where no known name is near.

    Args:
        prefix: text before every name in the message, such as ``--``.
    """
    import difflib

    names = {fold(name): name for name in known}
    word = fold(word)
    synonyms, remark = ALIASES.get(word, ((), ""))
    synonym = next((names[name] for name in synonyms if name in names), None)
    if word in names or synonym is None:
        near = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
        return f"; did you mean {prefix + names[near[0]]!r}?" if near else ""
    return f"; did you mean {prefix + synonym!r}{f' ({remark})' if remark else ''}?"
