"""Suggestions for unknown names: the nearest known one, or the name here of a term of other programs and papers."""

from __future__ import annotations

from collections.abc import Collection, Sequence

# names of other programs and papers that mean exactly what a name here does, by the kind of name; accepted everywhere
SYNONYMS = {
    "mechanisms": {
        "gauss": "gaussian normal gaussian-mechanism gaussian-noise",
        "laplace": "laplacian lap laplace-mechanism laplace-noise",
        "discrete-gauss": "discrete-gaussian",
        "discrete-laplace": "discrete-laplacian geometric two-sided-geometric",
        "truncated-gauss": "truncated-gaussian",
        "truncated-laplace": "truncated-laplacian",
        "local-gauss": "local-gaussian",
        "local-laplace": "local-laplacian",
        "gauss-threshold": "gaussian-threshold",
        "laplace-threshold": "laplacian-threshold",
        "matrix-gauss": "matrix-gaussian matrix-mechanism matrix-factorization dp-mf",
        "randomized-response": "rr randomised-response",
        "exponential": "exponential-mechanism",
        "noisy-max": "report-noisy-max rnm",
        "above-threshold": "sparse-vector sparse-vector-technique svt",
        "top-k": "topk",
    },
    "accountants": {
        "pld": "prv privacy-loss-distribution privacy-loss-distributions",
        "rdp": "renyi-dp rdp-accountant renyi-accountant",
        "moments": "moments-accountant",
        "advanced": "strong strong-composition advanced-composition",
        "basic": "basic-composition sequential-composition",
        "kov": "optimal-composition",
    },
    "samplings": {
        "none": "full-batch no-sampling",
        "poisson": "poisson-sampling poisson-subsampling bernoulli bernoulli-sampling",
        "fixed": "fixed-size without-replacement sampling-without-replacement swor wor",
        "allocation": "random-allocation balls-in-bins balls-and-bins",
        "shuffle": "shuffled shuffling shuffled-batches random-shuffling reshuffling random-reshuffling",
    },
    "adjacencies": {
        "add-remove": "add-or-remove add-or-remove-one add-remove-one unbounded",
        "replace-one": "replace replacement substitute substitution swap change-one bounded",
        "zero-out": "zeroed-out zeroing-out zero-out-one",
    },
    "keys": {
        "mech": "mechanism",
        "eps": "epsilon target-epsilon target-eps",
        "delta": "target-delta",
        "n": "steps num-steps compositions num-compositions iterations num-iterations rounds num-rounds",
        "rate": "q sample-rate sampling-rate sampling-probability sampling-prob subsampling-rate",
        "batch": "batch-size lot-size expected-batch-size cohort clients-per-round",
        "records": "dataset-size data-set-size data-size num-records num-examples num-samples clients num-clients",
        "epochs": "num-epochs",
        "adjacency": "neighbouring-relation neighboring-relation",
        "max-eps": "max-epsilon",
    },
}
# names of DP-SGD, which is Gaussian noise on Poisson batches
DP_SGD = ("dpsgd", "dp-sgd", "sgm", "subsampled-gaussian", "sampled-gaussian")
_MEANINGS = {
    kind: {term: name for name, terms in rows.items() for term in terms.split()} for kind, rows in SYNONYMS.items()
}

