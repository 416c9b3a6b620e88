"""Objects of a Python program in place of what a recipe names: a network, a loss, and records with targets."""

from __future__ import annotations

import functools
import hashlib
import types
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from wpriv.errors import UsageError
from wpriv.numerics.numbers import positive_number
from wpriv.training import data as data_sets
from wpriv.training.clipping import model_state, probe_model, record_loss
from wpriv.training.clipping.choose_method import HOOKS, is_filled
from wpriv.training.clipping.example_gradients import Loss
from wpriv.training.clipping.model_settings import installed, names
from wpriv.training.clipping.record_trees import Records, called, mapped
from wpriv.training.data import Data, Packed, map_tree, named_leaves_of, of_persons, pack
from wpriv.training.data._dataset import random_split
from wpriv.training.tasks import _supervised, fit

# --- a digest of what a function, a network or an object computes: its code and what it holds ---
#
# Two programs that give objects of one digest give the same losses for the same weights and records, as far as Python
# shows it: the code of the functions and classes of the program, their constants, defaults and captured variables, the
# globals that they name, and the attributes of their objects. Installed libraries count by their names. What a function
# reads elsewhere (a file, the clock, a library in C) is not seen.

DEPTH = 16
OF_TORCH = frozenset(vars(nn.Module()))  # attributes that torch gives every network
PLAIN = (type(None), bool, int, float, complex, str, bytes)
SKIPPED = ("__dict__", "__weakref__", "__doc__", "__slots__", "__module__", "__firstlineno__", "__static_attributes__")


def digest(value: object, *, weights: bool = True) -> str:
    """Return 16 hexadecimal digits that change with the code and the content of an object.

    Args:
        weights: whether the numbers in the parameters and saved buffers of networks count, beside their shapes.
    """
    walk = _Walk(weights)
    walk.add(value)
    return walk.hash.hexdigest()[:16]


class _Walk:
    """One pass through an object; what was met before counts by the order in which it was met."""

    def __init__(self, weights: bool):
        self.hash, self.weights, self.depth = hashlib.sha256(), weights, 0
        self.seen: dict[int, int] = {}
        self.kept: list[object] = []  # so that no number of an object is given to another one

    def word(self, *words: object) -> None:
        self.hash.update("".join(f"{len(str(word))}:{word}" for word in words).encode(errors="surrogatepass"))

    def all(self, kind: str, values: Iterable[object]) -> None:
        items = list(values)
        self.word(kind, len(items))
        for item in items:
            self.add(item)

    def named(self, kind: str, values: Mapping[str, object] | dict[object, object]) -> None:
        self.all(kind, (part for item in values.items() for part in item))

    def add(self, value: object) -> None:
        if isinstance(value, PLAIN):
            self.word(type(value).__name__, repr(value))
        elif id(value) in self.seen:
            self.word("seen", self.seen[id(value)])
        elif self.depth < DEPTH:
            self.seen[id(value)] = len(self.seen)
            self.kept.append(value)
            self.depth += 1
            self._add(value)
            self.depth -= 1

    def _add(self, value: object) -> None:
        if isinstance(value, (list, tuple)):
            self.all("list", value)
        elif isinstance(value, (set, frozenset)):
            self.all("set", sorted(value, key=repr))
        elif isinstance(value, dict):
            self.named("dict", value)
        elif isinstance(value, types.CodeType):
            self.word("code", value.co_code.hex(), value.co_names, value.co_freevars, value.co_argcount)
            self.all("constants", value.co_consts)
        elif isinstance(value, types.FunctionType):
            self._function(value)
        elif isinstance(value, types.MethodType):
            self.all("method", (value.__func__, value.__self__))
        elif isinstance(value, functools.partial):
            self.all("partial", (value.func, value.args, value.keywords))
        elif isinstance(value, (staticmethod, classmethod)):
            self.all("wrapped", (value.__func__,))
        elif isinstance(value, property):
            self.all("property", (value.fget,))
        elif isinstance(value, types.ModuleType):
            self.word("module", value.__name__)
        elif isinstance(value, type):
            self._class(value)
        elif not self._array(value):
            self._object(value)

    def _function(self, function: types.FunctionType) -> None:
        if installed(function.__module__):
            self.word("function", function.__module__, function.__qualname__)
            self.all("captured", (cell.cell_contents for cell in function.__closure__ or () if is_filled(cell)))
            return
        self.add(function.__code__)
        self.all("defaults", (function.__defaults__, function.__kwdefaults__))
        self.all("captured", (cell.cell_contents for cell in function.__closure__ or () if is_filled(cell)))
        outside = [name for name in names(function.__code__) if name in function.__globals__]
        self.named("globals", {name: function.__globals__[name] for name in outside})

    def _class(self, kind: type) -> None:
        self.word("class", kind.__module__, kind.__qualname__)
        if not installed(kind.__module__):
            self.all("bases", kind.__bases__)
            self.named("members", {name: item for name, item in vars(kind).items() if name not in SKIPPED})

    def _array(self, value: object) -> bool:
        """Add the numbers of a tensor or an array; return whether the value is one."""
        if not isinstance(value, (Tensor, np.ndarray, np.generic)):
            return False
        self.word("array", value.dtype, tuple(value.shape))
        if isinstance(value, Tensor):
            value = value.detach().cpu().contiguous()
            value = value.reshape(-1).view(torch.uint8).numpy() if value.numel() else np.zeros(0)
        self.hash.update(value.tobytes())
        return True

    def _object(self, value: object) -> None:
        self.add(type(value))
        if isinstance(value, nn.Module):
            self._network(value)
            return
        slots = [name for kind in type(value).__mro__ for name in _slots(kind) if hasattr(value, name)]
        if isinstance(getattr(value, "__dict__", None), dict) or slots:
            self.named("attributes", {**getattr(value, "__dict__", {}), **{key: getattr(value, key) for key in slots}})
        elif " at 0x" not in repr(value):
            self.word("value", repr(value))
        self.word("name", getattr(value, "__module__", ""), getattr(value, "__qualname__", ""))

    def _network(self, network: nn.Module) -> None:
        attributes = {key: item for key, item in vars(network).items() if key not in OF_TORCH}
        self.named("attributes", attributes)
        hooks = [vars(network).get(name, {}) for name in HOOKS]
        hooks += [getattr(tensor, "_backward_hooks", None) or {} for tensor in network._parameters.values()]
        self.all("hooks", (hook for table in hooks for hook in table.values()))
        saved = network._parameters | {
            name: buffer for name, buffer in network._buffers.items() if name not in network._non_persistent_buffers_set
        }
        for name, tensor in (network._parameters | network._buffers).items():
            shown = None if tensor is None else (str(tensor.dtype), tuple(tensor.shape), tensor.requires_grad)
            self.word("tensor", name, shown)
            if tensor is not None and (self.weights or name not in saved):
                self.add(tensor)
        self.named("layers", network._modules)


