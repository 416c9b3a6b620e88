"""The verb ``check``: find the reader of an object or a file, merge its premises with declarations, and judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

from wpriv.checks import judge
from wpriv.checks.premises import DECLARED, Fact, Found, Premises, of_mapping
from wpriv.checks.verdict import Verdict
from wpriv.config import recipe_files, shipped
from wpriv.core import registry
from wpriv.errors import UsageError, of_file
from wpriv.files import STDIN, shown_path
from wpriv.hints import instead
from wpriv.numerics.numbers import shown

OBJECTS = ("loader", "optimizer", "model", "strategy", "trainer")


def check(
    x: object,
    *,
    loader: object = None,
    optimizer: object = None,
    model: object = None,
    strategy: object = None,
    trainer: object = None,
    eps: float | None = None,
    delta: float | None = None,
    premises: Mapping[str, object] | None = None,
    **further: object,
) -> Verdict:
    """Check what a run of any library claims: proved, refuted, contradicted, or incomplete.

    Nothing is unpickled, and no method that changes an object is called.

    Args:
        x: an object of a library (an Opacus ``PrivacyEngine``, ...), or the path of its checkpoint, folder or log; a
            YAML of premises; or a mapping of premises.
        loader, optimizer, model, strategy, trainer: further objects of the run, which show premises that ``x`` lacks.
        eps, delta: the claim, where ``x`` does not hold it; short for the premises ``claim.eps`` and ``claim.delta``.
        premises: declarations, nested or with dotted names: ``{"max_per_unit": 1, "sampling.kind": "poisson"}``.
        further: more for the reader of ``x``, which names what it takes.
    Raises:
        UsageError: nothing reads ``x``, or a premise is unknown or out of range. MissingResource: a file is missing.

    >>> check({"claim": {"eps": 1.33617, "delta": 1e-5}, "noise": {"multiplier": 1}, "steps": 500,
    ...        "sampling": {"kind": "shuffle", "rate": 0.01}, "records_public": True, "max_per_unit": 1}).verdict
    'refuted'
    """
    objects = {"loader": loader, "optimizer": optimizer, "model": model, "strategy": strategy, "trainer": trainer}
    given = {name: value for name, value in {**objects, **further}.items() if value is not None}
    declared: tuple[Fact, ...] = ()
    if isinstance(x, Mapping) and not any(registry.load("readers", name).recognises(x) for name in _readers()):
        _refuse_unknown(further, ())
        declared, found = of_mapping({str(key): value for key, value in x.items()}), Found("premises")
        subject = "the premises"
    else:
        path = located(x) if isinstance(x, (str, Path)) and not _is_repr(x) else None
        x = Path(x) if isinstance(x, str) else x
        reader = reader_of(path or x)
        _refuse_unknown(further, getattr(reader, "FURTHER", ()))
        try:
            found = reader.read(path or x, {**given, "delta": delta} if delta else given)
        except UsageError as error:
            raise error if path is None or str(path) in str(error) else error.at(shown_path(path)) from None
        subject = shown_path(x) if isinstance(x, (str, Path)) else found.name
    declared += of_mapping(premises or {})
    for name, value in (("claim.eps", eps), ("claim.delta", delta)):
        if value is not None:
            declared += (Fact(name, value, DECLARED, f"the argument {name.rpartition('.')[2]}"),)
    try:
        it = judge.judge(Premises.of((*found.facts, *declared)), found)
    except UsageError as error:
        raise error.at(subject) from None
    return Verdict(it.verdict, it, subject, not isinstance(x, (str, Path)))


def _refuse_unknown(further: Mapping[str, object], known: Sequence[str]) -> None:
    """Refuse keywords that neither ``check`` nor the reader has, so that a misspelt one is not passed over."""
    for name in further.keys() - set(known):
        raise UsageError(
            f"check has no keyword {name!r}{instead(name, [*OBJECTS, 'premises', 'eps', 'delta', *known])}"
        )


def located(name: str | Path) -> Path:
    """The path of a file, a folder or a shipped recipe; MissingResource where there is none."""
    path = Path(name)
    if str(name) == STDIN:
        return path
    try:
        path.stat()
    except (OSError, ValueError) as error:
        bare = str(name).removesuffix(".yaml")
        if bare in shipped():
            return recipe_files.find(str(name))
        if isinstance(error, OSError):
            raise of_file(
                error, name, "read", "give the path of a checkpoint, a folder or a YAML of premises"
            ) from None
        raise UsageError(f"{shown(str(name))} is no path: {error}") from None
    return path


def _is_repr(x: str | Path) -> bool:
    """Tell whether an argument is an object as text, such as ``GaussianDpEvent(noise_multiplier=1.0)``, and no path."""
    return str(x).endswith(")") and "=" in str(x) and str(x).partition("(")[0].replace(".", "").isidentifier()


def _readers() -> list[str]:
    """The names of all readers: that of our own folders, which look like others, first, and that of any YAML last."""
    order = {"wpriv-folder": 0, "premises": 2}
    return sorted(registry.names("readers"), key=lambda each: (order.get(each, 1), each))


def reader_of(x: object) -> ModuleType:
    """The reader that recognises an object or a path; UsageError where none does, with what is known."""
    names = _readers()
    for name in names:
        module: ModuleType = registry.load("readers", name)
        if module.recognises(x):
            return module
    what = shown_path(x) if isinstance(x, Path) else f"{type(x).__module__}.{type(x).__qualname__}"
    raise UsageError(
        f"nothing here reads {what}; known are {', '.join(names)} (`wpriv list readers`). Write what ran as a YAML of "
        f"`kind: check`, and give that"
    )
