"""Records as trees of tensors with one first dimension: dictionaries, tuples and lists, nested, of several inputs.

One tensor stays a tensor. Any other tree is wrapped as a ``Tree``, which has what the clipping methods need of a batch:
its length, and selection by slices, places and masks. Its leaves are tensors [B, ...].
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree

from wpriv.errors import UsageError
from wpriv.hints import did_you_mean
from wpriv.training.data._trees import map_tree, named_leaves_of

WANTED = "dictionaries, tuples or lists, nested, of tensors with the records in the first dimension"


class Tree:
    """A batch of records as a tree of tensors [B, ...]; ``value`` is the tree as the user gave it."""

    def __init__(self, value: Any):
        self.value = value

    def __len__(self) -> int:
        return len(next(leaves(self)))

    def __getitem__(self, places: Any) -> Tree:
        return self.map(lambda leaf: leaf[places])

    def map(self, function: Callable[[Tensor], Tensor]) -> Tree:
        """Return the tree of the results of a function on each leaf."""
        return Tree(map_tree(self.value, function))

    def clone(self) -> Tree:
        """Return a copy of all leaves."""
        return self.map(torch.Tensor.clone)

    def unsqueeze(self, dim: int) -> Tree:
        """Return the leaves with a further dimension of size 1."""
        return self.map(lambda leaf: leaf.unsqueeze(dim))

    @property
    def device(self) -> torch.device:
        """The device of the records."""
        return next(leaves(self)).device

    @property
    def shape(self) -> torch.Size:
        """The number of records, and behind it all further sizes that occur in a leaf."""
        sizes = {size for leaf in leaves(self) for size in leaf.shape[1:]}
        return torch.Size([len(self), *sorted(sizes)])

    @property
    def form(self) -> object:
        """The structure with the type and the number of dimensions of each leaf, which can be compared and hashed."""
        return _form(self.value)


# torch.func batches the leaves of a registered class
_pytree.register_pytree_node(
    Tree,
    lambda tree: (list(leaves(tree)), map_tree(tree.value, lambda leaf: None)),
    lambda parts, value: _rebuilt(value, parts),
)
Records = Tensor | Tree


def records_of(given: Any, what: str = "inputs") -> Records:
    """Return a tensor as it is, and another tree of tensors or arrays as a ``Tree``.

    Raises:
        UsageError: a leaf is no tensor, there is none, or they have different numbers of records.
    """
    if isinstance(given, (Tensor, Tree)):
        return given
    tree = Tree(_plain(given, what))
    counts = list(dict.fromkeys(len(leaf) for leaf in leaves(tree)))
    if len(counts) != 1:
        raise UsageError(
            f"{what}: all parts must have one number of records in their first dimension; "
            f"found {' and '.join(map(str, counts)) or 'no tensor'}"
        )
    return tree


def raw(records: Records) -> Any:
    """Return the tensor, or the tree as the user gave it."""
    return records.value if isinstance(records, Tree) else records


def leaves(records: Records) -> Iterator[Tensor]:
    """Yield the tensors of records in their order."""
    for _, leaf in named_leaves_of(raw(records)):
        yield leaf


def mapped(records: Records, function: Callable[[Tensor], Tensor]) -> Records:
    """Return records with a function applied to each tensor."""
    return records.map(function) if isinstance(records, Tree) else function(records)


def joined(parts: list[Records]) -> Records:
    """Return several batches of one form as one."""
    first = parts[0]
    if isinstance(first, Tensor):
        return torch.cat([part for part in parts if isinstance(part, Tensor)])
    rows = zip(*(leaves(part) for part in parts), strict=True)
    return _rebuilt(first.value, [torch.cat(same) for same in rows])


def variants(function: Callable[..., list[Tensor]], *batches: Records) -> list[Records]:
    """Return the batches that a function of tensors gives, all leaves changed at the same time.

    Where it gives fewer for a leaf than for another one, the first of that leaf, the least unusual one, takes the place
    of those that are missing.
    """
    first = batches[0]
    if isinstance(first, Tensor):
        return list(function(*batches))
    several = [function(*same) for same in zip(*(leaves(batch) for batch in batches), strict=True)]
    rows = itertools.zip_longest(*several)
    return [
        _rebuilt(first.value, [each[0] if part is None else part for each, part in zip(several, row, strict=True)])
        for row in rows
    ]


def numbers(records: Records) -> int:
    """Return how many numbers a record has."""
    return sum(
        leaf[:1].numel() if len(leaf) else leaf.new_empty(1, *leaf.shape[1:]).numel() for leaf in leaves(records)
    )


def named_leaves(records: Records) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors with the keys that lead to them, such as ``text.input_ids``; "" for one tensor."""
    yield from named_leaves_of(raw(records))


def called(model: nn.Module, records: Records) -> Any:
    """Return the outputs of a model for a batch.

    A tensor is the only argument. A dictionary gives arguments by name where its keys are names of arguments, a tuple
    or list gives them in order where ``forward`` takes so many; else the whole tree is the only argument.

    Raises:
        UsageError: some keys are arguments of ``forward`` and others are not.
    """
    args, keywords = arguments(model, records)
    return model(*args, **keywords)


def arguments(model: nn.Module, records: Records) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the positional and keyword arguments of a model for a batch; see ``called``."""
    if isinstance(records, Tensor) or getattr(model, "takes_trees", False):
        return (records,), {}
    return _of_signature(model, records.value)


def _of_signature(model: nn.Module, value: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    parameters = inspect.signature(model.forward).parameters.values()
    kinds = {parameter.kind for parameter in parameters}
    if isinstance(value, dict):
        names = [each.name for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
        if not names and inspect.Parameter.VAR_KEYWORD in kinds:  # a wrapper that passes all on
            return (), value
        known = [key for key in value if key in names]
        if known and (len(known) == len(value) or inspect.Parameter.VAR_KEYWORD in kinds):
            return (), value
        if known:
            other = next(key for key in value if key not in names)
            raise UsageError(
                f"the records have {', '.join(map(repr, value))}, and forward of {type(model).__name__} has no "
                f"argument {other!r}{did_you_mean(str(other), names) or ';'} Its arguments: {', '.join(names)}. Leave "
                f"that key out of the inputs, or give it as a target"
            )
        return (value,), {}
    places = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    needed = [each for each in places if each.default is inspect.Parameter.empty]
    several = len(needed) <= len(value) and (len(value) <= len(places) or inspect.Parameter.VAR_POSITIONAL in kinds)
    return (tuple(value), {}) if several else ((value,), {})


def _plain(given: Any, what: str) -> Any:
    """Return a tree with dictionaries for mappings and tensors for arrays."""

    def plain(leaf: Any) -> Tensor:
        if isinstance(leaf, np.ndarray) and leaf.ndim and leaf.dtype.kind in "biuf":
            return torch.from_numpy(np.ascontiguousarray(leaf))
        if not isinstance(leaf, Tensor) or not leaf.dim():
            kind = "a single number" if isinstance(leaf, Tensor) else type(leaf).__name__
            raise UsageError(f"{what} must be {WANTED}; found {kind}")
        return leaf

    return map_tree(given, plain)


def _rebuilt(value: Any, parts: Any) -> Tree:
    following = iter(parts)
    return Tree(map_tree(value, lambda leaf: next(following)))


def _form(value: Any) -> object:
    if isinstance(value, dict):
        return "dict", tuple((key, _form(part)) for key, part in value.items())
    if isinstance(value, (tuple, list)):
        return type(value).__name__, tuple(_form(part) for part in value)
    return value.dim(), value.dtype
