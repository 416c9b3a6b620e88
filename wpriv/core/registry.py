"""Folders as registries: a file's name IS the name users type; adding a plug-in is one new file.

The plug-ins of a kind lie in the folders of all wings that have some. Another installed package adds its own by entry
points: in the group ``wpriv.mechanisms``, the name that users type and the module.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import os
import pkgutil
import reprlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

from wpriv.errors import UnknownName, UsageError
from wpriv.hints import ALIASES, LISTS, SYNONYMS, did_you_mean, plain
from wpriv.numerics.numbers import number, shown

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from wpriv.core.mechanism import Mechanism

# the folders of each kind, from the package's root
FOLDERS = {
    "mechanisms": ("accounting.mechanisms", "papers.mechanisms"),
    "accountants": ("accounting.accountants", "papers.accountants"),
    "data": ("training.data",),
    "models": ("training.models",),
    "tasks": ("training.tasks", "papers.tasks"),
    "tables": ("accounting.tables", "papers.tables"),
    "figures": ("figures",),
    "readers": ("checks.readers",),
}
# kinds whose names are easily confused, with the argument that takes a name of each
_ARGUMENTS = {"mechanisms": "mech", "accountants": "accountant"}


def names(kind: str) -> list[str]:
    """List the names of a kind of plug-in, sorted: files, what packages declare, and entry points. None is imported."""
    return sorted({*_own(kind), *_entry_points(kind)})


def known(kind: str, name: str) -> bool:
    """Whether there is a plug-in of that name; other installed packages are asked for names that are not here."""
    return _plain(kind, name) in _own(kind) or name in _entry_points(kind)


def _plain(kind: str, name: str) -> str:
    """The name of a plug-in here that a synonym stands for; the word itself where it is none."""
    word = plain(kind, name) if kind in SYNONYMS and isinstance(name, str) else name
    return word if word in _own(kind) else name


def _own(kind: str) -> dict[str, str]:
    """The folder of every plug-in of this package, by name."""
    homes: dict[str, str] = {}
    for folder in FOLDERS[kind]:
        paths = importlib.import_module(f"wpriv.{folder}").__path__
        dated = [(path, os.path.getmtime(path) if os.path.isdir(path) else 0.0) for path in paths]
        homes |= dict.fromkeys([*_names_of_files(*dated), *_declared(folder)], folder)
    return homes


@cache
def _names_of_files(*folders: tuple[str, float]) -> list[str]:
    """The names that the modules in folders stand for; each folder with the time of its last change."""
    modules = (info.name for info in pkgutil.iter_modules([path for path, _ in folders]))
    return [name.replace("_", "-") for name in modules if not name.startswith("_")]


def _declared(folder: str) -> Mapping[str, object]:
    """Plug-ins without a file of their own, by name: ``DECLARED`` of the folder's ``__init__.py``, if it has one."""
    declared: Mapping[str, object] = getattr(importlib.import_module(f"wpriv.{folder}"), "DECLARED", {})
    return declared


@cache
def _entry_points(kind: str) -> Mapping[str, EntryPoint]:
    """The entry points of other installed packages in the group of a kind, by name."""
    from importlib.metadata import entry_points  # takes 30 ms, which names of this package do without

    return {point.name: point for point in entry_points(group=f"wpriv.{kind}")}


def module_of(kind: str, name: str) -> str | None:
    """The full name of a plug-in's module, which is not imported; None of one that a package declares."""
    folder = _own(kind).get(name)
    if folder is None:
        return _entry_points(kind)[name].module
    return None if name in _declared(folder) else f"wpriv.{folder}.{name.replace('-', '_')}"


def load(kind: str, name: str) -> Any:
    """The module of a plug-in, or the object of a package; UsageError suggests the nearest name."""
    noun = "data set" if kind == "data" else kind.rstrip("s")
    if not isinstance(name, str):
        raise UsageError(
            f"the name of a {noun} must be text; found {reprlib.repr(name)}. `wpriv list {LISTS[noun]}` names all"
        )
    name = _plain(kind, name)
    folder = _own(kind).get(name, "")
    if folder:
        module = module_of(kind, name)
        return _declared(folder)[name] if module is None else importlib.import_module(module)
    if name in _entry_points(kind):
        return _entry_points(kind)[name].load()
    raise UnknownName(noun, name, names(kind), hint=_elsewhere(kind, name))


