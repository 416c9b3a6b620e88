"""Folders as registries: a file's name IS the name users type; adding a plug-in is one new file."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
import reprlib
from collections.abc import Mapping
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

from wpriv.errors import UsageError
from wpriv.hints import ALIASES, did_you_mean
from wpriv.numerics.parse_numbers import number

if TYPE_CHECKING:
    from wpriv.core.mechanism import Mechanism

# names that are easily taken for each other, and how each kind is given
_GIVEN = {"mechanisms": "--mech", "accountants": "--accountant"}


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
    known, kind = names(folder), "data set" if folder == "data" else folder.rstrip("s")
    if not isinstance(name, str):
        raise UsageError(f"the name of a {kind} must be text; found {reprlib.repr(name)}. Known: {', '.join(known)}")
    if name not in known:
        hint = _elsewhere(folder, name) or did_you_mean(name, known) or "."
        raise UsageError(f"no {kind} called {name[:60]!r}{hint} Known: {', '.join(known)}")
    return importlib.import_module(f"wpriv.{folder}.{name.replace('-', '_')}")


def _elsewhere(folder: str, name: str) -> str:
    """A hint where a mechanism was given as an accountant, or the other way round; the aliases of ``hints`` come first."""
    if folder not in _GIVEN or (name in ALIASES and set(ALIASES[name][0]) & set(names(folder))):
        return ""
    other = next(kind for kind in _GIVEN if kind != folder)
    return (
        f": it is the name of {'an' * (other[0] == 'a') or 'a'} {other[:-1]} ({_GIVEN[other]} {name})."
        if name in names(other)
        else ""
    )


def params(folder: str, name: str, given: Mapping[str, Any]) -> Any:
    """The ``Params`` of a plug-in, from its parameters by name.

    Raises:
        UsageError: no such plug-in or parameter (with a suggestion), one that is missing, or a value out of range.
    """
    cls = load(folder, name).Params
    own = {f.name: f for f in dataclasses.fields(cls)}
    for key in given:
        if key not in own:
            known = f"Its parameters: {', '.join(own)}" if own else "It has none"
            raise UsageError(
                f"{name} has no parameter {str(key)[:60]!r}{did_you_mean(str(key), list(own)) or '.'} {known}"
            )
    missing = [f for f in own.values() if f.default is dataclasses.MISSING and f.name not in given]
    if missing:
        raise UsageError(f"{name} needs {missing[0].name} ({missing[0].metadata['help']}); found none")
    return cls(**given)


@cache
def mechanism(name: str) -> type[Mechanism]:
    """The Mechanism class defined in ``wpriv/mechanisms/<name>.py``."""
    from wpriv.core.mechanism import Mechanism

    module = load("mechanisms", name)
    for _, cls in inspect.getmembers(module, inspect.isclass):
        if issubclass(cls, Mechanism) and cls.__module__ == module.__name__:
            return cls
    raise TypeError(f"{module.__name__} defines no Mechanism")


def accountant(text: str) -> tuple[ModuleType, dict[str, Any]]:
    """The module and the options of an accountant named as ``wdp`` or ``wdp:order=16,variant=code``.

    Options are the keyword parameters of its ``account`` beside ``tol``, in the type of their defaults.

    Raises:
        UsageError: no such accountant or option, or a value of another type.
    """
    name, given = split(text) if isinstance(text, str) else (text, {})
    module = load("accountants", name)
    return module, typed(name, given, options(module))


def options(module: ModuleType) -> dict[str, Any]:
    """The options of an accountant with their defaults."""
    found = inspect.signature(module.account).parameters.values()
    return {p.name: p.default for p in found if p.kind is p.KEYWORD_ONLY and p.name != "tol"}


def split(text: str) -> tuple[str, dict[str, str]]:
    """``name:key=value,key=value`` as the name and its options, both as text."""
    name, colon, rest = text.partition(":")
    pairs = [part.partition("=") for part in rest.split(",")] if colon else []
    for key, equals, value in pairs:
        if not (key.strip() and equals and value.strip()):
            raise UsageError(f"options are written as {name}:key=value,key=value; found {text[:80]!r}")
    return name.strip(), {key.strip(): value.strip() for key, _, value in pairs}


def typed(name: str, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Options in the type of their defaults: a word, or a finite number."""
    found: dict[str, Any] = {}
    for key, value in given.items():
        if key not in defaults:
            known = f"Its options: {', '.join(defaults)}" if defaults else "It has none"
            raise UsageError(f"{name} has no option {key[:60]!r}{did_you_mean(key, list(defaults)) or '.'} {known}")
        if isinstance(defaults[key], str):
            found[key] = str(value)
            continue
        found[key] = number(value, f"{name}: {key}")
    return found
