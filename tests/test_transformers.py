"""Private training in a transformers Trainer. Oracles: torch's loss of a record alone, plain steps, and the ledger."""

from __future__ import annotations

import copy
import json
import math

import pytest
import torch

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")
from torch.nn.functional import cross_entropy  # noqa: E402
from transformers import BertConfig, BertForSequenceClassification, GPT2Config, GPT2LMHeadModel  # noqa: E402

from wpriv import budget  # noqa: E402
from wpriv.errors import Unsupported, UsageError  # noqa: E402
from wpriv.training.clipping.record_trees import records_of  # noqa: E402
from wpriv.transformers import OpacusLedger, PrivateTrainer, RecordLosses, RecordOutputs, _default_loss, _of_each  # noqa: E402

RECORDS, LENGTH, BATCH, STEPS = 40, 6, 8, 4
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")


def gpt2(dropout=0.0):
    torch.manual_seed(0)
    rates = {"resid_pdrop": dropout, "embd_pdrop": dropout, "attn_pdrop": dropout}
    end = {"bos_token_id": 0, "eos_token_id": 0}
    return GPT2LMHeadModel(GPT2Config(vocab_size=12, n_embd=8, n_layer=1, n_head=2, n_positions=16, **rates, **end))


def bert():
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    return BertForSequenceClassification(
        BertConfig(vocab_size=12, max_position_embeddings=16, num_labels=3, **sizes, hidden_dropout_prob=0.0)
    )


def texts(count=RECORDS, labels="tokens", seed=0):
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for number in range(count):
        mask = torch.arange(LENGTH) < 3 + number % (LENGTH - 2)
        words = torch.randint(1, 12, (LENGTH,), generator=generator) * mask
        goals = torch.where(mask, words, -100) if labels == "tokens" else torch.tensor(number % 3)
        rows.append({"input_ids": words, "attention_mask": mask.long(), "labels": goals})
    return rows


def arguments(folder, **changes):
    quiet = {"report_to": [], "save_strategy": "no", "disable_tqdm": True, "use_cpu": True, "max_grad_norm": 0.0}
    return transformers.TrainingArguments(
        str(folder / "hf"), **{"max_steps": STEPS, "learning_rate": 0.01, "logging_steps": 1, **quiet, **changes}
    )


def private(folder, model=None, rows=None, settings=None, kind=PrivateTrainer, **changes):
    options = {"epsilon": 3.0, "delta": 1e-3, "clip": 0.1, "expected_batch": BATCH, "out": folder / "run"}
    model = gpt2() if model is None else model
    rows = texts() if rows is None else rows
    return kind(model, arguments(folder, **(settings or {})), **{**options, "train_dataset": rows, **changes})


def lines(folder):
    return [json.loads(line) for line in (folder / "run" / "ledger.jsonl").read_text().splitlines()]


def batch_of(rows):
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}


def losses_of(model, batch):
    """The losses as the trainer gets them."""
    loss = _default_loss(model.eval(), batch)
    if loss is None:
        return RecordLosses(model)(records_of(batch))
    inputs = records_of({name: part for name, part in batch.items() if name != "labels"})
    return _of_each(loss, RecordOutputs(model)(inputs), batch["labels"])


@pytest.mark.parametrize(("model", "labels"), [(gpt2, "tokens"), (bert, "class")])
def test_the_loss_of_a_record_is_that_of_the_model_on_the_record_alone(model, labels):
    """Oracle: the model's own loss of a batch of one."""
    network, batch = model(), batch_of(texts(9, labels))
    alone = [network.eval()(**{name: part[row : row + 1] for name, part in batch.items()}).loss for row in range(9)]
    assert torch.allclose(losses_of(network, batch), torch.stack(alone), rtol=1e-6)


def test_a_causal_loss_is_the_mean_over_the_tokens_that_count_and_0_without_any():
    """Oracle: torch's cross-entropy of the next words with a label, by hand; not over all tokens of the batch."""
    network, batch = gpt2(), batch_of(texts(5))
    batch["labels"][2] = -100
    losses, scores = (
        losses_of(network, batch),
        network(batch["input_ids"], attention_mask=batch["attention_mask"]).logits,
    )
    for row in (0, 1, 3, 4):
        goals = batch["labels"][row, 1:]
        assert float(losses[row]) == pytest.approx(float(cross_entropy(scores[row, :-1], goals)), rel=1e-5)
    assert float(losses[2]) == 0
    losses.sum().backward()
    assert all(bool(weight.grad.isfinite().all()) for weight in network.parameters())


def test_a_model_whose_loss_does_not_follow_from_its_outputs_passes_each_record_by_itself():
    class Further(GPT2LMHeadModel):
        def forward(self, *args, **keywords):
            outputs = super().forward(*args, **keywords)
            if outputs.loss is not None:
                outputs.loss = outputs.loss + outputs.logits.square().mean()
            return outputs

    network, batch = Further(gpt2().config), batch_of(texts(4))
    assert _default_loss(network, batch) is None
    alone = [network.eval()(**{name: part[row : row + 1] for name, part in batch.items()}).loss for row in range(4)]
    assert torch.allclose(losses_of(network, batch), torch.stack(alone), rtol=1e-6)


