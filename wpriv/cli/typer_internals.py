"""The uses of Typer that its documentation does not cover.

Typer keeps a copy of click since 0.26 and depends on click before; this file is what hides the difference from the
other commands. Tried with Typer 0.19.0, 0.21.1, 0.23.1, 0.25.0, 0.26.0, 0.26.8, 0.27.0 and 0.29.2.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, get_type_hints

import typer

# Typer exports the errors of its parser, but not their base class
ParserError: type[Exception] = next(cls for cls in typer.BadParameter.__mro__ if cls.__name__ == "ClickException")


def option(metavar: str, help: str, *names: str, **more: Any) -> Any:
    """An option with a value, called as its parameter unless it has other ``names``."""
    return typer.Option(*names, metavar=metavar, help=help, **more)


def switch(name: str, help: str) -> Any:
    """An option without a value."""
    return typer.Option(name, help=help)


def argument(metavar: str, help: str) -> Any:
    """An argument of a command."""
    return typer.Argument(metavar=metavar, help=help)


class _TextAsTyped:
    """A reader of a flag's value that returns it unchanged."""

    def coerce(self, value: Any, **_: Any) -> Any:
        return value


def keep_text(command: Any, settings: dict[str, Any]) -> None:
    """Make a command take the text of its flags as typed.

    Typer 0.26 and later pass every value, also text, through a pydantic adapter. Loading pydantic takes a third of the
    start time.
    """
    for parameter in [*command.params, command.get_help_option(typer.Context(command, **settings))]:
        if getattr(getattr(parameter, "type_descriptor", None), "annotation", None) in (str, list[str], bool):
            parameter._runtime_param = _TextAsTyped()


def expand_record(
    name: str, record: type, option: Callable[[str], Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that gives a command one flag for each field of a dataclass, in place of one parameter.

    Typer reads flags from ``inspect.signature``, which honours ``__signature__`` (PEP 362), and from
    ``__annotations__``.

    Args:
        name: the parameter of the command that receives the record.
        record: a dataclass. option: the flag of a field.
    """
    types = get_type_hints(record)
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    annotated: Any = Annotated  # with a type that is computed here
    fields = {}
    for field in dataclasses.fields(record):
        flag = annotated[types[field.name], option(field.name)]
        fields[field.name] = inspect.Parameter(field.name, kind, default=field.default, annotation=flag)

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        parameters: list[inspect.Parameter] = []
        for parameter in inspect.signature(command, eval_str=True).parameters.values():
            parameters += fields.values() if parameter.name == name else [parameter]

        @functools.wraps(command)
        def run(**values: Any) -> None:
            given = record(**{field: values.pop(field) for field in fields})
            command(**{name: given}, **values)

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return decorate
