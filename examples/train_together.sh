#!/usr/bin/env bash
# One private training in two processes: batches are drawn once, each process computes its share, noise is added once.
# On GPUs: PROCESSES=8 DEVICE=cuda bash examples/train_together.sh
# Run: bash examples/train_together.sh
set -euo pipefail
out=${OUT:-$(mktemp -d)}/digits
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
python -m torch.distributed.run --standalone --nproc-per-node "${PROCESSES:-2}" \
  -m wpriv train quick/digits --quick --device "${DEVICE:-cpu}" --out "$out"
