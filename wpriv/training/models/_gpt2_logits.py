"""GPT-2 of transformers that returns its logits as a tensor; importing this file needs transformers."""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel


class Gpt2Logits(GPT2LMHeadModel):  # type: ignore[misc]
    """Logits [N, T, vocabulary] of tokens [N, T]; ``GPT2LMHeadModel`` has the same weights and the rest of GPT-2."""

    @classmethod
    def of_sizes(cls, vocabulary: int, length: int, width: int, depth: int, heads: int) -> Gpt2Logits:
        """Return a network of that size with weights drawn from torch's generator, for sequences up to ``length``."""
        none = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": None, "eos_token_id": None}
        return cls(
            GPT2Config(
                vocab_size=vocabulary,
                n_positions=length,
                n_embd=width,
                n_layer=depth,
                n_head=heads,
                use_cache=False,
                **none,
            )
        )

    def forward(self, tokens: Tensor) -> Tensor:
        # positions for each record, so that the gradient of their embedding is each record's own
        places = torch.arange(tokens.shape[1], device=tokens.device).expand(len(tokens), -1)
        logits: Tensor = super().forward(input_ids=tokens, position_ids=places).logits
        return logits