_STEPS = "the number of compositions"
_CLIP = "the clipping norm is the sensitivity of a sum of clipped gradients"
_RHO = "rho-zCDP of Gaussian noise is sigma = sensitivity / sqrt(2 rho); a given rho is a parameter of mechanism zcdp"
_MU = "mu-GDP of Gaussian noise is sigma = sensitivity / mu; a given mu is a parameter of mechanism gdp"
# terms that are close to names here, of which the first known in the context is suggested; a remark
_SUGGESTIONS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("noise-multiplier", ("sigma",), "the noise multiplier is sigma / sensitivity"),
    ("multiplier noise-scale z", ("noise-multiplier", "sigma"), "the noise multiplier is sigma / sensitivity"),
    ("std stddev sd stdev standard-deviation noise-std noise", ("sigma",), "the standard deviation of the noise"),
    ("rho", ("sigma", "gauss"), _RHO),
    ("mu", ("sigma", "gauss"), _MU),
    ("b laplace-scale", ("scale",), "the scale b of Laplace noise"),
    ("iters iter releases queries count t k", ("n",), _STEPS),
    ("prob probability gamma fraction", ("rate",), "the fraction of the records in one step"),
    ("lot batchsize minibatch mini-batch", ("batch",), "the size of a batch or lot"),
    ("examples samples sample-size size population", ("records",), "the size of the data set"),
    ("passes", ("epochs",), ""),
    ("epsilon-limit", ("max-eps",), ""),
    ("max-grad-norm l2-norm-clip clip-norm clipping-norm norm-bound", ("clip", "sensitivity"), _CLIP),
    ("l2-sensitivity delta-f df", ("clip", "sensitivity"), _CLIP),
    ("clip", ("sensitivity",), _CLIP),
    ("noise-type distribution", ("mech",), ""),
    ("accounting method", ("accountant", "accountants"), ""),
    ("neighbors neighbours neighboring neighbouring relation", ("adjacency",), ""),
    ("tolerance precision", ("tol",), ""),
    ("ledger", ("history",), ""),
    ("output o outdir out-dir output-dir dest", ("out",), ""),
    ("get-noise-multiplier compute-noise", ("calibrate",), "the noise that an eps needs"),
    ("get-epsilon compute-epsilon compute-dp-sgd-privacy", ("budget",), "what steps cost"),
    ("learning-rate", ("lr",), ""),
    ("format html registry checklist publish", ("as",), "the form of a report, as in --as checklist"),
    ("analytic-gaussian", ("gauss",), ""),
    ("mu-gdp f-dp", ("gdp",), "a given mu; Gaussian noise of known sigma is gauss"),
    ("rho-zcdp cdp", ("zcdp",), "a given rho; Gaussian noise of known sigma is gauss"),
    ("rdp renyi rdp-table renyi-curve", ("rdp-curve",), "Renyi divergences from a table"),
    ("pure-dp approximate-dp approx-dp eps-delta-dp eps-dp", ("dp",), "a given eps and delta"),
    ("bounded-range", ("exponential",), ""),
    ("gumbel argmax", ("noisy-max",), ""),
    (" ".join(DP_SGD), ("gauss",), "with --sampling poisson and a rate"),
    ("matrix mf dp-ftrl bandmf banded", ("matrix-gauss",), "correlated noise"),
    ("krr k-rr", ("randomized-response",), "of two answers, which bounds that of more"),
    ("fft fourier privacy-buckets buckets", ("pld",), "the privacy loss distribution, as a certified bracket"),
    ("gaussian-dp gaussian-differential-privacy", ("gdp", "gauss"), ""),
    ("ma abadi", ("moments",), ""),
    ("naive linear sequential", ("basic",), ""),
    ("optimal kairouz", ("kov",), ""),
    ("binomial iid", ("poisson",), "each record is drawn independently"),
    ("allocated", ("allocation",), "each record in one random step of every pass"),
    ("uniform subset", ("fixed",), "batches of a fixed size, without replacement"),
    ("full no", ("none",), ""),
    ("null-record ghost-record", ("zero-out",), "the number of records is public"),
)
ALIASES = {term: (names, remark) for terms, names, remark in _SUGGESTIONS for term in terms.split()}
for _rows in _MEANINGS.values():
    for _term, _name in _rows.items():
        _names, _remark = ALIASES.get(_term, ((), ""))
        ALIASES[_term] = ((_name, *_names), _remark)
# what `wpriv list` names, by the word of messages; other lists of more than SHORT names are not printed
LISTS = {
    "mechanism": "mechanisms",
    "accountant": "accountants",
    "data set": "data",
    "data": "data",
    **{kind: f"{kind}s" for kind in ("model", "task", "table", "figure", "reader")},
}
SHORT = 6


