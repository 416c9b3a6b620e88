"""Plug-ins: parameters of mechanisms, tables, data sets and models, facts of accountants and tasks, lists of all."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from wpriv.cli import catalog
from wpriv.core import registry
from wpriv.core.kinds import Adjacency
from wpriv.core.theorems import OPTIONS, TABLE, Premise
from wpriv.training import tasks

ROOMS = {"mechanisms": "mechanism", "tables": "table", "data": "data", "models": "model"}
# the shape of the examples at which the parameters of a model are counted, and the number of classes or outputs
SHAPES: dict[str, tuple[tuple[int, ...], int]] = {
    "adapt-cnn-28": ((1, 28, 28), 10),
    "adapt-mlp": ((800,), 10),
    "autoencoder": ((16,), 2),
    "celeba-generator": ((3, 64, 64), 10),
    "colour-cnn": ((3, 32, 32), 10),
    "critic-28": ((1, 28, 28), 1),
    "dcgan-28": ((1, 28, 28), 10),
    "gpt2": ((63,), 96),
    "grey-cnn": ((1, 28, 28), 10),
    "logistic": ((1, 28, 28), 10),
    "merf-generator": ((1, 28, 28), 10),
    "mlp": ((1, 28, 28), 10),
    "mlp-generator": ((1, 28, 28), 10),
    "tanh-cnn-28": ((1, 28, 28), 10),
    "tanh-cnn-32": ((3, 32, 32), 10),
    "wrn-16-4": ((3, 32, 32), 10),
}


def parameters(room: str, name: str) -> str:
    """Return a table of the parameters of a plug-in."""
    rows = [
        (f"`{each.name}`", each.value, _code(each.default), each.meaning) for each in catalog.parameters(room, name)
    ]
    return _table(("parameter", "value", "default", "meaning"), rows) if rows else "No parameters.\n"


def _code(default: str) -> str:
    return default if default in ("", "required") else f"`{default}`"


def accountant(name: str) -> str:
    """Return the facts of an accountant: claim, notion, formula, source, options."""
    module = registry.load("accountants", name)
    options = [f"`{key}={_option(value)}`" for key, value in registry.options(module).items()]
    rows = (
        ("claim", f"`{module.CLAIM}`"),
        ("notion", f"`{module.NOTION}`"),
        ("options, with their defaults", ", ".join(options) or "none"),
        ("source", module.SOURCE),
    )
    facts = "".join(f"- {word}: {fact}\n" for word, fact in rows)
    return f"{facts}\n```text\n{module.EXPLAIN}\n```\n"


def _option(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def adjacencies() -> str:
    """Return a table of the neighbouring relations and what they mean."""
    return _table(("relation", "meaning"), [(f"`{relation}`", relation.meaning) for relation in Adjacency])


def combinations() -> str:
    """Return the table of what may be combined, with the theorem and the premises of each row."""
    rows = []
    for row in TABLE:
        releases = "; ".join(release.value for release in row.releases)
        sampling = row.sampling + (f", {OPTIONS[row.option]}" if row.option else "")
        relations = ", ".join(f"`{relation}`" for relation in row.adjacencies)
        needed = dict.fromkeys(premise for release in row.releases for premise in row.premises_of(release))
        marks = ", ".join(str(number) for number in sorted(_premises().index(premise) + 1 for premise in needed))
        rows.append((releases, sampling, relations, f"[{row.theorem}]({row.page})", marks))
    return _table(("release", "sampling", "neighbours", "theorem", "premises"), rows)


def premises() -> str:
    """Return a table of the premises, by their numbers in the table of combinations."""
    rows = [(str(index), each.sentence, "always" if each.shown else "") for index, each in enumerate(_premises(), 1)]
    return _table(("", "premise", "said"), rows)


def _premises() -> list[Premise]:
    return list(
        dict.fromkeys(premise for row in TABLE for release in row.releases for premise in row.premises_of(release))
    )


def models() -> str:
    """Return a table of the models: network, source, and number of parameters for examples of a shape."""
    import torch

    # the network that a Python program gives has no size of its own
    assert set(SHAPES) == set(registry.names("models")) - {"given"}, f"give every model a shape in {__file__}"
    rows = []
    for name, (shape, classes) in SHAPES.items():
        module = registry.load("models", name)
        with torch.device("meta"):
            network = module.build(module.Params(), shape, classes)
        count = sum(weights.numel() for weights in network.parameters())
        rows.append((f"`{name}`", first_sentence(module), " x ".join(map(str, shape)), f"{count:,}", module.SOURCE))
    return _table(("model", "network", "examples", "parameters", "source"), rows)


def data_sets() -> str:
    """Return a table of the data sets: what they hold, and how to get their files."""
    modules = {name: registry.load("data", name) for name in registry.names("data")}
    return _table(("data set", "what it holds", "files"), [(f"`{n}`", m.ABOUT, m.GET) for n, m in modules.items()])


def tables() -> str:
    """Return a table of the tables that recipes can ask for: what they show, and their columns."""
    modules = {name: registry.load("tables", name) for name in registry.names("tables")}
    rows = [(f"`{n}`", first_sentence(m), ", ".join(f"`{c}`" for c in m.COLUMNS)) for n, m in modules.items()]
    return _table(("table", "what it shows", "numeric columns"), rows)


def figures() -> str:
    """Return a table of the figures: what they draw."""
    rows = []
    for name in registry.names("figures"):
        figure = registry.load("figures", name)
        rows.append((f"`{name}`", getattr(figure, "about", "") or first_sentence(figure)))
    return _table(("figure", "what it draws"), rows)


def task(name: str) -> str:
    """Return what a task measures, and the files that it leaves beside those of every training."""
    spec = tasks.load(name)
    measured = ", ".join(f"`{column}`" for column in dict.fromkeys(spec.results))
    files = [f"`{file}`" for file in spec.files]
    files += [f"`{file}` (figure `{figure}`)" for file, figure in spec.figures.items()]
    exact = "no" if spec.supports_exact_noise is tasks.TaskSpec.supports_exact_noise else "yes"
    return (
        f"- measures (columns of `metrics.csv`): {measured}\n"
        f"- leaves beside the files of every training: {', '.join(files) or 'nothing'}\n"
        f"- can have `privacy: {{noise: exact}}`: {exact}\n"
    )


def first_sentence(module: Any) -> str:
    """Return the first paragraph of a docstring on one line."""
    return " ".join(inspect.getdoc(module).partition("\n\n")[0].split())  # type: ignore[union-attr]


def _table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [tuple(header), *map(tuple, rows)]
    lines.insert(1, ("---",) * len(lines[0]))
    return "".join("| " + " | ".join(map(_cell, line)) + " |\n" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("$", "\\$")


def _parameters_part(room: str, name: str) -> Callable[[], str]:
    return lambda: parameters(room, name)


def _bound(function: Callable[[str], str], name: str) -> Callable[[], str]:
    return lambda: function(name)


PARTS: dict[str, Callable[[], str]] = {
    "adjacencies": adjacencies,
    "theorems": combinations,
    "premises": premises,
    "models": models,
    "data-sets": data_sets,
    "tables": tables,
    "figures": figures,
    **{f"accountant-{name}": _bound(accountant, name) for name in registry.names("accountants")},
    **{f"task-{name}": _bound(task, name) for name in registry.names("tasks")},
    **{f"{word}-{name}": _parameters_part(room, name) for room, word in ROOMS.items() for name in registry.names(room)},
}
