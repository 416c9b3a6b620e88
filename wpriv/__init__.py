"""wpriv: how private is this, exactly?

The verbs of the command line are functions of the same names: ``wpriv.budget``, ``wpriv.calibrate``, ``wpriv.compare``,
``wpriv.privatize``, ``wpriv.train``. They load on first use, so that ``import wpriv`` costs nothing.
"""

from wpriv._version import __version__ as __version__

TYPE_CHECKING = (
    False  # type checkers take it as true; the module typing would be a quarter of the time to load this one
)
__all__ = ["budget", "calibrate", "compare", "privatize", "train"]

if TYPE_CHECKING:
    from wpriv.run.accounting.budget import budget
    from wpriv.run.accounting.calibrate import calibrate
    from wpriv.run.comparison.compare import compare
    from wpriv.run.local.privatize import privatize
    from wpriv.run.training.train import train
else:
    _HOMES = {
        "budget": "wpriv.run.accounting.budget",
        "calibrate": "wpriv.run.accounting.calibrate",
        "compare": "wpriv.run.comparison.compare",
        "privatize": "wpriv.run.local.privatize",
        "train": "wpriv.run.training.train",
    }

    def __getattr__(name: str) -> object:
        if name in _HOMES:
            import importlib

            return getattr(importlib.import_module(_HOMES[name]), name)
        raise AttributeError(f"module 'wpriv' has no attribute {name!r}")
