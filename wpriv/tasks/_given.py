"""Objects of a Python program in place of what a recipe names: a network, a loss, and records with targets."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from wpriv.errors import UsageError
from wpriv.tasks import _code_digest, _record_loss, fit

if TYPE_CHECKING:
    from torch import Tensor, nn

    Loss = Callable[[Tensor, Tensor], Tensor]


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
    x, y = (_array(part, argument) for part in given)
    return x, y


def _array(part: Any, argument: str) -> Any:
    """Return a tensor as an array, and anything else as it is; numbers that numpy lacks (bfloat16) become float32.

    Raises:
        UsageError: no array holds the tensor.
    """
    import torch

    if not isinstance(part, torch.Tensor):
        return part
    try:
        dense = part.detach().to_dense() if part.layout != torch.strided else part.detach()
        wide = (
            dense.float()
            if dense.is_floating_point() and dense.dtype not in (torch.float16, torch.float32, torch.float64)
            else dense
        )
        return wide.cpu().numpy()
    except (TypeError, RuntimeError, NotImplementedError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise UsageError(
            f"`{argument}` holds a tensor of {part.dtype} that is no array of numbers ({reason}); give a plain tensor "
            f"of floats or whole numbers"
        ) from None


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


def are_shares_of_classes(loss: Any, data: Any) -> bool:
    """Tell whether the targets are shares of classes, [N, K] floats, which torch's cross-entropy takes too."""
    return loss is not None and not isinstance(loss, str) and len(data.response) > 1


def by_outputs(model: nn.Module, data: Any) -> Any:
    """Return a data set whose whole labels are the places of the network's outputs, as far as the network has some.

    Raises:
        UsageError: a label has no output.
    """
    import torch

    from wpriv.data import FROM_LARGEST, by_outputs
    from wpriv.engine.model_checks import model_state

    whole = data.response and data.response_train.dtype.kind == "i"
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    if data.classes_from != FROM_LARGEST and not whole:
        return data
    zeros = torch.zeros((1, *data.shape), device=device, dtype=torch.int64 if data.vocabulary else torch.float32)
    with model_state.kept(model), torch.no_grad():
        try:
            outputs = model.eval()(zeros)
        except (RuntimeError, ValueError, TypeError, IndexError):
            return data  # refused with the reason before the first step
    if not isinstance(outputs, torch.Tensor) or outputs.dim() != 2 or outputs.shape[1] < 2:
        return data
    return by_outputs(data, outputs.shape[1])


def _gathered(dataset: Any, argument: str) -> tuple[Any, Any]:
    """Read a Dataset of pairs into two arrays."""
    import numpy as np

    try:
        examples = [dataset[k] for k in range(len(dataset))]
        rows = [(np.asarray(_array(x, argument)), np.asarray(_array(y, argument))) for x, y in examples]
        return np.stack([x for x, _ in rows]), np.array([y for _, y in rows])
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
        return _record_loss.of_module(loss)
    if not callable(loss):
        why = ". Each record's gradient is clipped, for which its value on a batch is of no use"
        raise UsageError(
            f"`loss` must be a function (outputs, targets) -> losses [B], a loss of torch.nn, or a name; "
            f"found {type(loss).__name__}{why if isinstance(loss, Tensor) else ''}"
        )
    return loss  # type: ignore[no-any-return]


def architecture(model: nn.Module) -> str:
    """Return the class of a network and a digest of its layers, its code and the shapes of its weights."""
    return f"{type(model).__name__} {_code_digest.digest(model, weights=False)}"


def name_of(loss: Any) -> str:
    """Return the name of a loss with a digest of its code and of what it holds."""
    return f"{getattr(loss, '__qualname__', type(loss).__name__)} {_code_digest.digest(loss)}"
