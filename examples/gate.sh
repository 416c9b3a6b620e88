#!/usr/bin/env bash
# A gate for a pipeline: prices the steps that a trainer recorded, and fails (exit code 1) where they cost more than was promised.
# Run: bash examples/gate.sh
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

wpriv budget --history "$here/history.json" --delta 1e-5 --max-eps 3 --json
