"""The training engine; and, called as a function, the verb ``train`` (see ``wpriv.run.train.train``)."""

import importlib
import inspect
import sys
from types import ModuleType
from typing import Any


class _Verb(ModuleType):
    """Python makes a folder that was imported an attribute of its package: ``wpriv.train`` must be both this folder and the verb."""

    def __call__(self, *args: Any, **given: Any) -> Any:
        return _verb()(*args, **given)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(_verb())

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        return f"train{inspect.signature(_verb())}\n\n{inspect.getdoc(_verb())}"


def _verb() -> Any:
    return importlib.import_module("wpriv.run.train").train


sys.modules[__name__].__class__ = _Verb
