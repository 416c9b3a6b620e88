#!/usr/bin/env bash
# A sweep of private trainings as a Slurm array; each task runs its share of the grid and resumes where it was interrupted.
# On a cluster: sbatch examples/train_array.sh. Elsewhere its tasks run one after another.
# Run: bash examples/train_array.sh
#SBATCH --array=1-2
#SBATCH --cpus-per-task=1
#SBATCH --time=00:30:00
#SBATCH --signal=B:USR1@60
#SBATCH --requeue
set -euo pipefail
out=${OUT:-$(mktemp -d)}
recipe=$out/grid.yaml
tasks=2
mkdir -p "$out"
cat > "$recipe" <<'YAML'
kind: train
source: "an example"
task: classify
data: {name: digits}
model: {name: logistic}
privacy: {eps: 1, delta: 1e-5}
optimizer: {name: sgd, lr: 2.0}
batch: 128
epochs: 2
seed: 0
sweep: [{over: privacy.eps, values: [1, 4]}]
YAML

train() {
  # the warning of the batch system is forwarded; exit code 75 means that the task was saved and can be queued again
  wpriv train "$recipe" --out "$out/grid" --shard "$1/$tasks" & child=$!
  trap 'kill -USR1 "$child"' USR1
  code=0
  wait "$child" || code=$?
  if ((code > 128)); then code=0; wait "$child" || code=$?; fi
  if ((code == 75)) && [[ -n ${SLURM_JOB_ID:-} ]]; then scontrol requeue "$SLURM_JOB_ID"; fi
  return "$code"
}

if [[ -n ${SLURM_ARRAY_TASK_ID:-} ]]; then
  train "$SLURM_ARRAY_TASK_ID"
else
  for task in $(seq "$tasks"); do train "$task"; done
fi
