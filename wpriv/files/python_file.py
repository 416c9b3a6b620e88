"""Python files of the user's own, which recipes name: what they define, without running them; and running them."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from wpriv.errors import MissingResource, UsageError
from wpriv.hints import did_you_mean

MAX_BYTES = 10_000_000
PREFIX = "wpriv_user_"
"""The begin of the names of the modules that files of the user's become."""


@dataclass(frozen=True)
class Definition:
    """A function or class at the top level of a file.

    Args:
        parameters: the names of its parameters (of ``__init__`` for a class, without ``self``); None where a base class
            or an import decides.
        open: whether it takes any further keyword.
    """

    parameters: tuple[str, ...] | None
    open: bool = False


def source(path: str | Path) -> str:
    """Return the text of a Python file."""
    try:
        raw = Path(path).read_bytes()
        if len(raw) > MAX_BYTES:
            raise MissingResource(f"{path}: has {len(raw):,} bytes; a Python file may have {MAX_BYTES:,}")
        return raw.decode("utf-8")
    except (OSError, ValueError) as error:
        raise MissingResource(f"{path}: no Python file that can be read ({error})") from None


def digest(path: str | Path) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of a Python file."""
    return hashlib.sha256(source(path).encode()).hexdigest()[:16]


def definitions(path: str | Path) -> dict[str, Definition]:
    """Return the functions, classes and other names at the top level of a file, which is parsed and not run."""
    try:
        tree = ast.parse(source(path), str(path))
    except (SyntaxError, ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None)
        raise UsageError(f"{path}{f':{line}' if line else ''}: not valid Python ({error.args[0]})") from None
    defined: dict[str, Definition] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            defined[node.name] = _parameters(node.args)
        elif isinstance(node, ast.ClassDef):
            inits = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
            defined[node.name] = _parameters(inits[0].args, 1) if inits else Definition(None)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            defined |= {(alias.asname or alias.name).partition(".")[0]: Definition(None) for alias in node.names}
        elif isinstance(node, ast.Assign):
            defined |= {target.id: Definition(None) for target in node.targets if isinstance(target, ast.Name)}
    return defined


def fault(path: str | Path, name: str, given: Mapping[str, object], supplied: tuple[str, ...] = ()) -> str | None:
    """Return what is wrong with a call of a name in a file, as far as its text shows; None where nothing is.

    Args:
        given: the parameters of the call. supplied: those that the caller adds where the function has them.
    """
    known = definitions(path)
    if name not in known:
        names = [key for key in known if not key.startswith("_")]
        near = did_you_mean(name, names) or "."
        return f"{path} defines no {name!r}{near} It defines {', '.join(names) or 'nothing'}"
    definition = known[name]
    if definition.parameters is None or definition.open:
        return None
    taken = [key for key in definition.parameters if key not in supplied]
    for key in given:
        if key not in definition.parameters:
            words = f"Its parameters: {', '.join(taken)}" if taken else "It has none"
            return f"{name} in {path} has no parameter {str(key)[:60]!r}{did_you_mean(str(key), taken) or '.'} {words}"
    return None


def call(path: str | Path, name: str, given: Mapping[str, object], supplied: Mapping[str, object]) -> Any:
    """Run a file and call what it defines under a name.

    Args:
        given: keyword arguments. supplied: further ones, each passed only where the function has a parameter for it.
    Raises:
        UsageError: the file or the call fails; the message names the file, the line and the error.
        MissingResource: as ``source``.
    """
    if (message := fault(path, name, given, tuple(supplied))) is not None:
        raise UsageError(message)
    defined = function(path, name)
    try:
        names = set(inspect.signature(defined).parameters)
    except (TypeError, ValueError):
        names = set()
    arguments = {**{key: value for key, value in supplied.items() if key in names}, **given}
    try:
        return defined(**arguments)
    except Exception as error:  # whatever the user's own code raises is reported as its fault
        raise UsageError(f"{_place(path, error)}: {name} failed: {_words(error)}") from error


def function(path: str | Path, name: str) -> Callable[..., Any]:
    """Run a file, once in a program, and return the function or class of a name."""
    defined = getattr(_module(Path(path).resolve(), digest(path)), name, None)
    if not callable(defined):
        raise UsageError(f"{path}: {name} must be a function or a class; found {type(defined).__name__}")
    return defined  # type: ignore[no-any-return]


def failure(error: BaseException) -> str | None:
    """Return the place in a file of the user's, and the words of an error, where code of such a file raised it.

    It did where the last frame that is of such a file or of this program is of the file: an error within a library that
    the file called is one of the file's own too. None for other errors.
    """
    place, trace = None, error.__traceback__
    while trace is not None:
        module = str(trace.tb_frame.f_globals.get("__name__"))
        if module.startswith(PREFIX):
            code = trace.tb_frame.f_code
            place = f"{code.co_filename}:{trace.tb_lineno}: {code.co_qualname} failed: {_words(error)}"
        elif module.partition(".")[0] == "wpriv":
            place = None
        trace = trace.tb_next
    return place


@cache
def _module(path: Path, content: str) -> ModuleType:
    """Run a file with some digest as a module of its own; files beside it can be imported from it."""
    place = hashlib.sha256(str(path).encode()).hexdigest()[:12]
    name = f"{PREFIX}{place}_{content}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path}: a Python file ends with .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # for dataclasses and pickles of what it defines
    beside = str(path.parent)
    sys.path.insert(0, beside)
    try:
        # not by the loader, whose cache takes a file of the same second and size for unchanged
        exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)
    except Exception as error:  # as above
        del sys.modules[name]
        raise UsageError(f"{_place(path, error)}: the file fails when it is run: {_words(error)}") from error
    finally:
        sys.path.remove(beside)
    return module


def _parameters(arguments: ast.arguments, first: int = 0) -> Definition:
    names = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return Definition(tuple(argument.arg for argument in names[first:]), arguments.kwarg is not None)


def _place(path: str | Path, error: BaseException) -> str:
    """The file with the last of its lines that the error passed through."""
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(Path(path).resolve()):
            line = trace.tb_lineno
        trace = trace.tb_next
    return str(path) if line is None else f"{path}:{line}"


def _words(error: BaseException) -> str:
    text = (str(error).splitlines() or [""])[0][:200]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
