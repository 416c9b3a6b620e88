"""A Slurm of one machine for tests: sbatch, srun, sacct, squeue and scontrol, which run the tasks of an array at once.

``install(folder)`` writes the five commands into a folder, which a test puts in front of PATH. A task is a process of
its own session that runs the submitted script; ``scontrol requeue`` lets it run again once it has ended. The state of
each task is a file in ``folder/state``, and ``folder/pids`` has the process of the program that it runs.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

COMMANDS = ("sbatch", "srun", "sacct", "squeue", "scontrol")


def install(folder: Path, refuse: str = "", *, idle: bool = False) -> Path:
    """Write the commands and return their folder.

    Args:
        refuse: the message with which sbatch fails. idle: the tasks stay in the queue and do not run.
    """
    for name in ("bin", "state", "pids"):
        (folder / name).mkdir(parents=True)
    for name in COMMANDS:
        path = folder / "bin" / name
        words = [sys.executable, str(Path(__file__).resolve()), name, str(folder)]
        path.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        path.chmod(0o755)
    if idle:
        (folder / "idle").touch()
    if refuse:
        (folder / "refuse").write_text(refuse)
    return folder / "bin"


def sbatch(folder: Path, script: str) -> None:
    if (folder / "refuse").is_file():
        sys.exit(f"sbatch: error: {(folder / 'refuse').read_text()}")
    text = Path(script).read_text()
    (folder / "script.sh").write_text(text)
    array = re.search(r"^#SBATCH --array=0-(\d+)", text, re.M)
    numbers = ["7"] if array is None else [f"7_{place}" for place in range(int(array[1]) + 1)]
    for number in numbers:
        (folder / "state" / number).write_text("RUNNING")
        if (folder / "idle").is_file():
            continue
        words = [sys.executable, str(Path(__file__).resolve()), "task", str(folder), str(folder / "script.sh"), number]
        subprocess.Popen(words, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    print("Submitted batch job 7")


def task(folder: Path, script: str, number: str) -> None:
    job, _, place = number.partition("_")
    own = {"SLURM_JOB_ID": job, "SLURM_PROCID": "0", "FAKE_NUMBER": number}
    own |= {"SLURM_ARRAY_JOB_ID": job, "SLURM_ARRAY_TASK_ID": place} if place else {}
    while True:
        code = subprocess.call(["bash", script], env={**os.environ, **own})
        if not (folder / f"requeue-{number}").is_file():
            break
        (folder / f"requeue-{number}").rename(folder / f"requeued-{number}")
    (folder / "state" / number).write_text("COMPLETED" if code == 0 else "FAILED")


def srun(folder: Path, *words: str) -> None:
    number = os.environ["FAKE_NUMBER"]
    output = words[words.index("--output") + 1]
    job, _, place = number.partition("_")
    for pattern, value in (("%A", job), ("%a", place), ("%j", number), ("%t", "0")):
        output = output.replace(pattern, value)
    command = words[words.index("--output") + 2 :]
    with Path(output).open("a") as log:
        child = subprocess.Popen(command, stdout=log, stderr=log)
        (folder / "pids" / number).write_text(str(child.pid))
        sys.exit(child.wait() % 256)


def scontrol(folder: Path, verb: str, number: str) -> None:
    assert verb == "requeue"
    (folder / f"requeue-{number}").write_text("")


def sacct(folder: Path, *_: str) -> None:
    print("JobID|State|NodeList")
    for path in (folder / "state").iterdir():
        print(f"{path.name}|{path.read_text()}|here")


def squeue(folder: Path, *_: str) -> None:
    for path in (folder / "state").iterdir():
        if path.read_text() == "RUNNING":
            print(path.name)


if __name__ == "__main__":
    globals()[sys.argv[1]](Path(sys.argv[2]), *sys.argv[3:])
