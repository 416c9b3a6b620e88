"""A sweep of private trainings as tasks of Ray; each continues in its folder where it was interrupted.

On a cluster: `ray job submit -- python examples/train_on_ray.py FOLDER`, with a folder that all nodes share. Without
the package ray the trainings run one after another.
Run: python examples/train_on_ray.py
"""

import subprocess
import sys
import tempfile
from pathlib import Path

TASKS = 2
RECIPE = """
kind: train
source: "an example"
task: classify
data: {name: digits}
model: {name: logistic}
privacy: {eps: 1, delta: 1e-5}
optimizer: {name: sgd, lr: 2.0}
batch: 128
epochs: 2
sweep: [{over: privacy.eps, values: [1, 4]}]
"""


def train(folder: str, part: str) -> str:
    """Train one part of the sweep, and return what the command prints: the table of what is finished."""
    words = ["train", f"{folder}/grid.yaml", "--out", f"{folder}/grid", "--shard", part]
    return subprocess.run([sys.executable, "-m", "wpriv", *words], check=True, capture_output=True, text=True).stdout


def main() -> None:
    folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
    Path(folder, "grid.yaml").write_text(RECIPE)
    parts = [f"{task}/{TASKS}" for task in range(1, TASKS + 1)]
    try:
        import ray
    except ModuleNotFoundError:
        for part in parts:
            train(folder, part)
    else:
        ray.init()
        # a task of a lost node is repeated with the same noise: no step is paid for twice
        remote = ray.remote(num_cpus=1, max_retries=3)(train)
        ray.get([remote.remote(folder, part) for part in parts])
    print(train(folder, "1/1"))


if __name__ == "__main__":
    main()
