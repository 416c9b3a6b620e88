"""The training engine: sampling, clipping, noise, the ledger and checkpoints."""