def _slots(kind: type) -> tuple[str, ...]:
    slots = vars(kind).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def require_network(model: object) -> None:
    """Refuse what is no network, or one with layers that have no shape yet."""
    if not isinstance(model, nn.Module):
        inner = ", whose network is its `model`" if isinstance(getattr(model, "model", None), nn.Module) else ""
        found = f"found {type(model).__name__}{inner}"
        raise UsageError(f"wpriv.train wants the path or name of a recipe, or a torch.nn.Module and records; {found}")
    probe_model.require_shapes(model)


def pair(given: object, argument: str, *, alone: bool = True) -> tuple[object, object]:
    """Return the records and targets of arrays, of a Dataset or of a DataLoader.

    Args:
        alone: whether records may come without targets; they are then the targets themselves.
    Returns:
        Each as an array, or packed where it is a tree of arrays, or targets have another form than a number or a row
        of numbers for each record.
    """
    if isinstance(given, TensorDataset) and len(given.tensors) == 2:
        given = given.tensors
    if isinstance(given, DataLoader):
        given = _of_loader(given, argument)
    elif isinstance(given, Dataset):
        given = _joined([given[k] for k in range(_count(given, argument))], np.stack, argument)
    if alone and isinstance(given, (Mapping, Tensor, np.ndarray)):
        x = _form(given, given, argument)
        return x, x if isinstance(x, Packed) else pack(argument, quantities(x))
    if not isinstance(given, (tuple, list)) or len(given) != 2:
        without = "" if alone else ", for which a loss compares outputs with the records: give `loss`"
        raise UsageError(
            f"`{argument}` must be a pair (x, y) with one target for each record, each an array or a dictionary, tuple "
            f"or list of arrays; or a torch Dataset or DataLoader of such pairs. Found {type(given).__name__}{without}"
        )
    x, y = _form(given[0], given[1], argument), _form(given[1], given[0], argument)
    shape, kind = getattr(y, "shape", ()), getattr(getattr(y, "dtype", None), "kind", "")
    return x, pack(f"{argument}, targets", y) if kind and kind in "biuf" and _is_form(shape, kind) else y


def _is_form(shape: tuple[int, ...], kind: str) -> bool:
    """Tell whether targets have a form of their own: neither a number for each record nor a row of floats."""
    return len(shape) > 2 or (len(shape) == 2 and kind != "f" and 1 not in shape)


