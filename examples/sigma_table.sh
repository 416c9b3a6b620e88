#!/usr/bin/env bash
# The smallest sigma for several numbers of steps, one a line: --quiet prints only the number, rounded to the safe side.
# Run: bash examples/sigma_table.sh
set -euo pipefail

for steps in 2^10 2^12 2^14; do
  sigma=$(wpriv calibrate --mech gauss --eps 1 --delta 1e-5 --sampling poisson --rate 0.01 --n "$steps" --quiet)
  printf '%s\t%s\n' "$steps" "$sigma"
done
