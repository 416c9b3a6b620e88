"""wpriv: how private is this, exactly?

The verbs of the command line are functions: ``budget``, ``calibrate``, ``compare``, ``explain``, ``train``, ``audit``,
``privatize``, ``report``. A process is made of steps, each a mechanism (``Gauss``, ``Laplace``, ...), how often it
runs, and its sampling (``Poisson``, ``FixedSize``, ``Allocation``, ``Shuffle``); ``curve`` is its privacy curve.
Everything loads on first use, so that ``import wpriv`` costs nothing.
"""

from wpriv._version import __version__ as __version__

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
    "accounting.mechanisms.discrete_gauss": "DiscreteGauss",
    "accounting.mechanisms.discrete_laplace": "DiscreteLaplace",
    "accounting.mechanisms.dp": "Dp",
    "accounting.mechanisms.exponential": "Exponential",
    "accounting.mechanisms.gauss": "Gauss",
    "accounting.mechanisms.gauss_threshold": "GaussThreshold",
    "accounting.mechanisms.gdp": "Gdp",
    "accounting.mechanisms.histogram": "Histogram",
    "accounting.mechanisms.laplace": "Laplace",
    "accounting.mechanisms.laplace_threshold": "LaplaceThreshold",
    "accounting.mechanisms.local_gauss": "LocalGauss",
    "accounting.mechanisms.local_laplace": "LocalLaplace",
    "accounting.mechanisms.matrix_gauss": "MatrixGauss",
    "accounting.mechanisms.randomized_response": "RandomizedResponse",
    "accounting.mechanisms.rdp_curve": "RdpCurve",
    "accounting.mechanisms.truncated_gauss": "TruncatedGauss",
    "accounting.mechanisms.truncated_laplace": "TruncatedLaplace",
    "accounting.mechanisms.uniform": "Uniform",
    "accounting.mechanisms.zcdp": "Zcdp",
    "core.guarantee": "Curve Guarantee",
    "core.kinds": "Allocation FixedSize Poisson Sampling Shuffle",
    "core.mechanism": "Mechanism",
    "core.process": "Process Step",
    "core.repeats": "Repeats",
    "numerics.bracket": "Bracket",
    "papers.mechanisms.projection": "Projection",
    "papers.mechanisms.wgrad": "Wgrad",
    "papers.sliced_distance": "PrivateDistance private_sliced_distance",
    "training.audit.audit": "Audit audit",
    "training.local.privatize": "Privatized privatize",
    "training.own_loop": "Loop training_loop",
    "training.reports.report": "Report report",
    "training.sweep": "SweepResult",
    "training.tasks._image_features": "image_features",
    "training.train": "train train_all",
    "training.trained": "Trained",
}
_HOMES = {name: f"wpriv.{module}" for module, names in _MODULES.items() for name in names.split()}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'wpriv' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