def _form(part: object, other: object, argument: str) -> object:
    """Return an array, or packed records where a part is a tree of arrays; a list of rows is an array."""
    if isinstance(part, list):
        rows = all(isinstance(item, (Tensor, np.ndarray)) and item.ndim for item in part)
        tree = bool(part) and rows and len(part) != len(other)  # type: ignore[arg-type]  # what has no length fails below
    else:
        leaves = [leaf for _, leaf in named_leaves_of(part)]
        tree = isinstance(part, Mapping) or any(isinstance(leaf, (Tensor, np.ndarray)) for leaf in leaves)
        tree = tree and isinstance(part, (Mapping, tuple))
    return pack(argument, map_tree(part, lambda leaf: _array(leaf, argument))) if tree else _array(part, argument)


def quantities(x: object) -> object:
    """Return an array of quantities as floats: bytes divided by 255, whole numbers as they are."""
    array = np.asarray(x)
    return data_sets.scaled(array) if array.dtype.kind in "iu" else array


def as_the_network_takes(model: nn.Module, x: object, *, pictures: bool) -> object:
    """Return records packed where they are series [N, C, T], volumes or larger, and as they are where not.

    Args:
        pictures: [N, H, W] are grey pictures; otherwise they are where the network does not take them as they are.
    """
    shape = np.shape(x) if isinstance(x, np.ndarray) else ()
    if len(shape) > 4 or (len(shape) == 3 and not pictures and _takes(model, shape[1:])):
        return pack("data", quantities(x))
    return x


def by_person(
    train: tuple[object, object], test: tuple[object, object] | None, persons: object, limit: int, *, tokens: int
) -> tuple[tuple[object, object], tuple[object, object]]:
    """Return the records of each person together, [P, limit, ...], and records for testing one by one.

    Without ``test`` a fifth of the persons is held out, with the records of theirs that are kept.
    """
    if tokens:
        raise UsageError(
            "`tokens` is for records that are protected one by one. With `person`, leave `tokens` out and give the "
            "records as a dictionary, whose whole numbers stay whole: ({'x': x}, y), where x is an argument of forward"
        )
    parts = _packed(train, "data")
    places, present = of_persons("data", persons, len(parts[0].rows), limit)
    if test is None:
        kept, held_out = random_split(len(places))
        rest = places[held_out][present[held_out]]
        tests = [Packed(part.rows[rest], part.form) for part in parts]
        places, present = places[kept], present[kept]
    else:
        tests = _packed(test, "test")
    goals = pack("data", (map_tree(parts[1].unpacked(), lambda leaf: leaf[places]), present))
    return (Packed(parts[0].rows[places], parts[0].form), goals), (tests[0], tests[1])


def _packed(pair: tuple[object, object], what: str) -> list[Packed]:
    """Return records, as quantities where they are an array, and targets, each packed."""
    parts = enumerate(pair)
    return [each if isinstance(each, Packed) else pack(what, each if k else quantities(each)) for k, each in parts]


def _takes(model: nn.Module, shape: tuple[int, ...]) -> bool:
    """Tell whether a network gives an output for each of two and of three records of a shape."""
    weight = next((p for p in model.parameters() if p.is_floating_point()), torch.zeros(0))
    with model_state.kept(model), torch.no_grad():
        try:
            outputs = [model.eval()(weight.new_zeros(count, *shape)) for count in (2, 3)]
        except (RuntimeError, ValueError, TypeError, IndexError):
            return False
    return [len(each) if isinstance(each, Tensor) and each.dim() else 0 for each in outputs] == [2, 3]