def fold(word: str) -> str:
    """Normalise a name for comparison: lower case, hyphens for underscores, no surrounding blanks."""
    return word.strip().lower().replace("_", "-")


def plain(kind: str, word: str) -> str:
    """The name here for a word of a kind of ``SYNONYMS``: itself, in lower case and with hyphens, where it is none."""
    name = fold(word).replace("/", "-").replace(" ", "-")
    return _MEANINGS[kind].get(name, name)


def plain_key(key: str) -> str:
    """The key that a synonym stands for, with underscores; the key itself where it is no synonym."""
    name = _MEANINGS["keys"].get(fold(key))
    return key if name is None else name.replace("-", "_")


def instead(word: str, known: Sequence[str], kind: str = "", help: str = "") -> str:
    """Return what follows on "no such name": ONE suggestion, and where all names are listed, if they are many.

    Args:
        kind: what is named, in the singular; ``LISTS`` has those that `wpriv list` names.
        help: the command that names all, where it is another one.
    """
    near = did_you_mean(word, known) or "."
    if len(known) <= SHORT:
        return f"{near} Known: {', '.join(known) or 'none'}"
    if help or kind in LISTS:
        return f"{near} `{help or f'wpriv list {LISTS[kind]}'}` names all"
    return near if near != "." else f". Known: {', '.join(known)}"


# keywords of other programs that train, and where their subject is here
_ELSEWHERE = {
    "callbacks callback hooks": "code between steps belongs into a loop of your own: `wpriv.training_loop`",
    "sampler batch-sampler shuffle drop-last": "the accounting decides how records are drawn: `sampling='poisson'`",
    "early-stopping patience early-stop": "`run.finish()` ends a loop of your own early: `wpriv.training_loop`",
    "momentum betas weight-decay nesterov": "a key of the optimizer: `optimizer={'name': 'sgd', 'momentum': 0.9}`",
    "gradient-accumulation-steps accumulation-steps accumulate accumulation microbatch microbatches virtual-batch "
    "max-physical-batch-size": "a batch passes in pieces by `physical`, the number of records of a piece",
    "amp fp16 mixed-precision autocast dtype": "half precision is `precision='bf16'`",
    "validation validation-data val-data valid eval-set eval-data": "records to measure on are `test`",
    "num-workers workers collate-fn pin-memory": "records are arrays in memory or a torch Dataset, `data`",
    "criterion loss-fn": "the loss of a record is `loss`",
    "n-epochs max-epochs nb-epochs": "passes over the records are `epochs`",
    "max-steps": "their number is `steps`",
    "progress verbose": "`wpriv.train` prints lines unless `progress=False`, and a loop of your own prints none",
}
ELSEWHERE = {term: place for terms, place in _ELSEWHERE.items() for term in terms.split()}


def elsewhere(word: str, known: Collection[str]) -> str:
    """Return where a keyword of other trainings is found, for a verb that trains; "" where nothing is known."""
    place = ELSEWHERE.get(fold(word), "")
    return f": {place}." if place and "optimizer" in known else ""


def did_you_mean(word: str, known: Sequence[str], prefix: str = "") -> str:
    """Return "; did you mean 'name'?" for an unknown word, or "" where no known name is near."""
    import difflib

    names = {fold(name): name for name in known}
    word = fold(word)
    synonyms, remark = ALIASES.get(word, ((), ""))
    synonym = next((names[name] for name in synonyms if name in names), None)
    if word in names or synonym is None:
        near = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
        if not near:  # a misspelt synonym
            terms = {term: name for term, (meant, _) in ALIASES.items() for name in meant[:1] if name in names}
            near = [terms[term] for term in difflib.get_close_matches(word, terms, n=1, cutoff=0.85)]
        return f"; did you mean {prefix + names[near[0]]!r}?" if near else ""
    return f"; did you mean {prefix + synonym!r}{f' ({remark})' if remark else ''}?"
