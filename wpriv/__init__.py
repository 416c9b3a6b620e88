"""wpriv: how private is this, exactly?

The verbs of the command line are functions: ``budget``, ``calibrate``, ``compare``, ``train``, ``audit``,
``privatize``, ``report``. A process is made of steps, each a mechanism (``Gauss``, ``Laplace``, ...), how often it
runs, and its sampling (``Poisson``, ``FixedSize``, ``Allocation``, ``Shuffle``); ``curve`` is its privacy curve.
Everything loads on first use, so that ``import wpriv`` costs nothing.
"""

from wpriv._version import __version__ as __version__

TYPE_CHECKING = False  # type checkers take it as true; importing typing would take a quarter of this module's time

if TYPE_CHECKING:
    from wpriv.core.guarantee import Curve, Guarantee
    from wpriv.core.mechanism import Mechanism
    from wpriv.core.process import Process, Step
    from wpriv.core.repeats import Repeats
    from wpriv.core.sampling.kinds import Allocation, FixedSize, Poisson, Sampling, Shuffle
    from wpriv.mechanisms.discrete_gauss import DiscreteGauss
    from wpriv.mechanisms.discrete_laplace import DiscreteLaplace
    from wpriv.mechanisms.dp import Dp
    from wpriv.mechanisms.exponential import Exponential
    from wpriv.mechanisms.gauss import Gauss
    from wpriv.mechanisms.gauss_threshold import GaussThreshold
    from wpriv.mechanisms.gdp import Gdp
    from wpriv.mechanisms.histogram import Histogram
    from wpriv.mechanisms.laplace import Laplace
    from wpriv.mechanisms.laplace_threshold import LaplaceThreshold
    from wpriv.mechanisms.local_gauss import LocalGauss
    from wpriv.mechanisms.local_laplace import LocalLaplace
    from wpriv.mechanisms.matrix_gauss import MatrixGauss
    from wpriv.mechanisms.projection import Projection
    from wpriv.mechanisms.randomized_response import RandomizedResponse
    from wpriv.mechanisms.rdp_curve import RdpCurve
    from wpriv.mechanisms.truncated_gauss import TruncatedGauss
    from wpriv.mechanisms.truncated_laplace import TruncatedLaplace
    from wpriv.mechanisms.uniform import Uniform
    from wpriv.mechanisms.wgrad import Wgrad
    from wpriv.mechanisms.zcdp import Zcdp
    from wpriv.numerics.bracket import Bracket
    from wpriv.run.accounting.budget import budget, curve
    from wpriv.run.accounting.calibrate import Calibration, calibrate
    from wpriv.run.audit.audit import audit
    from wpriv.run.claims.order import PrivacyOrder, privacy_order
    from wpriv.run.claims.verify_claim import Decision, verify_claim
    from wpriv.run.comparison.compare import compare
    from wpriv.run.local.privatize import privatize
    from wpriv.run.results.report import report
    from wpriv.run.training.own_loop import training_loop
    from wpriv.run.training.train import train, train_all
    from wpriv.tasks._image_features import image_features

_HOMES = {
    "wpriv.core.guarantee": ("Curve", "Guarantee"),
    "wpriv.numerics.bracket": ("Bracket",),
    "wpriv.core.mechanism": ("Mechanism",),
    "wpriv.core.process": ("Process", "Step"),
    "wpriv.core.repeats": ("Repeats",),
    "wpriv.core.sampling.kinds": ("Allocation", "FixedSize", "Poisson", "Sampling", "Shuffle"),
    "wpriv.mechanisms.discrete_gauss": ("DiscreteGauss",),
    "wpriv.mechanisms.discrete_laplace": ("DiscreteLaplace",),
    "wpriv.mechanisms.dp": ("Dp",),
    "wpriv.mechanisms.exponential": ("Exponential",),
    "wpriv.mechanisms.gauss": ("Gauss",),
    "wpriv.mechanisms.gauss_threshold": ("GaussThreshold",),
    "wpriv.mechanisms.gdp": ("Gdp",),
    "wpriv.mechanisms.histogram": ("Histogram",),
    "wpriv.mechanisms.laplace": ("Laplace",),
    "wpriv.mechanisms.laplace_threshold": ("LaplaceThreshold",),
    "wpriv.mechanisms.local_gauss": ("LocalGauss",),
    "wpriv.mechanisms.local_laplace": ("LocalLaplace",),
    "wpriv.mechanisms.matrix_gauss": ("MatrixGauss",),
    "wpriv.mechanisms.projection": ("Projection",),
    "wpriv.mechanisms.randomized_response": ("RandomizedResponse",),
    "wpriv.mechanisms.rdp_curve": ("RdpCurve",),
    "wpriv.mechanisms.truncated_gauss": ("TruncatedGauss",),
    "wpriv.mechanisms.truncated_laplace": ("TruncatedLaplace",),
    "wpriv.mechanisms.uniform": ("Uniform",),
    "wpriv.mechanisms.wgrad": ("Wgrad",),
    "wpriv.mechanisms.zcdp": ("Zcdp",),
    "wpriv.run.accounting.budget": ("budget", "curve"),
    "wpriv.run.audit.audit": ("audit",),
    "wpriv.run.accounting.calibrate": ("Calibration", "calibrate"),
    "wpriv.run.claims.order": ("PrivacyOrder", "privacy_order"),
    "wpriv.run.claims.verify_claim": ("Decision", "verify_claim"),
    "wpriv.run.comparison.compare": ("compare",),
    "wpriv.run.local.privatize": ("privatize",),
    "wpriv.run.results.report": ("report",),
    "wpriv.run.training.own_loop": ("training_loop",),
    "wpriv.run.training.train": ("train", "train_all"),
    "wpriv.tasks._image_features": ("image_features",),
}
_MODULES = {name: module for module, names in _HOMES.items() for name in names}
__all__ = [
    "Allocation",
    "Bracket",
    "Calibration",
    "Curve",
    "Decision",
    "DiscreteGauss",
    "DiscreteLaplace",
    "Dp",
    "Exponential",
    "FixedSize",
    "Gauss",
    "GaussThreshold",
    "Gdp",
    "Guarantee",
    "Histogram",
    "Laplace",
    "LaplaceThreshold",
    "LocalGauss",
    "LocalLaplace",
    "MatrixGauss",
    "Mechanism",
    "Poisson",
    "PrivacyOrder",
    "Process",
    "Projection",
    "RandomizedResponse",
    "RdpCurve",
    "Repeats",
    "Sampling",
    "Shuffle",
    "Step",
    "TruncatedGauss",
    "TruncatedLaplace",
    "Uniform",
    "Wgrad",
    "Zcdp",
    "audit",
    "budget",
    "calibrate",
    "compare",
    "curve",
    "image_features",
    "privacy_order",
    "privatize",
    "report",
    "train",
    "train_all",
    "training_loop",
    "verify_claim",
]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module 'wpriv' has no attribute {name!r}")
        import importlib

        return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
