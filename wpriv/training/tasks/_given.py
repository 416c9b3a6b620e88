"""Objects of a Python program in place of what a recipe names: a network, a loss, and records with targets."""

from __future__ import annotations

import functools
import hashlib
import types
from collections.abc import Iterable, Mapping

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

from wpriv.errors import UsageError
from wpriv.training import data as data_sets
from wpriv.training.clipping import model_pass, model_state, probe_model, record_loss
from wpriv.training.clipping.choose_method import HOOKS, is_filled
from wpriv.training.clipping.example_gradients import Loss
from wpriv.training.clipping.model_settings import installed, names
from wpriv.training.data import Data
from wpriv.training.tasks import fit

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
            self.named(
                "attributes", {**getattr(value, "__dict__", {}), **{name: getattr(value, name) for name in slots}}
            )
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
        raise UsageError(
            f"wpriv.train wants the path or name of a recipe, or a torch.nn.Module and its records; "
            f"found {type(model).__name__}{inner}"
        )
    probe_model.require_shapes(model)


def pair(given: object, argument: str) -> tuple[object, object]:
    """Return the records and targets of a pair of arrays or of a Dataset."""
    if isinstance(given, TensorDataset):
        given = given.tensors
    if isinstance(given, Dataset):
        given = _gathered(given, argument)
    if not isinstance(given, (tuple, list)) or len(given) != 2:
        raise UsageError(
            f"`{argument}` must be a pair (x, y) of arrays with one target for each record, or a torch Dataset of such "
            f"pairs; found {type(given).__name__}"
        )
    x, y = (_array(part, argument) for part in given)
    return x, y


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
        raise UsageError(
            f"`{argument}` holds a tensor of {part.dtype} that is no array of numbers ({reason}); give a plain tensor "
            f"of floats or whole numbers"
        ) from None


def vocabulary(model: nn.Module, x: object, tokens: int | None) -> int:
    """Return the size of the vocabulary where records are tokens, and 0 where they are quantities."""
    if tokens is None:
        embeddings = [layer for layer in model.modules() if isinstance(layer, (nn.Embedding, nn.EmbeddingBag))]
        if not embeddings or getattr(x, "dtype", None) not in (np.int64, np.int32):
            return 0
        sizes = " or ".join(dict.fromkeys(str(layer.num_embeddings) for layer in embeddings))
        raise UsageError(
            f"the records are whole numbers, and the network has an embedding: say that they are tokens by `tokens`, "
            f"the size of the vocabulary ({sizes} here), or give x as floats where they are quantities"
        )
    if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 1:
        raise UsageError(f"`tokens` must be the size of the vocabulary, a whole number above 0; found {tokens!r}")
    return tokens


def by_outputs(model: nn.Module, data: Data) -> Data:
    """Return a data set whose whole labels are the places of the network's outputs, as far as the network has some."""
    whole = data.response_train is not None and data.response_train.dtype.kind == "i"
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    if data.classes_from != data_sets.FROM_LARGEST and not whole:
        return data
    zeros = torch.zeros((1, *data.shape), device=device, dtype=torch.int64 if data.vocabulary else torch.float32)
    with model_state.kept(model), torch.no_grad():
        try:
            outputs = model_pass.logits_of(model.eval()(zeros))
        except (RuntimeError, ValueError, TypeError, IndexError):
            return data  # refused with the reason before the first step
    if not isinstance(outputs, Tensor) or outputs.dim() != 2 or outputs.shape[1] < 2:
        return data
    return data_sets.by_outputs(data, outputs.shape[1])


def _gathered(dataset: Dataset[tuple[object, object]], argument: str) -> tuple[object, object]:
    """Read a Dataset of pairs into two arrays."""
    try:
        examples = [dataset[k] for k in range(len(dataset))]  # type: ignore[arg-type]  # it has a length
        rows = [(np.asarray(_array(x, argument)), np.asarray(_array(y, argument))) for x, y in examples]
        return np.stack([x for x, _ in rows]), np.array([y for _, y in rows])
    except (TypeError, ValueError) as error:
        raise UsageError(f"`{argument}`: a Dataset must give pairs (x, y) of one shape; {error}") from None


def per_record(loss: object) -> Loss:
    """Return a loss of each record, from a function, a module of torch.nn, or a name of the task fit."""
    if isinstance(loss, str):
        return fit.loss_of(loss)
    if isinstance(loss, nn.Module) and hasattr(loss, "reduction"):
        return functools.partial(fit.of_logits, record_loss.per_record(loss))
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
    """Return the name of a loss with a digest of its code and of what it holds."""
    return f"{getattr(loss, '__qualname__', type(loss).__name__)} {digest(loss)}"
