"""Parameters outside the layers with rules: each operation in which one meets the records is differentiated by itself.

Examples are a scale per channel in a block, a normalisation of the user's own, a class token, a weight computed from
others (weight_norm), and an embedding of positions. While the model runs, a mode sees the functions of torch that it
calls, and keeps apart what comes of the records and what comes of parameters alone. Where both meet, the gradient of
each record is taken: an elementwise function gets the parameter expanded over the records, so that the backward pass
has a gradient for each; a linear map has the rule of its layer; any other function is differentiated by torch.func
from its arguments and its output gradient. From a tensor that was computed of parameters the gradients go on to these
by a backward pass through that computation. Nothing of the records is computed twice, except by torch.func.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.func import grad
from torch.func import vmap as batched
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_unflatten

from wpriv.errors import Unsupported
from wpriv.training.clipping.example_gradients import Share, explicit, outer, products, roughness, together
from wpriv.training.clipping.layer_rules import embedding
from wpriv.training.clipping.record_trees import Records, leaves

# functions whose value at a place depends on the arguments at this place alone, after broadcasting
ELEMENTWISE: tuple[str, ...] = ("add", "sub", "rsub", "mul", "div", "rdiv", "true_divide", "divide", "multiply", "pow")
ELEMENTWISE += ("subtract", "rpow", "maximum", "minimum", "where", "addcmul", "addcdiv", "lerp")
ELEMENTWISE += ("iadd", "isub", "imul", "idiv", "ipow")
# functions after which the records may lie in another dimension than the first
MOVING: tuple[str, ...] = ("transpose", "permute", "movedim", "moveaxis", "swapaxes", "swapdims", "t", "T", "H")
MOVING += ("stack", "unsqueeze", "getitem")
# functions that select rows, of which some records may have more than others
SELECTING: tuple[str, ...] = ("masked_select", "nonzero", "argwhere", "unique", "unique_consecutive", "take")
SELECTING += ("pack_padded_sequence",)
# functions that select along a dimension, with the place of this argument
ALONG = {"index_select": 1, "gather": 1, "narrow": 1, "unbind": 1, "split": 2, "chunk": 2, "tensor_split": 2}
ALONG |= {"take_along_dim": 2, "split_with_sizes": 2, "unsafe_split": 2, "unsafe_chunk": 2}
# properties of tensors that are no tensors
PLAIN: tuple[str, ...] = ("dtype", "device", "layout", "ndim", "requires_grad", "is_leaf", "is_nested", "is_cuda")
PLAIN += ("is_sparse", "grad_fn", "dim", "numel", "stride", "is_contiguous", "is_floating_point", "is_complex")
PLAIN += ("get_device", "data_ptr")
# values of gradients that go back through a computation together: for the cache of a CPU
TOGETHER = 2**18
BY_VMAP = "use the clipping method 'vmap'"


class Rows(int):
    """The number of rows of a batch, which stays recognisable where a model passes it on as a size."""


@dataclass(frozen=True)
class Computed:
    """A tensor that is computed from parameters alone: from ``roots``, parameters or rows of an embedding.

    Args:
        normed: v and g of a matrix that weight norm computes, g v / |v| for each row; None for others.
    """

    tensor: Tensor
    roots: tuple[Tensor, ...]
    normed: tuple[Tensor, Tensor] | None = None


# the gradient of an operation's result -> gradients by record of the tensors that took part in it
Differentiate = Callable[[Tensor], list[tuple[Computed, Share]]]


class Uses(TorchFunctionMode):
    """The operations of a forward pass in which parameters meet the records, outside of the layers with rules.

    Args:
        model: its trainable parameters are followed. inputs: the records. rows: their number B, times the copies of
            each record.

    ``inside`` is the layer with a rule that is running, if any. ``found`` has, for each operation, the edge of the
    graph whose gradient is wanted, and what to do with this gradient.
    """

    def __init__(self, model: nn.Module, inputs: Records, rows: int):
        super().__init__()  # type: ignore[no-untyped-call]
        self.records, self.rows = len(inputs), rows
        self.found: list[tuple[GradientEdge, Differentiate]] = []
        self.inside: nn.Module | None = None
        self.computed = {id(p): Computed(p, (p,)) for p in model.parameters() if p.requires_grad}
        # the weight, the words and the index of padding that gave the rows of an embedding
        self.embedded: dict[int, tuple[nn.Parameter, Tensor, int | None]] = {}
        self.key = object()
        for leaf in leaves(inputs):
            self.mark(leaf, False)

    def of_records(self, tensor: object) -> bool:
        """Return whether a tensor was computed from the records in this pass."""
        return isinstance(tensor, Tensor) and self._moved(tensor) is not None

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        if (
            self.inside is not None
            or func.__name__ in PLAIN
            or (func.__name__ == "__get__" and func.__self__.__name__ in PLAIN)
        ):
            return func(*args, **given)
        computed, moved = self._sorted((*args, given) if given else args)
        if computed and torch.is_grad_enabled():
            return self._compute(func, args, given, computed) if moved is None else self._meet(func, args, given, moved)
        out = func(*args, **given)
        if moved is not None and out is not None:
            name = _name(func)
            if not moved and type(out) in (int, torch.Size):
                return self._sized(name, args, out)
            unchanged = isinstance(out, Tensor) and self._moved(out) is None and not func.__name__.endswith("_")
            if not (unchanged and any(out is item for item in args)):
                self.mark(out, moved or self._moves(name, args, given))
        return out

    def follows(self, layer: nn.Module) -> bool:
        """Return whether the trainable parameters of a layer are those of the model, not gathered for this call."""
        return all(id(p) in self.computed for p in layer.parameters() if p.requires_grad)

    def leave(self, output: object, moved: bool = False) -> None:
        """Mark the output of the layer with a rule that was running."""
        self.inside = None
        self.mark(output, moved)

    __torch_function__.__dynamo_disable = __torch_function__  # type: ignore[attr-defined]

    def shares(self, differentiate: Differentiate, delta: Tensor) -> dict[nn.Parameter, Share]:
        """Return the gradients of parameters by record that come of one operation."""
        by_root: dict[int, list[Share]] = {}
        roots: dict[int, Tensor] = {}
        for computed, share in differentiate(delta):
            for root, part in _to_roots(computed, share):
                roots[id(root)] = root
                by_root.setdefault(id(root), []).append(part)
        result: dict[nn.Parameter, list[Share]] = {}
        for key, parts in by_root.items():
            part, root = together(parts), roots[key]
            if key in self.embedded:
                root, words, padding = self.embedded[key]
                layer: Any = SimpleNamespace(weight=root, num_embeddings=len(root), padding_idx=padding)
                part = embedding(layer, words.expand(self.records, *words.shape), part.each())["weight"]
            result.setdefault(root, []).append(part)  # type: ignore[arg-type]
        return {parameter: together(parts) for parameter, parts in result.items()}

    # --- what comes of the records, and what of parameters alone ---

    def _moved(self, tensor: Tensor) -> bool | None:
        """Return whether the records of a tensor may lie in another dimension than the first; None if it has none."""
        key, moved = getattr(tensor, "_records", (None, None))
        return moved if key is self.key else None

    def mark(self, out: object, moved: bool) -> None:
        """Mark tensors as computed from the records."""
        if isinstance(out, Tensor):
            out._records = (self.key, moved)  # type: ignore[attr-defined]
        elif isinstance(out, (list, tuple)):
            for item in out:
                self.mark(item, moved)

    def _sorted(self, items: Iterable[Any]) -> tuple[list[Computed], bool | None]:
        """Return the items computed from parameters, and ``_moved`` of those that are computed from records."""
        computed: list[Computed] = []
        moved: bool | None = None
        for item in items:
            mark: bool | None = None
            if isinstance(item, Tensor):
                mark = self._moved(item)
                if mark is None and id(item) in self.computed:
                    computed.append(self.computed[id(item)])
            elif isinstance(item, (list, tuple, dict)):
                inner, mark = self._sorted(item.values() if isinstance(item, dict) else item)
                computed += inner
            elif type(item) is Rows:
                mark = False
            if mark is not None:
                moved = mark or bool(moved)
        return computed, moved

    def _sized(self, name: str, args: Sequence[Any], out: Any) -> Any:
        """Return a shape, or its first number, in which the number of rows is recognisable."""
        if type(out) is torch.Size and out and out[0] == self.rows:
            return torch.Size((Rows(out[0]), *out[1:]))
        return Rows(out) if name == "size" and args[1:] == (0,) and out == self.rows else out

    def _moves(self, name: str, args: Sequence[Any], given: dict[str, Any]) -> bool:
        """Return whether a function may move the first dimension, or select from it."""
        if name in SELECTING or (name == "where" and len(args) + len(given) == 1):
            return True
        if name == "repeat_interleave":  # each row as often as all others, behind each other
            return type(given.get("repeats", args[1] if len(args) > 1 else None)) is not int
        if name in ALONG:
            place = given.get("dim", args[ALONG[name]] if len(args) > ALONG[name] else 0)
            return not args or type(place) is not int or place % max(args[0].dim(), 1) == 0
        if name == "getitem":
            return self._selects(*args[1]) if isinstance(args[1], tuple) else self._selects(args[1])
        return name in MOVING and _moves(name, args, given)

    def _selects(self, first: Any = ..., *others: Any) -> bool:
        """Return whether an index may select from the first dimension, or put another one there."""
        tensors = [each for each in others if isinstance(each, (Tensor, list))]
        if isinstance(first, Tensor) and first.dtype == torch.int64 and first.shape == (self.rows,):
            return not torch.equal(first, torch.arange(self.rows, device=first.device))
        if first is not ... and not (isinstance(first, slice) and first == slice(None)):
            return True
        return len(tensors) > 1 or (first is ... and bool(tensors))

    def _compute(self, func: Any, args: Sequence[Any], given: dict[str, Any], computed: list[Computed]) -> Any:
        """Call a function of parameters alone, and note what it returns."""
        reflects = func is torch.linalg.householder_product and len(args) == 2 and args[0].dim() == 2
        out = Reflections.apply(*args) if reflects else func(*args, **given)  # type: ignore[no-untyped-call]
        roots = tuple({id(root): root for each in computed for root in each.roots}.values())
        for tensor in tree_flatten(out)[0]:
            if isinstance(tensor, Tensor) and tensor.requires_grad and id(tensor) not in self.computed:
                if func.__name__ == "embedding" and len(args) > 1 and isinstance(args[1], nn.Parameter):
                    padding = given.get("padding_idx", args[2] if len(args) > 2 else None)
                    self.embedded[id(tensor)] = args[1], args[0], padding
                    roots = (tensor,)
                normed = tuple(args[:2]) if func.__name__ == "_weight_norm" and self._by_rows(*args) else None
                self.computed[id(tensor)] = Computed(tensor, roots, normed)  # type: ignore[arg-type]
        return out

    def _by_rows(self, v: Any, g: Any, dim: int = 0) -> bool:
        """Return whether weight norm scales the rows of a matrix, of two parameters."""
        both = all(isinstance(part, nn.Parameter) and id(part) in self.computed for part in (v, g))
        return bool(both and dim == 0 and v.dim() == 2)

    # --- operations in which both meet ---

    def _meet(self, func: Any, args: Sequence[Any], given: dict[str, Any], moved: bool) -> Any:
        """Call a function of parameters and records, and note how it is differentiated."""
        name = _name(func)
        if moved:
            raise Unsupported(f"{name}() takes a parameter and records outside the first dimension; {BY_VMAP}")
        parts, form = tree_flatten((tuple(args), given))
        if name in ELEMENTWISE:
            args, given = tree_unflatten(self._expanded(name, parts), form)
            out = func(*args, **given)
        else:
            out = func(*args, **given)
            if not isinstance(out, Tensor) or func.__name__.endswith("_"):
                raise Unsupported(f"{name}() of a parameter and records has no rule; {BY_VMAP}")
            if out.requires_grad:
                way = self._as_linear(name, parts) or self._by_function(name, func, parts, form)
                self.found.append((get_gradient_edge(out), way))
        self.mark(out, False)
        return out

    def _expanded(self, name: str, parts: list[Any]) -> list[Any]:
        """Return the arguments of an elementwise function, those of parameters as wide as the records."""
        tensors = [leaf for leaf in parts if isinstance(leaf, Tensor)]
        width = max(tensor.dim() for tensor in tensors)
        wide = [tensor for tensor in tensors if tensor.dim() == width and self.of_records(tensor)]
        rows = wide[0].shape[0] if wide and width else 1
        result = []
        for leaf in parts:
            if not isinstance(leaf, Tensor) or self.of_records(leaf) or id(leaf) not in self.computed:
                result.append(leaf)
                continue
            shape = (1,) * (width - leaf.dim()) + leaf.shape
            if rows % self.records or shape[0] != 1:
                raise Unsupported(f"{name}() of a parameter has not the records in its first dimension; {BY_VMAP}")
            each = leaf.reshape(shape).expand(rows, *shape[1:])
            result.append(each)
            self.found.append((get_gradient_edge(each), self._by_place(self.computed[id(leaf)])))
        return result

    def _by_place(self, computed: Computed) -> Differentiate:
        """Return the derivative of an elementwise function: the gradient of the expanded tensor, by record."""

        def way(delta: Tensor) -> list[tuple[Computed, Share]]:
            each = self._by_record(delta)
            return [(computed, explicit(each.sum(dim=1).reshape(self.records, *computed.tensor.shape)))]

        return way

    def _as_linear(self, name: str, parts: list[Any]) -> Differentiate | None:
        """Return the derivative of x W^T + b or of x W; None for another function, or of other arguments."""
        if name not in ("linear", "matmul") or not self.of_records(parts[0]) or id(parts[1]) not in self.computed:
            return None
        rows, weight = parts[0].detach(), self.computed[id(parts[1])]
        bias = self.computed.get(id(parts[2])) if name == "linear" and len(parts) > 2 else None
        if weight.tensor.dim() != 2 or rows.dim() < 2:
            return None
        version = rows._version

        def way(delta: Tensor) -> list[tuple[Computed, Share]]:
            _refuse_changed(name, rows, version)
            h, d = (self._by_record(x.to(delta.dtype)).flatten(1, -2) for x in (rows, delta))
            first, second = (h, d) if name == "linear" else (d, h)
            one = h.shape[1] == 1
            share = outer(first.squeeze(1), second.squeeze(1)) if one else products(first, second)
            return [(weight, share), *([(bias, explicit(d.sum(dim=1)))] if bias else [])]

        return way

    def _by_function(self, name: str, func: Any, parts: list[Any], form: Any) -> Differentiate:
        """Return the derivative of any other function: that of its value for each record alone, by torch.func."""
        fixed = [leaf.detach() if isinstance(leaf, Tensor) else leaf for leaf in parts]
        fixed = [int(leaf) // self.records if type(leaf) is Rows else leaf for leaf in fixed]
        own = {place: self.computed[id(leaf)] for place, leaf in enumerate(parts) if self._is_computed(leaf)}
        others = {place: fixed[place]._version for place, leaf in enumerate(parts) if self.of_records(leaf)}

        def way(delta: Tensor) -> list[tuple[Computed, Share]]:
            for place, version in others.items():
                _refuse_changed(name, fixed[place], version)

            def value(tensors: list[Tensor], rows: list[Tensor], d: Tensor) -> Tensor:
                arguments = dict(enumerate(fixed)) | dict(zip(own, tensors, strict=True))
                arguments |= dict(zip(others, rows, strict=True))
                args, given = tree_unflatten(list(arguments.values()), form)
                out = func(*args, **given)
                if out.shape != d.shape:
                    raise Unsupported(f"{name}() of one record has another shape than in the batch; {BY_VMAP}")
                result: Tensor = (out * d).sum()
                return result

            rows = [self._by_record(_as(fixed[place], delta)) for place in others]
            tensors = [fixed[place].to(delta.dtype) for place in own]
            try:
                with one_by_one():
                    grads = batched(grad(value), in_dims=(None, 0, 0))(tensors, rows, self._by_record(delta))
            except RuntimeError as error:
                reason = str(error).strip().partition("\n")[0]
                raise Unsupported(f"torch.func cannot differentiate {name}() ({reason}); {BY_VMAP}") from error
            return [(computed, explicit(each)) for computed, each in zip(own.values(), grads, strict=True)]

        return way

    def _is_computed(self, leaf: object) -> bool:
        return isinstance(leaf, Tensor) and not self.of_records(leaf) and id(leaf) in self.computed

    def _by_record(self, rows: Tensor) -> Tensor:
        """Return [B, k, ...] from rows [B k, ...], of which k follow each other for each record."""
        if not rows.dim() or len(rows) % self.records:
            raise Unsupported(f"a parameter is used on a tensor without the records in its first dimension; {BY_VMAP}")
        return rows.reshape(self.records, -1, *rows.shape[1:])


class Reflections(torch.autograd.Function):
    """``torch.linalg.householder_product`` of one matrix, of which the gradients of many records are fast.

    The product of the reflections 1 - tau_j v_j v_j^T is 1 - V T V^T with T = (1 + D U)^-1 D, where D holds tau, and U
    is what V^T V has above its diagonal. So the gradients are matrix products with T.

    Source: Joffrain et al. (2006), the UT transform.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(lower: Tensor, tau: Tensor) -> Tensor:  # type: ignore[override]
        """Return Q; the columns of ``lower`` hold v_j below the diagonal, where v_j is 1."""
        product: Tensor = torch.linalg.householder_product(lower, tau)
        return product

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        """Keep both arguments."""
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, delta: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        """Return the gradients of both arguments."""
        lower, tau = ctx.saved_tensors
        count = lower.shape[1]
        first = torch.eye(*lower.shape, dtype=lower.dtype, device=lower.device)
        v = lower.tril(-1) + first
        top, above = v[:count], (v.T @ v).triu(1)
        inverse = torch.linalg.inv(first[:count] + tau.unsqueeze(1) * above)
        t = inverse * tau
        # of Q = E - V T W with W = V^T E, from the last step to the first
        along = v.T @ delta
        of_w, of_t = -t.T @ along, -along @ top
        z = inverse.T @ of_t
        of_n = -z @ t.T
        of_above = (tau.unsqueeze(1) * of_n).triu(1)
        of_v = v @ (of_above + of_above.T) - delta @ (top @ t.T) + first @ of_w.T
        return of_v.tril(-1), (z.diagonal() + (of_n * above).sum(dim=1))