def _elsewhere(kind: str, name: str) -> str:
    """A hint where a mechanism was given as an accountant, or vice versa; aliases in ``hints`` take precedence."""
    if kind not in _ARGUMENTS or (name in ALIASES and set(ALIASES[name][0]) & set(names(kind))):
        return ""
    other = next(each for each in _ARGUMENTS if each != kind)
    if name not in names(other):
        return ""
    article = "an" if other == "accountants" else "a"
    return f": it is the name of {article} {other.removesuffix('s')} (`{_ARGUMENTS[other]}='{name}'`)."


def params(kind: str, name: str, given: Mapping[str, object]) -> Any:
    """Build the ``Params`` of a plug-in by name; UsageError: unknown (with a suggestion), missing, out of range."""
    cls = load(kind, name).Params
    fields_of(cls, name, given)
    return cls(**given)


def fields_of(
    plugin: type, name: str, given: Mapping[str, object], others: Sequence[str] = (), shown: Callable[[str], str] = str
) -> dict[str, dataclasses.Field[object]]:
    """The parameters of a plug-in by name, after checking that ``given`` has all it needs and else ``others``."""
    fields = {f.name: f for f in dataclasses.fields(plugin)}
    for key in given:
        if key not in fields and key not in others:
            known = f"Its parameters: {', '.join(fields)}" if fields else "It has none"
            near = did_you_mean(str(key), [*fields, *others]) or "."
            raise UsageError(f"{name} has no parameter {str(key)[:60]!r}{near} {known}")
    for key, f in fields.items():
        if key not in given and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING:
            meaning = f.metadata.get("help", "a parameter of the mechanism")
            raise UsageError(f"{name} needs {shown(key)} ({meaning}); found none")
    return fields


def mechanism(mech: object) -> type[Mechanism]:
    """The class of the mechanism of that name, or ``mech`` itself where it is such a class.

    Raises:
        UsageError: it is neither, or there is no mechanism of that name.
    """
    from wpriv.core.mechanism import Mechanism

    if isinstance(mech, type) and issubclass(mech, Mechanism):
        return mech
    if not isinstance(mech, str):
        raise UsageError(
            f"a step needs a mechanism, as in `mech='gauss'`; found {shown(mech)}. `wpriv list mechanisms` names all"
        )
    return _mechanism(mech)


@cache
def _mechanism(name: str) -> type[Mechanism]:
    from wpriv.core.mechanism import Mechanism

    module = load("mechanisms", name)
    for _, cls in inspect.getmembers(module, inspect.isclass):
        if issubclass(cls, Mechanism) and cls.__module__ == module.__name__:
            return cls
    raise TypeError(f"{module.__name__} defines no Mechanism")


def accountant(text: str) -> tuple[ModuleType, dict[str, str | float]]:
    """Load an accountant given as ``wdp`` or ``wdp:order=16,variant=code``: its module and its options.

    Options are the keyword parameters of its ``account`` other than ``tol``, in the types of their defaults.

    Raises:
        UsageError: no such accountant or option, or a value of another type.
    """
    name, given = split(text) if isinstance(text, str) else (text, {})
    module = load("accountants", name)
    return module, typed(name, given, options(module))


def plain_accountant(text: str) -> str:
    """The text of an accountant, with or without options, with the name here in the place of a synonym."""
    name, colon, rest = text.partition(":")
    return plain("accountants", name) + colon + rest


def options(module: ModuleType) -> dict[str, str | float]:
    """The options of an accountant with their defaults."""
    parameters = inspect.signature(module.account).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY and p.name != "tol"}


def split(text: str) -> tuple[str, dict[str, str]]:
    """Split ``name:key=value,key=value`` into the name and its options, all as text."""
    name, colon, rest = text.partition(":")
    pairs = [part.partition("=") for part in rest.split(",")] if colon else []
    for key, equals, value in pairs:
        if not (key.strip() and equals and value.strip()):
            raise UsageError(f"options are written as {name}:key=value,key=value; found {text[:80]!r}")
    return name.strip(), {key.strip(): value.strip() for key, _, value in pairs}


def typed(name: str, given: Mapping[str, object], defaults: Mapping[str, object]) -> dict[str, str | float]:
    """Convert options to the types of their defaults: text, or a finite number."""
    values: dict[str, str | float] = {}
    for key, value in given.items():
        if key not in defaults:
            known = f"Its options: {', '.join(defaults)}" if defaults else "It has none"
            raise UsageError(f"{name} has no option {key[:60]!r}{did_you_mean(key, list(defaults)) or '.'} {known}")
        if isinstance(defaults[key], str):
            values[key] = str(value)
            continue
        values[key] = number(value, f"{name}: {key}")
    return values
