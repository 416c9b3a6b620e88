"""Statement texts on what was tested of the network and the loss of a training, and what no test can see."""

from __future__ import annotations

from collections.abc import Sequence

from wpriv.config.train_schema import Privacy

BUFFERS = "buffers of the model, numbers in model.pt that are not trained: they get no noise."
BUFFERS_CHECKED = (
    f"{BUFFERS} Before the first step the model is run in training mode on synthetic records, and refused if a buffer "
    f"changes: a check on a few records, and no proof"
)
BUFFERS_UNCHECKED = (
    f"{BUFFERS} They are NOT refused here: running statistics of a normalisation hold the mean of training records "
    f"without noise"
)
MIXING = (
    "whether a record changes the clipped sum by its own gradient alone, as the sensitivity assumes. Before the first "
    "step the network and the loss were run on synthetic records (ordinary, constant, padded, incomplete and repeated "
    "ones; one record, a few, and up to a batch where that is cheap; with several seeds where random numbers are "
    "drawn), and records that influence each other were refused. {steps} This is no proof: not seen is mixing of "
    "records that begins in a step without a comparison, or needs certain records, a rare random number, or a state "
    "that is kept outside of the attributes of the network"
)
SINGLE = (
    "The method {method} passes each record through the network by itself, so that records could only mix by a state "
    "that the network keeps between calls."
)
COMPARED = (
    "{where}, a few records of the real batch were passed alone, and what they add was compared with their share of "
    "the sum; a difference would have stopped the training. That it did not stop depends on records and is not covered."
)
FIRST = 10
"""The number of steps that are listed."""


def not_assessed(private: Privacy, method: str | None, steps: Sequence[int]) -> list[str]:
    """Return the lines of a statement on the network of a private training.

    Args:
        method: by which gradients were clipped, where there was a choice. steps: those in which records of the batch
            were compared with records alone.
    """
    if private.clip == "batch-mean":
        return [BUFFERS_UNCHECKED]
    if method in (None, ""):
        return [BUFFERS_CHECKED]
    if method != "ghost":
        return [BUFFERS_CHECKED, MIXING.format(steps=SINGLE.format(method=method))]
    listed = ", ".join(map(str, steps[:FIRST])) + (", ..." if len(steps) > FIRST else "")
    if len(steps) > 1:
        where = f"In {len(steps)} steps ({listed})"
    else:
        where = "In the first step" if steps else "In the first step with this network"
    return [BUFFERS_CHECKED, MIXING.format(steps=COMPARED.format(where=where))]
