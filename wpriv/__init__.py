"""wpriv: how private is this, exactly?

The verbs of the command line are functions: ``budget``, ``calibrate``, ``compare``, ``check``, ``explain``, ``train``,
``audit``, ``privatize``, ``release``, ``report``. A process is made of steps, each a mechanism (``Gauss``,
``Laplace``, ...), how often it runs, and its sampling (``Poisson``, ``FixedSize``, ``Allocation``, ``Shuffle``);
``curve`` is its privacy curve.
Everything loads on first use, so that ``import wpriv`` costs nothing.
"""

from wpriv._version import __version__ as __version__

# files whose class has the same name in capitals
_MECHANISMS = (
    "above_threshold discrete_gauss discrete_laplace dp exponential gauss gauss_threshold gdp histogram laplace "
    "laplace_threshold local_gauss local_laplace matrix_gauss noisy_max permute_and_flip randomized_response rdp_curve "
    "top_k truncated_gauss truncated_laplace uniform zcdp"
)
# the public names of each module; __init__.pyi imports the same, for type checkers
_MODULES = {
    "accounting.basis": "InnerDistribution inner_distribution",
    "accounting.budget": "budget curve",
    "accounting.calibrate": "Calibration calibrate",
    "accounting.claims.decision": "Decision",
    "accounting.claims.explain": "Explanation explain",
    "accounting.claims.order": "PrivacyOrder privacy_order",
    "accounting.claims.verify_claim": "verify_claim",
    "accounting.comparison.compare": "Comparison compare",
    **{f"accounting.mechanisms.{name}": name.title().replace("_", "") for name in _MECHANISMS.split()},
    "checks.check": "check",
    "checks.verdict": "Verdict",
    "core.guarantee": "Curve Guarantee",
    "core.kinds": "Allocation FixedSize Poisson Sampling Shuffle",
    "core.mechanism": "Mechanism",
    "core.process": "Process Step",
    "core.repeats": "Repeats",
    "ledger.service": "Ledger",
    "numerics.bracket": "Bracket",
    "papers.mechanisms.projection": "Projection",
    "papers.mechanisms.wgrad": "Wgrad",
    "papers.sliced_distance": "PrivateDistance private_sliced_distance",
    "releases.outputs": "BinCounts Count Mean Quantile Sum",
    "releases.release": "Released release",
    "training.audit.audit": "Audit audit",
    "training.audit.scores": "ScoreAudit",
    "training.clipping.fix_network": "Fixed fix",
    "training.local.privatize": "Privatized privatize",
    "training.own_loop": "Loop training_loop",
    "training.reports.report": "Report report",
    "training.sweep": "SweepResult",
    "training.tasks._supervised": "image_features",
    "training.train": "train train_all",
    "training.trained": "Trained load",
}
_HOMES = {name: f"wpriv.{module}" for module, names in _MODULES.items() for name in names.split()}
__all__ = sorted(_HOMES)


# modules for other frameworks, which they import
_ADAPTERS = ("dp_accounting", "flower", "opacus", "sklearn")


def __getattr__(name: str) -> object:
    import importlib

    if name in _ADAPTERS:
        return importlib.import_module(f"wpriv.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'wpriv' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
