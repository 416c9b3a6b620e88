"""wpriv: how private is this, exactly?

The verbs of the command line are functions: ``budget``, ``calibrate``, ``compare``, ``train``, ``audit``,
``privatize``, ``report``. A process is made of steps, each a mechanism (``Gauss``, ``Laplace``, ...), how often it
runs, and its sampling (``Poisson``, ``FixedSize``, ``Allocation``, ``Shuffle``); ``curve`` is its privacy curve.
Everything loads on first use, so that ``import wpriv`` costs nothing.
"""

from wpriv._version import __version__ as __version__

TYPE_CHECKING = False  # type checkers take it as true; importing typing would take a quarter of this module's time

if TYPE_CHECKING:
    from wpriv.accounting.budget import budget, curve
    from wpriv.accounting.calibrate import Calibration, calibrate
    from wpriv.accounting.claims.decision import Decision
    from wpriv.accounting.claims.order import PrivacyOrder, privacy_order
    from wpriv.accounting.claims.verify_claim import verify_claim
    from wpriv.accounting.comparison.compare import compare
    from wpriv.accounting.mechanisms.discrete_gauss import DiscreteGauss
    from wpriv.accounting.mechanisms.discrete_laplace import DiscreteLaplace
    from wpriv.accounting.mechanisms.dp import Dp
    from wpriv.accounting.mechanisms.exponential import Exponential
    from wpriv.accounting.mechanisms.gauss import Gauss
    from wpriv.accounting.mechanisms.gauss_threshold import GaussThreshold
    from wpriv.accounting.mechanisms.gdp import Gdp
    from wpriv.accounting.mechanisms.histogram import Histogram
    from wpriv.accounting.mechanisms.laplace import Laplace
    from wpriv.accounting.mechanisms.laplace_threshold import LaplaceThreshold
    from wpriv.accounting.mechanisms.local_gauss import LocalGauss
    from wpriv.accounting.mechanisms.local_laplace import LocalLaplace
    from wpriv.accounting.mechanisms.matrix_gauss import MatrixGauss
    from wpriv.accounting.mechanisms.randomized_response import RandomizedResponse
    from wpriv.accounting.mechanisms.rdp_curve import RdpCurve
    from wpriv.accounting.mechanisms.truncated_gauss import TruncatedGauss
    from wpriv.accounting.mechanisms.truncated_laplace import TruncatedLaplace
    from wpriv.accounting.mechanisms.uniform import Uniform
    from wpriv.accounting.mechanisms.zcdp import Zcdp
    from wpriv.core.guarantee import Curve, Guarantee
    from wpriv.core.kinds import Allocation, FixedSize, Poisson, Sampling, Shuffle
    from wpriv.core.mechanism import Mechanism
    from wpriv.core.process import Process, Step
    from wpriv.core.repeats import Repeats
    from wpriv.numerics.bracket import Bracket
    from wpriv.papers.mechanisms.projection import Projection
    from wpriv.papers.mechanisms.wgrad import Wgrad
    from wpriv.training.audit.audit import audit
    from wpriv.training.local.privatize import privatize
    from wpriv.training.own_loop import training_loop
    from wpriv.training.reports.report import report
    from wpriv.training.tasks._image_features import image_features
    from wpriv.training.train import train, train_all

_HOMES = {
    "wpriv.core.guarantee": ("Curve", "Guarantee"),
    "wpriv.numerics.bracket": ("Bracket",),
    "wpriv.core.mechanism": ("Mechanism",),
    "wpriv.core.process": ("Process", "Step"),
    "wpriv.core.repeats": ("Repeats",),
    "wpriv.core.kinds": ("Allocation", "FixedSize", "Poisson", "Sampling", "Shuffle"),
    "wpriv.accounting.mechanisms.discrete_gauss": ("DiscreteGauss",),
    "wpriv.accounting.mechanisms.discrete_laplace": ("DiscreteLaplace",),
    "wpriv.accounting.mechanisms.dp": ("Dp",),
    "wpriv.accounting.mechanisms.exponential": ("Exponential",),
    "wpriv.accounting.mechanisms.gauss": ("Gauss",),
    "wpriv.accounting.mechanisms.gauss_threshold": ("GaussThreshold",),
    "wpriv.accounting.mechanisms.gdp": ("Gdp",),
    "wpriv.accounting.mechanisms.histogram": ("Histogram",),
    "wpriv.accounting.mechanisms.laplace": ("Laplace",),
    "wpriv.accounting.mechanisms.laplace_threshold": ("LaplaceThreshold",),
    "wpriv.accounting.mechanisms.local_gauss": ("LocalGauss",),
    "wpriv.accounting.mechanisms.local_laplace": ("LocalLaplace",),
    "wpriv.accounting.mechanisms.matrix_gauss": ("MatrixGauss",),
    "wpriv.papers.mechanisms.projection": ("Projection",),
    "wpriv.accounting.mechanisms.randomized_response": ("RandomizedResponse",),
    "wpriv.accounting.mechanisms.rdp_curve": ("RdpCurve",),
    "wpriv.accounting.mechanisms.truncated_gauss": ("TruncatedGauss",),
    "wpriv.accounting.mechanisms.truncated_laplace": ("TruncatedLaplace",),
    "wpriv.accounting.mechanisms.uniform": ("Uniform",),
    "wpriv.papers.mechanisms.wgrad": ("Wgrad",),
    "wpriv.accounting.mechanisms.zcdp": ("Zcdp",),
    "wpriv.accounting.budget": ("budget", "curve"),
    "wpriv.training.audit.audit": ("audit",),
    "wpriv.accounting.calibrate": ("Calibration", "calibrate"),
    "wpriv.accounting.claims.order": ("PrivacyOrder", "privacy_order"),
    "wpriv.accounting.claims.verify_claim": ("Decision", "verify_claim"),
    "wpriv.accounting.comparison.compare": ("compare",),
    "wpriv.training.local.privatize": ("privatize",),
    "wpriv.training.reports.report": ("report",),
    "wpriv.training.own_loop": ("training_loop",),
    "wpriv.training.train": ("train", "train_all"),
    "wpriv.training.tasks._image_features": ("image_features",),
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