def _array(part: object, argument: str) -> object:
    """Return a tensor as an array, and anything else as it is; numbers that numpy lacks (bfloat16) become float32."""
    if not isinstance(part, Tensor):
        return part
    try:
        dense = part.detach().to_dense() if part.layout != torch.strided else part.detach()
        known = not dense.is_floating_point() or dense.dtype in (torch.float16, torch.float32, torch.float64)
        return (dense if known else dense.float()).cpu().numpy()
    except (TypeError, RuntimeError, NotImplementedError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        fault = f"`{argument}` holds a tensor of {part.dtype} that is no array of numbers ({reason})"
        raise UsageError(f"{fault}; give a plain tensor of floats or whole numbers") from None


def vocabulary(model: nn.Module, x: object, tokens: int | None) -> int:
    """Return the size of the vocabulary where records are tokens, and 0 where they are quantities."""
    if tokens is None:
        embeddings = [layer for layer in model.modules() if isinstance(layer, (nn.Embedding, nn.EmbeddingBag))]
        if not embeddings or getattr(x, "dtype", None) not in (np.int64, np.int32):
            return 0
        sizes = " or ".join(dict.fromkeys(str(layer.num_embeddings) for layer in embeddings))
        raise UsageError(
            f"the records are whole numbers, and the network has an embedding: give `tokens`, the size of the "
            f"vocabulary ({sizes} here), or x as floats where they are quantities"
        )
    return int(positive_number(tokens, "`tokens`, the size of the vocabulary,", whole=True))


def by_outputs(model: nn.Module, data: Data) -> Data:
    """Return a data set whose whole labels are the places of the network's outputs, as far as the network has some."""
    whole = data.response_train is not None and data.response_train.dtype.kind == "i"
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    if data.classes_from != data_sets.FROM_LARGEST and not whole:
        return data
    if data.x_form is None:
        kind = torch.int64 if data.vocabulary else torch.float32
        zeros: Records = torch.zeros((1, *data.shape), device=device, dtype=kind)
    else:
        zeros = mapped(_supervised.tensors_of(Packed(data.x_train[:1], data.x_form), device), torch.zeros_like)
    with model_state.kept(model), torch.no_grad():
        try:
            outputs = record_loss.logits_of(called(model.eval(), zeros))
        except (RuntimeError, ValueError, TypeError, IndexError):
            return data  # refused with the reason before the first step
    if not isinstance(outputs, Tensor) or outputs.dim() != 2 or outputs.shape[1] < 2:
        return data
    return data_sets.by_outputs(data, outputs.shape[1])


def _count(dataset: Dataset[object], argument: str) -> int:
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        raise UsageError(
            f"`{argument}`: {type(dataset).__name__} has no length, and the sampling rate depends on it. Give one "
            f"with __len__ and __getitem__"
        )
    return len(dataset)


def _of_loader(loader: DataLoader[object], argument: str) -> object:
    """Read the Dataset of a DataLoader by its collate_fn and its workers, one record after another.

    Each record is collated alone, so that what it becomes (its padding, say) depends on no other record.
    """
    _count(loader.dataset, argument)
    warnings.warn(
        f"of the DataLoader in `{argument}` its dataset, collate_fn and workers are used; its batch size, shuffle and "
        f"sampler are not: wpriv draws the records of each step as it accounts for them (`batch`, `sampling`)",
        stacklevel=2,
    )
    single = None if loader.batch_size is None and loader.batch_sampler is None else 1
    records = DataLoader(
        loader.dataset,
        batch_size=single,
        collate_fn=loader.collate_fn,
        num_workers=loader.num_workers,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
    )
    return _joined(list(records), np.stack if single is None else np.concatenate, argument)


def _joined(
    examples: list[object], join: Callable[[list[np.ndarray[Any, Any]]], np.ndarray[Any, Any]], argument: str
) -> object:
    """Return the trees of single records as one tree of arrays."""
    if not examples:
        raise UsageError(f"`{argument}` has no record")
    try:
        leaves = [[np.asarray(_array(leaf, argument)) for _, leaf in named_leaves_of(each)] for each in examples]
        joined = iter([join(list(same)) for same in zip(*leaves, strict=True)])
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"`{argument}`: all records must have parts of one shape, that depends on no other record; {error}. Pad "
            f"each record to a public length, with a mask or ignore_index, in the Dataset or in collate_fn"
        ) from None
    tree = map_tree(examples[0], lambda leaf: next(joined))
    return tuple(tree) if isinstance(tree, list) else tree


def per_record(loss: object) -> Loss:
    """Return a loss of each record, from a function, a module of torch.nn, or a name of the task fit."""
    if isinstance(loss, str):
        return fit.loss_of(loss)
    if isinstance(loss, nn.Module) and hasattr(loss, "reduction"):
        return record_loss.per_record(loss)
    if not callable(loss):
        why = ". Each record's gradient is clipped, for which its value on a batch is of no use"
        raise UsageError(
            f"`loss` must be a function (outputs, targets) -> losses [B], a loss of torch.nn, or a name; "
            f"found {type(loss).__name__}{why if isinstance(loss, Tensor) else ''}"
        )
    return loss  # type: ignore[no-any-return]


def architecture(model: nn.Module) -> str:
    """Return the class of a network and a digest of its layers, its code and the shapes of its weights."""
    return f"{type(model).__name__} {digest(model, weights=False)}"


def name_of(loss: object) -> str:
    """Return the name of a loss: of an object with a digest of its code and of what it holds."""
    if isinstance(loss, str):
        return loss
    return f"{getattr(loss, '__qualname__', type(loss).__name__)} {digest(loss)}"
