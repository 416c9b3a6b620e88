"""Display names: what figures and pages call the accountants, methods, options, claims and columns of a table.

An accountant, task or other plug-in that is not listed here states its name in its own file, as ``DISPLAY_NAME``.
"""

from __future__ import annotations

import re
from typing import Any

from wpriv.core import registry
from wpriv.errors import UsageError

Row = dict[str, Any]

# accountants, methods and losses as recipes name them: their names in figures, and the colour (by its place in the
# palette) and the mark that they have in all of them
_ACCOUNTANTS = {
    "advanced": ("advanced composition", 16, "^"),
    "basic": ("basic composition", 15, "s"),
    "bdp": ("Bayesian DP", 14, "8"),
    "berry-esseen": ("Berry–Esseen", 4, "D"),
    "clt": ("central limit", 3, "^"),
    "gdp": ("Gaussian DP", 6, "X"),
    "gdp-clt": ("Gaussian DP, central limit", 18, "*"),
    "kov": ("optimal composition", 10, "P"),
    "markov": ("Markov", 2, "s"),
    "moments": ("moments accountant", 9, "P"),
    "nagaev": ("Nagaev", 5, "v"),
    "pdp": ("probabilistic DP", 11, "d"),
    "buckets": ("privacy buckets", 20, "<"),
    "plc": ("privacy loss classes", 21, "h"),
    "pld": ("privacy loss distribution", 0, ""),
    "rdp": ("Rényi DP", 1, "o"),
    "rdp-filter": ("Rényi filter", 17, ">"),
    "rdp-mironov": ("Rényi DP, Mironov's conversion", 7, "<"),
    "renyi": ("Rényi divergence", 12, "p"),
    "swd-tail": ("sliced tail bound", 19, "v"),
    "wdp": ("Wasserstein DP", 13, "H"),
    "zcdp": ("zero-concentrated DP", 8, "h"),
}
_METHODS = {
    "swd": ("SWD", 0, "o"),
    "dp-swd": ("DP-SWD", 1, "s"),
    "dann": ("DANN", 2, "^"),
    "dp-dann": ("DP-DANN", 3, "D"),
    "dp-swd-projections": ("DP-SWD, noise on projections", 5, "<"),
    "projections": ("DP-SWD, noise on projections", 5, "<"),
    "gradient": ("DP-SWD, noise on gradients", 1, "s"),
    "dp-swd-paper": ("DP-SWD, published noise", 7, "v"),
    "dp-dann-paper": ("DP-DANN, published noise", 8, "^"),
    "source-only": ("source only", 6, "x"),
    "merf": ("DP-MERF", 2, "v"),
    "cgan": ("DP-CGAN", 4, "P"),
}
_LOSSES = {
    "entropic": ("entropic W₂", 0, "o"),
    "plain": ("plain W₂", 1, "s"),
    "sinkhorn-divergence": ("Sinkhorn divergence", 2, "^"),
}
STYLES = {name: (colour, mark) for name, (_, colour, mark) in (_ACCOUNTANTS | _METHODS | _LOSSES).items()}
ACCOUNTANTS = {name: words for name, (words, _, _) in _ACCOUNTANTS.items()}
METHODS = {name: words for name, (words, _, _) in _METHODS.items()} | {
    "gauss": "Gauss",
    "laplace": "Laplace",
    "truncated-gauss": "truncated Gauss",
    "truncated-laplace": "truncated Laplace",
    "discrete-gauss": "discrete Gauss",
    "discrete-laplace": "discrete Laplace",
    "wgan": "WGAN",
    "tight": "tight constant",
    "paper": "published constant",
}
LOSSES = {name: words for name, (words, _, _) in _LOSSES.items()} | {
    "entropic-l1": "entropic W₁",
}
# option of an accountant -> how its value is written; "{}" is the value
OPTIONS = {
    ("wdp", "order"): "μ = {}",
    ("wdp", "variant"): "{}",
    ("moments", "order"): "λ = {}",
    ("bdp", "order"): "λ = {}",
    ("renyi", "order"): "α = {}",
    ("swd-tail", "w"): "{}",
    ("", "beta"): "β = {}",
    ("", "alpha"): "α = {}",
    ("", "lipschitz"): "L = {}",
}
# values of the options that are words
VALUES = {
    "table1": "formula of Table 1",
    "exact": "exact distance",
    "code": "authors' program",
    "prop9": "Proposition 9",
    "prop10": "Proposition 10",
    "prop11": "Proposition 11",
    "kdp": "Kantorovich DP",
    "generalised": "generalised WDP",
    "to-zcdp": "to zCDP, as published",
    "clt": "central limit",
    "quantile": "true quantile",
    "bernstein": "Bernstein",
    "bernstein-code": "Bernstein, authors' program",
}
CLAIMS = {"upper-bound": "upper bound", "as-published": "as published"}
NOTIONS = {
    "approximate-dp": "approximate DP",
    "probabilistic-dp": "probabilistic DP",
    "rdp": "Rényi DP",
    "wdp": "Wasserstein DP",
    "bdp": "Bayesian DP",
    "gdp": "Gaussian DP",
    "zcdp": "zero-concentrated DP",
}
# columns of metrics
MEASURES = {
    "accuracy": "accuracy",
    "group_accuracy": "accuracy, group guessed from code",
    "transductive": "accuracy, adapted records",
    "on_source": "accuracy, source",
    "logistic": "accuracy, logistic regression",
    "mlp": "accuracy, multilayer perceptron",
    "w2": "W₂ to test records",
    "sliced": "sliced W₂",
    "distance": "distance",
    "noisy_distance": "distance to noisy records",
    "wavelet_distance": "distance of wavelets",
    "frechet-small-cnn": "Fréchet distance (small network)",
    "disparate_impact": "disparate impact",
    "parity_gap": "parity gap",
    "odds_gap": "odds gap",
    "marginal_error": "error of the marginals",
    "od0": "share of group 0 above the diagonal",
    "od1": "share of group 1 above the diagonal",
    "eo0": "ratio of decisions 1, label 0",
    "eo1": "ratio of decisions 1, label 1",
}
AXES = {
    "epsilon": "ε",
    "delta": "δ",
    "n": "number of compositions n",
    "sigma": "noise standard deviation σ",
    "bins": "steps of an epoch b",
    "epochs": "epochs",
    "eps": "ε",
    "eps_upper": "ε",
    "mean_error": "error of prefix sums (root mean square, in clipping norms)",
    "to_dp_sgd": "error of prefix sums / that of DP-SGD",
    "scale": "noise scale b",
    "rate": "sampling rate q",
    "sensitivity": "sensitivity",
    "order": "order",
    "beta": "β",
    "alpha": "weight α of the Wasserstein term",
    "lipschitz_z": "clip L₂ of the gradients of Z's scores",
    "group": "records of one person",
    "max_batch": "largest batch",
    "eps0": "ε₀",
    "delta0": "δ₀",
    "records": "records n",
    "target": "ε asked for",
    "radius": "radius",
    "loss": "loss on training records",
    "epoch": "epoch",
    "step": "step",
}
# letters of other alphabets, by the words that stand for them in text
LETTERS = {
    **{"epsilon": "ε", "eps": "ε", "delta": "δ", "Delta": "Δ", "sigma": "σ", "alpha": "α", "beta": "β", "lambda": "λ"},
    **{"theta": "θ", "Phi": "Φ", "rho": "ρ", "mu": "μ", "pi": "π", "xi": "ξ", "omega": "ω"},
}
SHORT = {
    **{"RDP": "Rényi DP", "WDP": "Wasserstein DP", "BDP": "Bayesian DP", "ADP": "approximate DP"},
    **{"PDP": "probabilistic DP", "CLT": "central limit", "KL": "Kullback–Leibler", "MLP": "multilayer perceptron"},
}
_BELOW, _ABOVE = (str.maketrans("0123456789-", digits) for digits in ("₀₁₂₃₄₅₆₇₈₉₋", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻"))
_SYMBOLS = {
    "scale": "b",
    "rate": "q",
    "lam": "λ",
    "first": "n",  # the first records of a data set
}


def symbols(text: str) -> str:
    """Return a text of a figure in the notation of all figures: letters and powers as such, abbreviations in full.

    Text with a formula of matplotlib, between dollar signs, is returned as it is.

    >>> symbols("eps=0.5, delta=1e-05, n=2^16"), symbols("6.94e-05"), symbols("(2, 1)-RDP"), symbols("W_p^p")
    ('ε=0.5, δ=10⁻⁵, n=2¹⁶', '6.94·10⁻⁵', '(2, 1)-Rényi DP', 'W$_{p}$$^{p}$')
    """
    if "$" in text:
        return text
    text = re.sub(rf"\b({'|'.join(SHORT)})\b", lambda match: SHORT[match[1]], text)
    text = re.sub(rf"(?<![A-Za-z])({'|'.join(LETTERS)})(\d*)(?![A-Za-z])", _letter, text)
    text = re.sub(r"(?<![\w.])(\d+(?:\.\d+)?|\.\d+)e([+-]?)0*(\d+)\b", _power_of_ten, text)
    text = re.sub(r"\^(?:(-?\d+)|\((-?\d+)\))(?![\d./])", lambda m: (m[1] or m[2]).translate(_ABOVE), text)
    text = re.sub(r"(\b[A-Za-z]|\|)_(\d+)", lambda match: match[1] + match[2].translate(_BELOW), text)
    text = re.sub(r"\^(?:(-?[A-Za-zα-ω]+)|\(([^()$]+)\))", _above, text)
    return re.sub(r"(\b[A-Za-z])_([A-Za-z]{1,2})\b", r"\1$_{\2}$", text)


def _letter(match: re.Match[str]) -> str:
    return LETTERS[match[1]] + match[2].translate(_BELOW)


def _above(match: re.Match[str]) -> str:
    return "$^{" + (match[1] or match[2]).replace(" ", r"\ ") + "}$"


def _power_of_ten(match: re.Match[str]) -> str:
    power = "10" + f"{match[2].strip('+')}{match[3]}".translate(_ABOVE)
    return power if match[1] == "1" else f"{match[1]}·{power}"


def accountant(text: str) -> str:
    """Return the display name of an accountant with its options, such as ``wdp:variant=table1,order=1``.

    >>> accountant("wdp:variant=table1,order=1")
    'Wasserstein DP, formula of Table 1, μ = 1'
    """
    base, _, options = text.partition(":")
    name = ACCOUNTANTS.get(base) or _of_plugin("accountants", base)
    words = [_option(base, *part.partition("=")[::2]) for part in options.split(",") if part]
    return ", ".join([name, *words])


def method(text: str) -> str:
    """Return the display name of a method, formula or case; text that is not listed is returned as it is.

    The case of a sweep, such as ``method = dann``, is its value where that is a name.

    >>> method("merf"), method("method = dp-dann"), method("loss = plain, α = 0.5")
    ('DP-MERF', 'DP-DANN', 'plain W₂, α = 0.5')
    """
    return ", ".join(_setting(part) for part in text.split(", "))


def _setting(text: str) -> str:
    name, sign, value = text.partition(" = ")
    if not sign:
        return METHODS.get(text, text)
    return accountant(value) if name == "accountant" else (LOSSES if name == "loss" else METHODS).get(value, text)


def loss(text: str) -> str:
    """Return the display name of a loss or a model; text that is not listed is returned as it is."""
    return LOSSES.get(text, method(text))


def key(text: str) -> str:
    """Return the name by which the palette gives a case its colour: ``dann`` for ``method = dann``, or the case."""
    value = text.partition(" = ")[2]
    return value if value in METHODS or value in LOSSES else text


def measure(column: str) -> str:
    """Return the display name of a column of measurements."""
    return MEASURES.get(column, column.replace("_", " "))


def axis(column: str) -> str:
    """Return the label of an axis for a column of a table."""
    return AXES.get(column) or measure(column)


def value(name: str, number: Any) -> str:
    """Return ``σ = 4`` for a parameter and its value, powers of ten and infinity by their signs.

    >>> value("delta", 1e-5), value("n", 65536), value("eps", "inf")
    ('δ = 10⁻⁵', 'n = 65536', 'ε = ∞')
    """
    return f"{_SYMBOLS.get(name) or symbols(name.replace('_', ' '))} = {_number(number)}"


def claim(word: Any) -> str:
    """Return a claim in words."""
    return CLAIMS.get(str(word), str(word))


def with_claim(label: str, row: Row, word: str | None) -> str:
    """Return a label with the claim, and with the privacy notion if that is not approximate DP and not in the label."""
    notion = NOTIONS.get(row.get("notion") or "approximate-dp", str(row.get("notion")))
    words = claim(word) if notion == NOTIONS["approximate-dp"] or notion in label else f"{notion}, {claim(word)}"
    return f"{label} ({words})" if label else words


def _option(base: str, name: str, text: str) -> str:
    form = OPTIONS.get((base, name)) or OPTIONS.get(("", name)) or f"{name} = {{}}"
    return form.format(VALUES.get(text, text))


def _number(number: Any) -> str:
    text = f"{number:g}" if isinstance(number, (int, float)) else str(number)
    return "∞" if text == "inf" else symbols(text)


def _of_plugin(folder: str, name: str) -> str:
    """The ``DISPLAY_NAME`` of a plug-in, or its own name if it has none or does not exist (in a table of the user)."""
    try:
        return str(getattr(registry.load(folder, name), "DISPLAY_NAME", name))
    except UsageError:
        return name