def test_the_target_is_kept_with_a_ledger_line_for_each_step_of_the_trainer(tmp_path):
    trainer = private(tmp_path, gpt2(0.1), eval_dataset=texts(6, seed=1), unit="sentence")
    output = trainer.train()
    assert output.global_step == trainer.state.global_step == len(lines(tmp_path)) == STEPS
    assert 2.99 < trainer.result.epsilon <= 3.0
    assert trainer.result.statement["unit"] == "one sentence of the training set"
    rates = [row["learning_rate"] for row in trainer.state.log_history if "learning_rate" in row]
    assert rates == pytest.approx([0.01, 0.0075, 0.005, 0.0025])
    assert not any({"loss", "train_loss"} & row.keys() for row in trainer.state.log_history)
    assert math.isnan(output.training_loss)
    assert "train_loss" not in output.metrics
    assert trainer.evaluate()["eval_loss"] > 0


def test_the_weights_are_those_of_plain_steps_without_noise_and_clipping(tmp_path, monkeypatch):
    """Oracle: torch's SGD on the drawn batches, at the logged rates, of the records' own losses alone."""
    monkeypatch.setattr("wpriv.training.engine.loop.add_noise", lambda total, *args, **options: list(total.parts))
    trainer, drawn = private(tmp_path, clip=1e30, settings={"optim": "sgd", "learning_rate": 1.0}), []
    plain = copy.deepcopy(trainer.model)
    ahead = trainer.batches.drawn.ahead
    monkeypatch.setattr(trainer.batches.drawn, "ahead", lambda: drawn.append(ahead()) or drawn[-1])
    trainer.train()
    optimizer = torch.optim.SGD(plain.parameters(), lr=1.0)
    rates = [row["learning_rate"] for row in trainer.state.log_history if "learning_rate" in row]
    for places, rate in zip(drawn[:STEPS], rates, strict=True):
        optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad()
        for place in places:
            one = {name: part.unsqueeze(0) for name, part in texts()[place].items()}
            (plain(**one).loss / BATCH).backward()
        optimizer.step()
    for mine, theirs in zip(trainer.model.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(mine, theirs, rtol=0, atol=1e-6)


def test_one_record_moves_the_sum_by_at_most_the_clipping_bound(tmp_path, monkeypatch):
    """Oracle: the sums of two data sets that differ in one record, by the same batches and without noise."""
    sums = []

    def kept(total, *args, **options):
        sums.append(torch.cat([part.flatten() for part in total.parts]))
        return list(total.parts)

    monkeypatch.setattr("wpriv.training.engine.loop.add_noise", kept)
    rows, others = texts(), texts()
    others[3] = {**others[3], "input_ids": others[3]["input_ids"].flip(0) % 5 + 6, "labels": torch.full((LENGTH,), 11)}
    for number, data in enumerate((rows, others)):
        trainer = private(tmp_path / str(number), rows=data, expected_batch=RECORDS, settings={"max_steps": 1})
        trainer.train()
    assert 0 < float((sums[0] - sums[1]).norm()) <= 0.2 * (1 + 1e-5)  # one leaves and one comes: 2 C
    assert len(sums) == 2


def test_epochs_count_steps_by_the_expected_batch(tmp_path):
    trainer = private(tmp_path, settings={"max_steps": -1, "num_train_epochs": 1.1})
    assert trainer.args.max_steps == math.ceil(1.1 * RECORDS / BATCH) == 6
    trainer.train()
    assert len(lines(tmp_path)) == 6


def test_an_adapter_of_peft_is_trained_and_the_rest_stays(tmp_path):
    peft = pytest.importorskip("peft")
    settings = peft.LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True)
    model = peft.get_peft_model(gpt2(), settings)
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    trainer = private(tmp_path, model)
    trainer.train()
    for name, weight in model.named_parameters():
        assert torch.equal(weight, before[name]) == ("lora_" not in name)
    trained = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    assert any(f"{trained:,} of" in line and "lora_A" in line for line in trainer.result.statement["remarks"])


def test_a_loss_of_ones_own_gets_one_record_at_a_time(tmp_path):
    def twice(outputs, labels, num_items_in_batch=None):
        assert len(labels) == len(outputs.logits) == 1
        assert num_items_in_batch is None
        return 2 * cross_entropy(outputs.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())

    private(tmp_path, compute_loss_func=twice).train()
    assert len(lines(tmp_path)) == STEPS


