"""The training engine; and, called as a function, the verb ``train`` (see ``wpriv.run.train.train``)."""

import importlib
import sys
from types import ModuleType
from typing import Any


class _Verb(ModuleType):
    """Python makes a folder that was imported an attribute of its package: ``wpriv.train`` must be both this folder and the verb."""

    def __call__(self, *args: Any, **given: Any) -> Any:
        return importlib.import_module("wpriv.run.train").train(*args, **given)


sys.modules[__name__].__class__ = _Verb
