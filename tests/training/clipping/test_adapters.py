"""Networks of transformers and peft, as they are: the clipped sum is the literal one, and what is frozen stays."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import wpriv
from tests.training.clipping.literal import require_literal
from wpriv.errors import UsageError

transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"),
]

WORDS, X = 40, torch.randint(40, (32, 8), generator=torch.Generator().manual_seed(1))
SETTINGS = {"vocab_size": WORDS, "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 16}
ENDS = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
OPTIONS = {"tokens": WORDS, "eps": 8, "delta": 1e-3, "batch": 8, "steps": 3, "lr": 0.5, "progress": False, "seed": 1}


def gpt() -> nn.Module:
    torch.manual_seed(0)
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**SETTINGS, **ENDS))


def next_word(outputs, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs.logits[:, -1], targets, reduction="none")


ADAPTERS = {
    "LoRA": lambda: peft.LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True, task_type="CAUSAL_LM"),
    "rsLoRA": lambda: peft.LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True, use_rslora=True),
    "IA3": lambda: peft.IA3Config(target_modules=["c_attn", "c_fc"], feedforward_modules=["c_fc"], fan_in_fan_out=True),
    "prompt": lambda: peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2),
}


@pytest.mark.parametrize("name", ADAPTERS)
def test_a_peft_model_gives_the_literal_clipped_sum(name):
    model = peft.get_peft_model(gpt(), ADAPTERS[name]()).double().eval()
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data.normal_(std=0.1)  # lora_B is 0 at first, and so are the gradients of lora_A
    require_literal(model, next_word, X[:6], X[:6, 0])


@pytest.mark.parametrize("name", ["LoRA", "prompt"])
def test_a_trained_peft_model_keeps_frozen_weights_bit_by_bit_and_moves_every_other(name, tmp_path):
    model = peft.get_peft_model(gpt(), ADAPTERS[name]())
    before = {key: weight.clone() for key, weight in model.named_parameters()}
    trained = wpriv.train(model, (X, X[:, 0]), test=(X, X[:, 0]), loss=next_word, out=tmp_path / "out", **OPTIONS)
    assert trained.model is model
    moved = {key for key, weight in model.named_parameters() if not torch.equal(weight, before[key])}
    assert moved == {key for key, weight in model.named_parameters() if weight.requires_grad}
    assert len(before) == len(dict(model.named_parameters()))
    if name == "LoRA":
        wanted = model(X).logits
        merged = model.merge_and_unload()
        torch.testing.assert_close(merged(X).logits, wanted, rtol=0, atol=1e-5)
        assert merged.generate(X[:1], max_new_tokens=2).shape == (1, 10)
        plain = gpt().eval()
        plain.load_state_dict(merged.state_dict(), strict=True)
        torch.testing.assert_close(plain(X).logits, merged(X).logits)


def test_a_classifier_of_transformers_is_trained_by_its_logits_and_its_head_is_counted(tmp_path):
    config = transformers.GPT2Config(**SETTINGS, **ENDS, num_labels=3)
    adapter = peft.LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True, task_type="SEQ_CLS")
    model = peft.get_peft_model(transformers.GPT2ForSequenceClassification(config), adapter)
    labels = X[:, 0] % 3
    trained = wpriv.train(model, (X, labels), test=(X, labels), out=tmp_path / "out", **OPTIONS)
    assert 0 <= trained.metrics[-1]["accuracy"] <= 1
    count = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    assert count == 16 * 2 + 48 * 2 + 3 * 16
    (line,) = [line for line in trained.statement["remarks"] if "are trained" in line]
    assert line.startswith(f"{count} of ")
    assert "score.modules_to_save.default.weight" in line


def test_low_rank_changes_of_conv1d_load_by_peft(tmp_path):
    model = gpt()
    options = {**OPTIONS, "freeze": "*", "lora": {"rank": 2, "alpha": 4, "layers": "*c_attn"}}
    wpriv.train(model, (X, X[:, 0]), test=(X, X[:, 0]), loss=next_word, out=tmp_path / "out", **options)
    assert bool(model.transformer.h[0].attn.c_attn.lora_B.weight.any())
    loaded = peft.PeftModel.from_pretrained(gpt(), tmp_path / "out")
    torch.testing.assert_close(loaded(X).logits, model(X).logits, rtol=0, atol=1e-5)
    weight = model.transformer.h[0].attn.c_attn.weight
    merged = loaded.merge_and_unload()
    torch.testing.assert_close(merged.transformer.h[0].attn.c_attn.weight, weight, rtol=0, atol=1e-6)


def test_layers_that_are_trained_whole_are_in_the_file_of_peft_too(tmp_path):
    def network() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(6, 5), nn.LayerNorm(5), nn.Linear(5, 3))

    model, x = network(), torch.randn(32, 6)
    options = {**OPTIONS, "tokens": None, "lora": {"rank": 2, "layers": "0"}}
    trained = wpriv.train(model, (x, X[:, 0] % 3), test=(x, X[:, 0] % 3), out=tmp_path / "out", **options)
    assert {"adapter_config.json", "adapter_model.safetensors"} <= {path.name for path in trained.files}
    assert {"adapter_model.safetensors"} <= {entry["file"] for entry in trained.statement["publish"]}
    loaded = peft.PeftModel.from_pretrained(network(), tmp_path / "out").eval()
    torch.testing.assert_close(loaded(x), model(x), rtol=0, atol=1e-5)


def test_a_rank_that_is_too_high_for_conv1d_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"rank 16 is no lower than that of .*c_attn', with 16 inputs and 48 outputs"):
        wpriv.train(
            gpt(), (X, X[:, 0]), loss=next_word, out=tmp_path, **OPTIONS, lora={"rank": 16, "layers": "*c_attn"}
        )


def test_a_network_is_exported_to_onnx_after_training(tmp_path):
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)), torch.randn(32, 6)
    options = {**OPTIONS, "tokens": None}
    wpriv.train(model, (x, X[:, 0] % 3), test=(x, X[:, 0] % 3), out=tmp_path / "out", **options)
    torch.onnx.export(model, (x,), tmp_path / "net.onnx", dynamo=False)
    session = runtime.InferenceSession(str(tmp_path / "net.onnx"))
    (found,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    torch.testing.assert_close(torch.tensor(found), model(x), rtol=0, atol=1e-5)
