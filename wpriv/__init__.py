"""wpriv: how private is this, exactly?

The verbs of the command line are functions of the same names: ``wpriv.budget``, ``wpriv.calibrate``, ``wpriv.compare``,
``wpriv.privatize``, ``wpriv.train`` (which is also the folder of the training engine). They load on first use, so that
``import wpriv`` costs nothing.
"""

__version__ = "0.1.0"
TYPE_CHECKING = False  # type checkers take it as true; the module typing would be a quarter of the time to load this one
__all__ = ["budget", "calibrate", "compare", "privatize", "train"]

if TYPE_CHECKING:
    from wpriv.run.budget import budget
    from wpriv.run.calibrate import calibrate
    from wpriv.run.compare import compare
    from wpriv.run.privatize import privatize
    from wpriv.run.train import train
else:

    def __getattr__(name: str) -> object:
        if name in __all__:
            import importlib

            if name == "train":
                return importlib.import_module("wpriv.train")
            return getattr(importlib.import_module(f"wpriv.run.{name}"), name)
        raise AttributeError(f"module 'wpriv' has no attribute {name!r}")