@contextmanager
def one_by_one() -> Iterator[None]:
    """Let torch.func batch a function one record at a time without a warning: slower, and right."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)
        yield


def _name(func: Any) -> str:
    """Return the name of a function of torch, without the underscores of operators and of changes in place."""
    name: str = func.__self__.__name__ if func.__name__ == "__get__" else func.__name__
    return name.strip("_")


def _moves(name: str, args: Sequence[Any], given: dict[str, Any]) -> bool:
    """Return whether a function in ``MOVING`` may move the first dimension."""
    if not args:
        return True  # all arguments have names
    if name == "permute" and not given:
        return bool((args[1] if isinstance(args[1], (list, tuple)) else args[1:])[0])
    places = [*args[1:], *given.values()]
    if name not in ("transpose", "swapaxes", "swapdims", "unsqueeze", "stack") or not places:
        return True
    count = (args[0][0] if name == "stack" else args[0]).dim() + (name in ("stack", "unsqueeze"))
    return any(place % count == 0 for place in places)


def _to_roots(computed: Computed, share: Share) -> list[tuple[Tensor, Share]]:
    """Return the gradients by record of the roots of a computed tensor, of which ``share`` has the gradients."""
    tensor, roots = computed.tensor, computed.roots
    if tensor is roots[0]:
        return [(tensor, share)]
    if computed.normed is not None and share.factors is not None:
        return _of_normed(*computed.normed, *share.factors)
    size = max(1, TOGETHER // max(root.numel() for root in roots))
    options = {"retain_graph": True, "allow_unused": True, "is_grads_batched": True}
    deltas = torch.split(share.each().to(tensor.dtype), size)
    try:
        with one_by_one():
            pieces = [torch.autograd.grad(tensor, roots, delta, **options) for delta in deltas]
    except RuntimeError as error:
        reason = str(error).strip().partition("\n")[0]
        raise Unsupported(
            f"the gradients of several records cannot be computed together ({reason}); {BY_VMAP}"
        ) from error
    parts = zip(roots, zip(*pieces, strict=True), strict=True)
    return [(root, explicit(torch.cat(grads))) for root, grads in parts if grads[0] is not None]


def _of_normed(v: Tensor, g: Tensor, h: Tensor, d: Tensor) -> list[tuple[Tensor, Share]]:
    """Return the gradients of v and g where those of g v / |v|, row by row, are G_i = sum over t of d_it h_it^T.

    With u = v / |v| that of g is G u by rows, and that of v is g / |v| (G - (G u) u), whose squared norm is a
    difference: a bound on the rounding of both terms, and of the sum, is added.
    """
    lengths = torch.linalg.vector_norm(v, dim=1, keepdim=True)
    unit, scale = (v / lengths).to(h.dtype), (g / lengths).to(h.dtype)
    of_g = (d * (h @ unit.T)).sum(dim=1)
    whole = ((h @ h.transpose(1, 2)) @ d * d).sum(dim=1)
    sizes = (torch.linalg.vector_norm(h, dim=2) * torch.linalg.vector_norm(d * scale.T, dim=2)).sum(dim=1)
    rough = 4 * roughness(h.dtype) * math.sqrt(h.shape[2] + d.shape[2])
    squares = (whole - of_g.square()).clamp(min=0.0) @ scale.square().squeeze(1) + sizes.square() * rough

    def weighted(factors: Tensor) -> Tensor:
        sums = (d * factors.view(-1, 1, 1)).flatten(0, 1).T @ h.flatten(0, 1)
        result: Tensor = scale * (sums - (factors @ of_g).unsqueeze(1) * unit)
        return result

    def each() -> Tensor:
        result: Tensor = scale * (d.transpose(1, 2) @ h - of_g.unsqueeze(2) * unit)
        return result

    return [(v, Share(squares, weighted, each)), (g, explicit(of_g.unsqueeze(2)))]


def _as(tensor: Tensor, like: Tensor) -> Tensor:
    return tensor.to(like.dtype) if tensor.is_floating_point() else tensor


def _refuse_changed(name: str, tensor: Tensor, version: int) -> None:
    if tensor._version != version:
        raise Unsupported(f"a tensor was changed in place after {name}() of it and a parameter; {BY_VMAP}")
