"""The loss of each record is that of torch on a batch of this record alone."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from wpriv.errors import UsageError
from wpriv.training.tasks import _given

GENERATOR = torch.Generator().manual_seed(0)
OUTPUTS = torch.randn(7, 5, generator=GENERATOR, dtype=torch.float64)
LABELS = torch.tensor([0, 4, 2, 3, 1, 1, 0])
NUMBERS = torch.randn(7, 5, generator=GENERATOR, dtype=torch.float64)
SHARES = torch.softmax(NUMBERS, 1)
SIGNS = NUMBERS.sign()
WEIGHT = torch.tensor([0.5, 2.0, 0.0, 3.0, 1.0], dtype=torch.float64)
TOKENS = torch.randn(7, 5, 6, generator=GENERATOR, dtype=torch.float64)
TOKEN_LABELS = torch.randint(0, 5, (7, 6), generator=GENERATOR)
# (kind of loss, its arguments, outputs, targets): of all of them torch divides the mean by the number of elements alone
LOSSES = [
    (nn.CrossEntropyLoss, {}, OUTPUTS, LABELS),
    (nn.CrossEntropyLoss, {"label_smoothing": 0.2}, OUTPUTS, LABELS),
    (nn.CrossEntropyLoss, {"weight": WEIGHT, "label_smoothing": 0.2}, OUTPUTS, SHARES),
    (nn.CrossEntropyLoss, {}, TOKENS, TOKEN_LABELS),
    (nn.NLLLoss, {}, OUTPUTS.log_softmax(1), LABELS),
    (nn.MultiMarginLoss, {"weight": WEIGHT, "margin": 0.5}, OUTPUTS, LABELS),
    (nn.MSELoss, {}, OUTPUTS, NUMBERS),
    (nn.L1Loss, {}, OUTPUTS, NUMBERS),
    (nn.SmoothL1Loss, {"beta": 0.3}, OUTPUTS, NUMBERS),
    (nn.HuberLoss, {"delta": 0.3}, OUTPUTS, NUMBERS),
    (nn.BCELoss, {"weight": WEIGHT}, OUTPUTS.sigmoid(), SHARES),
    (nn.BCEWithLogitsLoss, {"pos_weight": WEIGHT}, OUTPUTS, SHARES),
    (nn.KLDivLoss, {}, OUTPUTS.log_softmax(1), SHARES),
    (nn.KLDivLoss, {"log_target": True}, OUTPUTS.log_softmax(1), SHARES.log()),
    (nn.PoissonNLLLoss, {"full": True}, OUTPUTS, NUMBERS.abs()),
    (nn.SoftMarginLoss, {}, OUTPUTS, SIGNS),
    (nn.HingeEmbeddingLoss, {}, OUTPUTS, SIGNS),
    (nn.MultiLabelSoftMarginLoss, {"weight": WEIGHT}, OUTPUTS, SHARES.round()),
    (nn.MultiLabelMarginLoss, {}, OUTPUTS, torch.tensor([[3, 0, -1, 1, 1]] * 7)),
]


def alone(loss, outputs, targets):
    """The oracle: torch's own value on each record by itself."""
    return torch.stack([loss(outputs[k : k + 1], targets[k : k + 1]).sum() for k in range(len(outputs))])


@pytest.mark.filterwarnings("ignore:reduction")
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize(("kind", "arguments", "outputs", "targets"), LOSSES)
def test_a_record_has_the_loss_of_torch_on_this_record_alone(kind, arguments, outputs, targets, reduction):
    loss = kind(**arguments, reduction=reduction)
    torch.testing.assert_close(_given.per_record(loss)(outputs, targets), alone(loss, outputs, targets))
    assert loss.reduction == reduction


def test_kl_divergence_by_batchmean_is_the_sum_over_the_outputs_of_a_record():
    loss = nn.KLDivLoss(reduction="batchmean")
    outputs = OUTPUTS.log_softmax(1)
    values = _given.per_record(loss)(outputs, SHARES)
    torch.testing.assert_close(values, alone(loss, outputs, SHARES))
    torch.testing.assert_close(values.mean(), loss(outputs, SHARES))
    torch.testing.assert_close(values, (SHARES * (SHARES.log() - outputs)).sum(1))  # by hand


@pytest.mark.parametrize("ignored", [-100, -1, 2])
def test_what_is_ignored_does_not_count_and_a_record_of_nothing_else_has_loss_0(ignored):
    targets = TOKEN_LABELS.clone()
    targets[:, 4:] = ignored
    targets[3] = ignored
    loss = nn.CrossEntropyLoss(ignore_index=ignored)
    values = _given.per_record(loss)(TOKENS, targets)
    kept = [k for k in range(7) if k != 3]
    torch.testing.assert_close(values[kept], alone(loss, TOKENS[kept], targets[kept]))
    assert values[3] == 0
    assert _given.per_record(loss)(OUTPUTS, torch.full((7,), ignored)).tolist() == [0.0] * 7


def test_class_weights_multiply_the_loss_and_are_not_divided_out():
    for kind, outputs in ((nn.CrossEntropyLoss, OUTPUTS), (nn.NLLLoss, OUTPUTS.log_softmax(1))):
        plain = -OUTPUTS.log_softmax(1)[torch.arange(7), LABELS]  # by hand
        for reduction in ("mean", "sum", "none"):
            values = _given.per_record(kind(weight=WEIGHT, reduction=reduction))(outputs, LABELS)
            torch.testing.assert_close(values, WEIGHT[LABELS] * plain)
        # torch's weighted mean over one record loses the weight
        torch.testing.assert_close(kind(weight=WEIGHT)(outputs[:1], LABELS[:1]), plain[0])


def test_numbers_to_predict_may_stand_with_or_without_a_dimension_of_their_own():
    column, loss = OUTPUTS[:, :1], _given.per_record(nn.MSELoss(reduction="none"))
    expected = (column - NUMBERS[:, :1]).square()[:, 0]
    torch.testing.assert_close(loss(column, NUMBERS[:, :1]), expected)
    torch.testing.assert_close(loss(column[:, 0], NUMBERS[:, :1]), expected)
    torch.testing.assert_close(loss(column, NUMBERS[:, 0]), expected)
    whole = _given.per_record(nn.MSELoss())(column, LABELS)
    torch.testing.assert_close(whole, (column[:, 0] - LABELS).square())


@pytest.mark.parametrize(
    ("loss", "targets", "fact"),
    [
        (nn.MSELoss(reduction="none"), NUMBERS, "5 numbers for each record.*'mean' or 'sum'"),
        (nn.MSELoss(), NUMBERS[:, 0], "one shape"),
        (nn.KLDivLoss(), SHARES[:, :1], "one shape"),
        (nn.PoissonNLLLoss(), LABELS, "one shape"),
        (nn.BCELoss(weight=torch.ones(7, 1)), SHARES, "for each record of a batch"),
    ],
)
def test_a_loss_that_is_not_one_number_of_one_record_is_refused(loss, targets, fact):
    with pytest.raises(UsageError, match=fact):
        _given.per_record(loss)(OUTPUTS.sigmoid(), targets)


@pytest.mark.parametrize("loss", [nn.CosineEmbeddingLoss(), nn.GaussianNLLLoss(), nn.TripletMarginLoss(), nn.CTCLoss()])
def test_a_loss_of_other_arguments_is_refused_by_their_names(loss):
    with pytest.raises(UsageError, match=r"takes .*target|takes anchor"):
        _given.per_record(loss)
