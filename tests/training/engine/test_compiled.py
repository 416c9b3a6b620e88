"""The functions in C give what torch and multi-precision arithmetic give, example by example, or are not used."""

from __future__ import annotations

import mpmath
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.grad import conv2d_weight

from wpriv.training.clipping.clip import clipped_sum
from wpriv.training.noise import library
from wpriv.training.noise.noise_stream import Noise
from wpriv.training.noise.release import Bounded, add_noise

FUNCTIONS = library.library()
needs_compiler = pytest.mark.skipif(FUNCTIONS is None, reason="needs a C compiler")
LAYOUTS = (torch.contiguous_format, torch.channels_last)
sizes = st.tuples(st.integers(1, 3), st.integers(1, 3))


@pytest.fixture
def afresh():
    """Let the test compile, or fail to; what was loaded before is loaded again afterwards."""
    library.library.cache_clear()
    yield
    library.library.cache_clear()


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, stride=2, padding=2), nn.Tanh(), nn.Conv2d(6, 5, 3), nn.Flatten(), nn.LazyLinear(3)
    )


def losses(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets, reduction="none")


@pytest.mark.slow
@needs_compiler
@settings(max_examples=60, deadline=None)
@given(
    inputs=st.integers(1, 9),
    outputs=st.integers(1, 19),
    image=st.tuples(st.integers(7, 15), st.integers(7, 15)),
    kernel=sizes,
    stride=sizes,
    padding=sizes,
    dilation=sizes,
    layouts=st.tuples(st.sampled_from(LAYOUTS), st.sampled_from(LAYOUTS)),
    seed=st.integers(0, 2**31),
)
def test_gradients_are_those_of_torch_on_each_example_in_double_precision(
    inputs, outputs, image, kernel, stride, padding, dilation, layouts, seed
):
    generator = torch.Generator().manual_seed(seed)
    h = torch.randn(2, inputs, *image, generator=generator)
    shape = F.conv2d(h, h.new_empty(outputs, inputs, *kernel), None, stride, padding, dilation).shape
    delta = torch.randn(shape, generator=generator)
    args = (h.contiguous(memory_format=layouts[0]), delta.contiguous(memory_format=layouts[1]))
    grads = library.kernel_gradients(FUNCTIONS, *args, kernel, stride, padding, dilation)
    for example in range(2):
        x, d = h[example : example + 1].double(), delta[example : example + 1].double()
        wanted = conv2d_weight(x, (outputs, inputs, *kernel), d, stride, padding, dilation)
        torch.testing.assert_close(grads[example].movedim(-1, 1).double(), wanted, rtol=1e-4, atol=1e-4)


@needs_compiler
@pytest.mark.parametrize("threads", [2, 3, 16])
def test_an_examples_gradient_depends_neither_on_the_others_nor_on_the_threads(threads):
    h, delta = torch.randn(7, 3, 9, 9), torch.randn(7, 10, 9, 9)
    h[4], delta[4] = torch.nan, torch.inf
    setting = ((3, 3), (1, 1), (1, 1), (1, 1))
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        grads = library.kernel_gradients(FUNCTIONS, h, delta, *setting)
    finally:
        torch.set_num_threads(before)
    for example in (0, 1, 2, 3, 5, 6):
        alone = library.kernel_gradients(FUNCTIONS, h[[example]], delta[[example]], *setting)
        assert torch.equal(grads[example], alone[0])
    assert library.kernel_gradients(FUNCTIONS, h[:0], delta[:0], *setting).shape == (0, 10, 3, 3, 3)


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("half", [False, True])
def test_clipped_sums_are_those_without_the_compiled_function_and_no_gradient_is_longer_than_the_norm(
    half, monkeypatch
):
    monkeypatch.setattr(library, "COMPILE", 0)
    calls, compiled = [], library.kernel_gradients
    monkeypatch.setattr(library, "kernel_gradients", lambda *args: calls.append(1) or compiled(*args))
    x, y = torch.randn(40, 1, 15, 15) * torch.logspace(-2, 3, 40).view(-1, 1, 1, 1), torch.randint(3, (40,))
    model = network()
    model(x)
    arguments = {"norm": 0.7, "adjacency": "add-remove"}
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        found = clipped_sum(model, losses, x, y, **arguments)
        assert calls
        for k in range(40):
            parts = clipped_sum(model, losses, x[[k]], y[[k]], **arguments).total.parts
            assert torch.cat([part.double().flatten() for part in parts]).norm() <= 0.7
        monkeypatch.setattr(library, "COMPILE", 2**60)
        before = len(calls)
        wanted = clipped_sum(model, losses, x, y, **arguments)
        assert len(calls) == before
    assert (wanted.norms > 0.7).any()
    torch.testing.assert_close(found.norms, wanted.norms, rtol=1e-4, atol=0.0)
    for part, reference in zip(found.total.parts, wanted.total.parts, strict=True):
        torch.testing.assert_close(part, reference, rtol=1e-3, atol=1e-4)


