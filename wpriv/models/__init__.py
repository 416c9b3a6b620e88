"""Networks to train, one file each, by the name users type: ``Params``, ``SOURCE`` and ``build(params, shape, classes)``.

A module works on each example by itself, as per-example clipping needs, unless a parameter asks for the published form of a paper
that does not. Nothing is done in place. Weights come from torch's global generator, which the caller seeds.
"""
