"""Objects of a Python program in place of what a recipe names: a network, a loss, and records with targets."""

from __future__ import annotations

import copy
import functools
import hashlib
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from wpriv.errors import UsageError
from wpriv.tasks import fit

if TYPE_CHECKING:
    from torch import Tensor, nn

    Loss = Callable[[Tensor, Tensor], Tensor]

ELEMENTWISE = ("MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss", "BCELoss", "BCEWithLogitsLoss")
"""Losses of torch.nn that compare each output with the target in its place."""


def require_network(model: Any) -> None:
    """Refuse what is no network, or one with layers that have no shape yet.

    Raises:
        UsageError: it is such a thing.
    """
    from torch import nn

    from wpriv.engine.model_checks import validate_model

    if not isinstance(model, nn.Module):
        raise UsageError(
            f"wpriv.train wants the path or name of a recipe, or a torch.nn.Module and its records; "
            f"found {type(model).__name__}"
        )
    validate_model.require_shapes(model)


def pair(given: Any, argument: str) -> tuple[Any, Any]:
    """Return the records and targets of a pair of arrays or of a Dataset.

    Raises:
        UsageError: it is neither.
    """
    from torch import Tensor
    from torch.utils.data import Dataset, TensorDataset

    if isinstance(given, TensorDataset):
        given = given.tensors
    if isinstance(given, Dataset):
        given = _gathered(given, argument)
    if not isinstance(given, (tuple, list)) or len(given) != 2:
        raise UsageError(
            f"`{argument}` must be a pair (x, y) of arrays with one target for each record, or a torch Dataset of such "
            f"pairs; found {type(given).__name__}"
        )
    x, y = (part.detach().cpu().numpy() if isinstance(part, Tensor) else part for part in given)
    return x, y


def vocabulary(model: nn.Module, x: Any, tokens: int | None) -> int:
    """Return the size of the vocabulary where records are tokens, and 0 where they are quantities.

    Raises:
        UsageError: the size is none, or it is not given for whole numbers and a network with an embedding.
    """
    import numpy as np
    from torch import nn

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


def _gathered(dataset: Any, argument: str) -> tuple[Any, Any]:
    """Read a Dataset of pairs into two arrays."""
    import numpy as np

    try:
        examples = [dataset[k] for k in range(len(dataset))]
        return np.stack([np.asarray(x) for x, _ in examples]), np.array([np.asarray(y) for _, y in examples])
    except (TypeError, ValueError) as error:
        raise UsageError(f"`{argument}`: a Dataset must give pairs (x, y) of one shape; {error}") from None


def per_record(loss: Any) -> Loss:
    """Return a loss of each record, from a function, a module of torch.nn, or a name of the task fit.

    Raises:
        UsageError: it is none of these.
    """
    from torch import Tensor, nn

    if isinstance(loss, str):
        return fit.loss_of(loss)
    if isinstance(loss, nn.Module) and hasattr(loss, "reduction"):
        # the usual losses of torch.nn average over the batch; here each record needs its own
        loss = copy.copy(loss)
        loss.reduction = "none"
        return functools.partial(_mean_over_outputs, loss)
    if not callable(loss):
        why = ". Each record's gradient is clipped, for which its value on a batch is of no use"
        raise UsageError(
            f"`loss` must be a function (outputs, targets) -> losses [B], a loss of torch.nn, or a name; "
            f"found {type(loss).__name__}{why if isinstance(loss, Tensor) else ''}"
        )
    return loss  # type: ignore[no-any-return]


def _mean_over_outputs(loss: Any, outputs: Tensor, targets: Tensor) -> Tensor:
    if type(loss).__name__ in ELEMENTWISE and outputs.shape != targets.shape:
        # torch would compare each output with the targets of other records
        raise UsageError(
            f"the loss {type(loss).__name__} compares outputs and targets of one shape; found {list(outputs.shape)} "
            f"and {list(targets.shape)}. Whole numbers as targets are classes: give floats where they are to be "
            f"predicted, and a network with one output for each of them"
        )
    values: Tensor = loss(outputs, targets)
    return values.flatten(1).mean(dim=1) if values.dim() > 1 else values


def architecture(model: nn.Module) -> str:
    """Return the class of a network and a digest of its layers and of the shapes of its weights."""
    shapes = [(name, tuple(p.shape), p.requires_grad) for name, p in model.named_parameters()]
    return f"{type(model).__name__} {_digest(repr(model) + repr(shapes))}"


def name_of(loss: Any) -> str:
    """Return the name of a loss with a digest of its code, as far as Python has it."""
    try:
        code = inspect.getsource(loss if hasattr(loss, "__code__") else type(loss))
    except (OSError, TypeError):
        code = ""
    settings = "" if hasattr(loss, "__code__") else repr(loss)
    return f"{getattr(loss, '__qualname__', type(loss).__name__)} {_digest(code + settings)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