@needs_compiler
def test_normal_pairs_are_those_of_multi_precision_arithmetic_to_46_bits():
    words = torch.randint(-(2**31), 2**31, (4, 600), dtype=torch.int32, generator=torch.Generator().manual_seed(1))
    words[:2] &= 2**31 - 1
    edges = [0, 1, 2**29, 2**30, 2**31 - 1]
    words[0, :5], words[0, 5:10] = torch.tensor(edges), torch.tensor(edges[::-1])
    words[2, :10] = torch.tensor([0, 1, -1, 2**29, -(2**29), 2**30, -(2**30), 2**31 - 1, -(2**31), 2**29 - 1])
    words[3, :10] = 0
    numbers = torch.empty(3, 600, dtype=torch.float64)
    library.normal_pairs(FUNCTIONS, words[:3], words[3], 3.0, numbers[:2], numbers[2])
    with mpmath.workprec(160):
        for pair in range(600):
            high, low, turn, fine = (int(word) for word in words[:, pair])
            share = mpmath.mpf(2**32 * high + 2 * low + 1) / 2**63
            angle = 2 * mpmath.pi * (mpmath.mpf(turn) + mpmath.mpf(fine) / 2**32) / 2**32
            # as in torch, U is rounded to a float64 before its logarithm is taken
            length = 3 * mpmath.sqrt(-2 * mpmath.log(mpmath.mpf(float(share))))
            wanted = (length * mpmath.cos(angle), length * mpmath.sin(angle), length)
            for number, exact in zip(numbers[:, pair].tolist(), wanted, strict=True):
                assert abs(number - exact) <= length * mpmath.mpf(2) ** -46


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("exact", [False, True])
def test_releases_are_the_same_bit_for_bit_without_the_compiled_functions(exact, monkeypatch, afresh):
    count = 2**17 + 3
    if exact:
        grid = 2.0**-31
        parts = [torch.arange(count, dtype=torch.float64) * grid]
    else:
        grid, parts = 0.0, [torch.linspace(-3.0, 5.0, count), torch.ones(3)]
    total = Bounded(parts, 1.3, "add-remove", grid, torch.float32)
    compiled = add_noise(total, 0.7, Noise(bytes(32)), exact=exact)
    assert library.used() == "compiled"
    monkeypatch.setenv(library.VARIABLE, "0")
    library.library.cache_clear()
    plain = add_noise(total, 0.7, Noise(bytes(32)), exact=exact)
    assert library.used() == "torch"
    assert all(torch.equal(one, other) for one, other in zip(compiled, plain, strict=True))


@pytest.mark.parametrize("compiler", ["no-such-compiler", "false", "true"])
def test_without_a_compiler_that_works_torch_is_used(compiler, monkeypatch, afresh):
    assert library.used() == "torch"
    monkeypatch.setenv("CC", compiler)
    assert library.library() is None
    assert library.used() == "torch"
    assert Noise(bytes(32)).normal(100_000).isfinite().all()


@pytest.fixture
def double_by_default():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.slow
@needs_compiler
def test_functions_are_compiled_and_used_under_autocast_and_another_default_type(afresh, double_by_default):
    with torch.autocast("cpu", torch.bfloat16), torch.device("meta"):
        functions = library.library()
    assert functions is not None
    h, delta = torch.randn(2, 3, 6, 6, dtype=torch.float32), torch.randn(2, 4, 6, 6, dtype=torch.float32)
    grads = library.kernel_gradients(functions, h, delta, (3, 3), (1, 1), (1, 1), (1, 1))
    assert grads.dtype == torch.float32
    for example in range(2):
        wanted = conv2d_weight(h[[example]].double(), (4, 3, 3, 3), delta[[example]].double(), padding=1)
        torch.testing.assert_close(grads[example].movedim(-1, 1).double(), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("sine = 1.0 / 355687428096000", "sine = 1e-3"),
        ("rint(", "floor("),
        ("g->pad_height) * row", "g->pad_width) * 0"),
    ],
)
def test_functions_that_do_not_agree_with_torch_are_not_used(right, wrong, monkeypatch, afresh, tmp_path):
    source = library.SOURCE.read_text(encoding="utf-8")
    assert right in source
    path = tmp_path / "kernels.c"
    path.write_text(source.replace(right, wrong), encoding="utf-8")
    monkeypatch.setattr(library, "SOURCE", path)
    assert library.library() is None


@needs_compiler
@pytest.mark.parametrize(
    "shapes", [[(16383,), (1,)], [(300, 101), (5,), (0,), (), (7, 7)], [(100,), (2**19 + 3,)]], ids=str
)
def test_noise_in_one_pass_is_bit_for_bit_the_noise_that_is_drawn_and_then_added(shapes):
    parts = [torch.randn(shape, generator=torch.Generator().manual_seed(3)) for shape in shapes]
    if parts[0].dim() == 2:
        parts[0] = parts[0].T
    deviation, grid, sizes = 1.3 * 2**20, 2.0**-20, [part.numel() for part in parts]
    source, again = Noise(bytes(32)), Noise(bytes(32))
    sums = source.noisy_sum(parts, deviation, grid)
    drawn = again.normal(sum(sizes), deviation, torch.float64).split(sizes)
    wanted = [(z.view(p.shape) + p.double() / grid).round() * grid for z, p in zip(drawn, parts, strict=True)]
    assert all(torch.equal(mine, whole.float()) for mine, whole in zip(sums, wanted, strict=True))
    assert source.state() == again.state()