def test_a_callback_may_stop_early_and_the_statement_names_the_steps_that_ran(tmp_path):
    class Stops(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **keywords):
            control.should_training_stop = state.global_step == 2

    trainer = private(tmp_path, callbacks=[Stops()])
    assert trainer.train().global_step == 2 == trainer.result.statement["steps"] == len(lines(tmp_path))
    assert 2.99 < trainer.result.epsilon <= 3.0


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"gradient_accumulation_steps": 2}, "give a larger `expected_batch`, and `physical=`"),
        ({"label_smoothing_factor": 0.1}, "compute_loss_func"),
        ({"max_grad_norm": 1.0}, "set it to 0"),
        ({"auto_find_batch_size": True}, "give `expected_batch`"),
        ({"train_sampling_strategy": "group_by_length"}, "needs Poisson sampling"),
        ({"torch_compile": True}, "leave it out"),
        ({"bf16": True}, "leave it out"),
        ({"load_best_model_at_end": True, "save_strategy": "steps", "eval_strategy": "steps"}, "output_dir"),
        ({"include_num_input_tokens_seen": "all"}, "must stay secret"),
        ({"neftune_noise_alpha": 1.0}, "leave it out"),
    ],
)
def test_settings_that_break_a_private_step_are_refused_with_a_way_out(tmp_path, settings, words):
    with pytest.raises(UsageError, match=words):
        private(tmp_path, settings=settings, eval_dataset=texts(4))
    assert not (tmp_path / "run").exists()


class Overridden(PrivateTrainer):
    def compute_loss(self, model, inputs, **keywords):
        return model(**inputs).loss


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"kind": Overridden}, Unsupported, "compute_loss gives the loss of a batch"),
        ({"expected_batch": 41}, UsageError, "there are 40 records"),
        ({"epsilon": -1.0}, UsageError, "eps"),
        ({"unit": ""}, UsageError, "a word for what a record is"),
        (
            {"data_collator": lambda rows: {name: torch.stack([row[name] for row in rows] * 2) for name in rows[0]}},
            UsageError,
            "gives 2 rows for one record",
        ),
    ],
)
def test_arguments_that_do_not_fit_are_refused(tmp_path, changes, error, words):
    with pytest.raises(error, match=words):
        private(tmp_path, **changes).train()
    assert not (tmp_path / "run" / "ledger.jsonl").exists()


def test_a_second_train_a_checkpoint_and_evaluation_on_the_records_are_refused(tmp_path):
    trainer = private(tmp_path)
    with pytest.raises(Unsupported, match="resume_from_checkpoint"):
        trainer.train(resume_from_checkpoint=True)
    trainer.train()
    with pytest.raises(UsageError, match="second train"):
        trainer.train()
    rows = texts()
    with pytest.raises(UsageError, match="is `train_dataset`"):
        private(tmp_path, rows=rows, eval_dataset=rows)


class Another(transformers.TrainerCallback):
    def on_step_end(self, args, state, control, model=None, **keywords):
        with torch.no_grad():
            next(model.parameters()).add_(1.0)


class Adds(transformers.TrainerCallback):
    def on_pre_optimizer_step(self, args, state, control, model=None, **keywords):
        next(model.parameters()).grad.add_(1.0)


@pytest.mark.parametrize(
    ("callback", "words"), [(Another(), "changed by something else"), (Adds(), "were replaced or changed")]
)
def test_a_callback_that_changes_gradients_or_weights_is_noticed(tmp_path, callback, words):
    with pytest.raises(UsageError, match=words):
        private(tmp_path, callbacks=[callback]).train()
    assert len(lines(tmp_path)) == 1


class Scores(torch.nn.Module):
    """A small model that returns its loss as those of transformers do."""

    def __init__(self):
        super().__init__()
        self.scores = torch.nn.Linear(3, 2)

    def forward(self, x, labels=None, **others):
        outputs = self.scores(x)
        return {"loss": cross_entropy(outputs, labels), "logits": outputs}


class Cleared(transformers.TrainerCallback):
    def on_step_end(self, args, state, control, optimizer=None, **keywords):
        optimizer.zero_grad()  # the Trainer clears the gradients of the model alone


def test_the_steps_of_an_optimizer_of_opacus_are_lines_of_a_ledger(tmp_path):
    """Oracle: the accountant of Opacus, whose hook goes on counting."""
    opacus = pytest.importorskip("opacus")
    rows = [{"x": torch.randn(3), "labels": torch.tensor(number % 2)} for number in range(40)]
    model, engine = Scores(), opacus.PrivacyEngine(accountant="rdp")
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=torch.utils.data.DataLoader(rows, 8),
        noise_multiplier=2.0,
        max_grad_norm=1.0,
    )

    class Private(transformers.Trainer):
        def get_train_dataloader(self):
            return loader

    def trainer(folder, **options):
        callbacks = [OpacusLedger(tmp_path / folder), Cleared()]
        return Private(model, arguments(tmp_path, max_steps=10), train_dataset=rows, callbacks=callbacks, **options)

    schedule = torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0)
    trainer("run", optimizers=(optimizer, schedule)).train()
    assert engine.accountant.history == [(2.0, 0.2, 10)]
    row = budget(history=tmp_path / "run", delta=1e-3)
    assert [(step["sigma"], step["rate"], step["n"]) for step in row.process.describe()] == [(2.0, 0.2, 10)]
    with pytest.raises(UsageError, match="is AdamW and no DPOptimizer"):
        trainer("none").train()
    assert not (tmp_path / "none").exists()
