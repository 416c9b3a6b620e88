"""Folders as registries: a file's name IS the name users type; adding a plug-in is one new file."""

from __future__ import annotations

import difflib
import importlib
import inspect
import pkgutil
import reprlib
from functools import cache
from types import ModuleType

from wpriv.errors import UsageError


def names(folder: str) -> list[str]:
    """The names in ``wpriv/<folder>``, sorted; no plug-in is imported."""
    package = importlib.import_module(f"wpriv.{folder}")
    found = (info.name for info in pkgutil.iter_modules(package.__path__))
    return sorted(name.replace("_", "-") for name in found if not name.startswith("_"))


def load(folder: str, name: str) -> ModuleType:
    """The module of one plug-in.

    Raises:
        UsageError: there is none of that name; the message lists those there are, the nearest first.
    """
    known = names(folder)
    if not isinstance(name, str):
        raise UsageError(f"the name of a {folder.rstrip('s')} must be text; found {reprlib.repr(name)}. Known: {', '.join(known)}")
    if name not in known:
        raise UsageError(f"no {folder.rstrip('s')} called {name[:60]!r}{did_you_mean(name, known) or '.'} Known: {', '.join(known)}")
    return importlib.import_module(f"wpriv.{folder}.{name.replace('-', '_')}")


@cache
def mechanism(name: str) -> type:
    """The Mechanism class defined in ``wpriv/mechanisms/<name>.py``."""
    from wpriv.core.process import Mechanism

    module = load("mechanisms", name)
    for _, cls in inspect.getmembers(module, inspect.isclass):
        if issubclass(cls, Mechanism) and cls.__module__ == module.__name__:
            return cls
    raise TypeError(f"{module.__name__} defines no Mechanism")


def did_you_mean(word: str, known: list[str]) -> str:
    """'; did you mean ...?' for the nearest known word, or nothing."""
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else ""
