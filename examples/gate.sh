#!/usr/bin/env bash
# A gate for a pipeline: accounts for the steps that a trainer recorded, and fails (exit code 1) if eps exceeds the limit.
# Run: bash examples/gate.sh
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

wpriv budget --history "$here/history.json" --delta 1e-5 --max-eps 3 --json
