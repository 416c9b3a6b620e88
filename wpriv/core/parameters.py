"""Parameters of plug-ins: dataclass fields with a help text and a range, checked on creation."""

from __future__ import annotations

import dataclasses
import inspect
import re
import reprlib
from dataclasses import dataclass, field
from typing import Any, ClassVar

from wpriv.errors import UsageError
from wpriv.numerics.numbers import finite_number, number, typed, whole

MAX_COUNT = 2**40


def type_words(f: dataclasses.Field[object] | None) -> set[str]:
    """The words of a field's type, which is a class, or text after ``from __future__ import annotations``."""
    return set() if f is None else set(re.findall(r"\w+", str(f.type)))


def plugin_name(plugin: type) -> str:
    """The name users type: the module's file name with dashes."""
    return plugin.__module__.rpartition(".")[2].replace("_", "-")


def flag(name: str) -> str:
    """A mechanism's parameter as error messages name it (see ``wpriv.errors``)."""
    return f"`{name}`" if name in ("sigma", "scale", "sensitivity") else f"`{name}=...`"


def field_value(f: dataclasses.Field[object], value: object) -> Any:
    """A parameter in the type of its field; numbers may be text as users type it."""
    words = type_words(f)
    if words & {"str", "Path"} or (value is None and "None" in words):
        return value
    if words == {"bool"}:
        return typed(value, words, f.name)
    return whole(value, f.name) if "int" in words and "float" not in words else number(value, f.name)


def parameter(
    help: str,
    *,
    default: object = dataclasses.MISSING,
    minimum: float | None = None,
    exclusive_minimum: float | None = None,
    choices: tuple[str, ...] = (),
) -> Any:
    """A dataclass field of a plug-in: its help text and its range, checked by ``Parameters`` itself.

    Args:
        help: one line with the unit, as shown by ``--help`` and in tables.
        default: the value where the user gives none.
        minimum, exclusive_minimum: lower end of the allowed range, itself allowed or not.
        choices: the allowed words, where the parameter is one of a few.
    """
    return field(
        default=default,
        metadata={"help": help, "minimum": minimum, "exclusive_minimum": exclusive_minimum, "choices": choices},
    )


@dataclass(frozen=True)
class Parameters:
    """Base of a plug-in's frozen dataclass: fields made with ``parameter``, whose ranges are checked on creation.

    The docstring of a subclass gets a section ``Args`` with the text and the range of each field, and ``Raises``.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        fields = {name: value for base in reversed(cls.__mro__) for name, value in vars(base).items()}
        lines = [
            f"    {name}: {each.metadata['help']}{_range_words(each)}"
            for name, each in {**getattr(cls, "__dataclass_fields__", {}), **fields}.items()
            if isinstance(each, dataclasses.Field) and "help" in each.metadata
        ]
        if not lines or not cls.__doc__ or "Args:" in cls.__doc__:
            return
        text, source, rest = inspect.cleandoc(cls.__doc__).partition("\nSource:")
        raises = "Raises:\n    UsageError: a parameter is not a number of its range, or not one of its words."
        sections = "\n".join([text.rstrip(), "", "Args:", *lines, raises])
        cls.__doc__ = f"{sections}{source}{rest}" if source else sections

    def __post_init__(self) -> None:
        for f in dataclasses.fields(self):
            name, words, value = f.name, type_words(f), getattr(self, f.name)
            choices, minimum, exclusive_minimum = map(f.metadata.get, ("choices", "minimum", "exclusive_minimum"))
            if choices and value not in choices:
                raise UsageError(
                    f"{self.name}: {name} must be one of {', '.join(choices)}; found {reprlib.repr(value)}"
                )
            if words == {"bool"} and not isinstance(value, bool):
                raise UsageError(f"{self.name}: {name} must be true or false; found {reprlib.repr(value)}")
            if not words & {"int", "float"} or (value is None and "None" in words):
                continue
            value = finite_number(value, f"{self.name}: {name}", whole="float" not in words)
            if exclusive_minimum is not None and not value > exclusive_minimum:
                raise UsageError(f"{self.name}: {name} must be greater than {exclusive_minimum:g}; found {value:g}")
            if minimum is not None and not value >= minimum:
                raise UsageError(f"{self.name}: {name} must be at least {minimum:g}; found {value:g}")
            object.__setattr__(self, name, value)

    @property
    def name(self) -> str:
        """The name users type: the module's file name with dashes."""
        return plugin_name(type(self))


def _range_words(each: dataclasses.Field[object]) -> str:
    """The range and the default of a field, as its help text goes on."""
    words = []
    if each.metadata["choices"]:
        words.append(f"one of {', '.join(each.metadata['choices'])}")
    if each.metadata["minimum"] is not None:
        words.append(f"at least {each.metadata['minimum']:g}")
    if each.metadata["exclusive_minimum"] is not None:
        words.append(f"greater than {each.metadata['exclusive_minimum']:g}")
    if each.default is not dataclasses.MISSING and each.default is not None:
        words.append(f"{each.default} by default")
    return f" ({', '.join(words)})" if words else ""


@dataclass(frozen=True)
class PluginClass(Parameters):
    """A plug-in that is a class in place of a file: its instances are its parameters; ``name`` is what users type."""

    Params: ClassVar[type[Parameters]]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.Params = cls
