"""The engine: draw records, note the step, gather, add noise, move the weights; save, stop and go on again without a trace.

It knows no task: a task hands it a model, and a function that gathers the bounded sum of the records of a step.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from wpriv.engine import checkpoint, distributed, ledger
from wpriv.engine.job import Job, ReleaseGate, Schedule, optimizer_of
from wpriv.engine.ledger import Ledger
from wpriv.engine.noise_stream import Noise
from wpriv.engine.release import add_noise
from wpriv.engine.sampler import Indices, Sampler, sampler
from wpriv.errors import Interrupted, Unsupported, UsageError
from wpriv.files import durable_writes
from wpriv.randomness.seeds import Seeds, sampling_generator, stream_digest

CHECKPOINT, LEDGER, MODEL = "checkpoint.pt", "ledger.jsonl", "model.pt"
Row = dict[str, Any]


class Engine:
    """A training in a folder of its own.

    Args:
        seeds: the seeds, from which the model's first weights were drawn already.
        folder: where checkpoint, ledger and model go; only the first of several processes writes there.
        identity: what the run is (a fingerprint of the recipe): a checkpoint of another one is refused.
        resume: go on from the checkpoint that is there. fork: begin from the weights that are there, behind their ledger. Without
            ``resume`` the ledger must hold no line of this run.
    Raises:
        UsageError: the ledger does not fit: see ``Ledger`` and ``ledger.require``.
    """

    def __init__(
        self,
        job: Job,
        schedule: Schedule,
        seeds: Seeds,
        folder: Path,
        device: torch.device,
        *,
        identity: str,
        resume: bool = False,
        fork: bool = False,
    ):
        self.job, self.schedule, self.folder, self.device, self.identity = job, schedule, folder, device, identity
        self.sampler: Sampler = sampler(
            schedule.sampling, schedule.records, schedule.batch, sampling_generator(seeds), job.groups
        )
        self.noise = Noise(seeds.noise, device)
        self.weights = [p for p in job.model.parameters() if p.requires_grad]
        self.optimizers = job.optimizers or {"model": optimizer_of(self.weights, schedule.optimizer)}
        self.rates = {name: [group["lr"] for group in own.param_groups] for name, own in self.optimizers.items()}
        self.resumed = resume
        self.done = 0
        self.stream = stream_digest(seeds)
        self.clear = (
            schedule.step is None
        )  # whether the weights have seen the records without noise, in this run or before
        self.rows: list[Row] = []
        self.seen = torch.zeros(3, device=device)
        self.distances: list[Tensor] = []
        planned = 1 if schedule.once else schedule.steps
        words = {"adjacency": schedule.adjacency, "stream": self.stream}
        self.ledger = (
            Ledger(folder / LEDGER, schedule.run, planned, resume=resume, **words) if distributed.is_main() else None
        )
        if resume:
            self._restore()
        if fork:
            self._inherit()
        distributed.share_weights(job.model)

    def run(
        self,
        *,
        stop: Callable[[], str | None] = lambda: None,
        on_epoch: Callable[[Row], Row] = lambda row: row,
        on_step: Callable[[int], None] = lambda step: None,
    ) -> list[Row]:
        """Trains to the end and returns the rows of metrics, one an epoch.

        Args:
            stop: asked after every step; the reason to stop, or None. on_epoch: may add to an epoch's row. on_step: told each step.
        Raises:
            Interrupted: stopped; everything is saved.
        """
        if not self.resumed:
            # from here on the same noise is drawn again, whenever the run is cut short
            self.save()
        saved = time.monotonic()
        while self.done < self.schedule.steps:
            self.step()
            on_step(self.done)
            epoch = self.schedule.epoch_of(self.done)
            if epoch is not None:
                self._force()
                self.rows.append(on_epoch(self._row(epoch)))
            reason = distributed.agree_to_stop(stop())
            if reason:
                self.save()
                raise Interrupted(
                    f"stopped by {reason} after step {self.done} of {self.schedule.steps}; saved. Go on with --resume"
                )
            if self.done < self.schedule.steps and (
                epoch is not None or time.monotonic() - saved >= self.schedule.every
            ):
                self.save()
                saved = time.monotonic()
        self.finish()
        return self.rows

    def step(self) -> None:
        """One step of training, noted in the ledger before its result is used."""
        plan = self.schedule
        indices = self.sampler.draw()
        if self.ledger is not None and plan.step is not None and self._releases():
            self.ledger.spend(self.done + 1, plan.step)
        self._set_rates()
        self.seen += self._gather(indices) if self.job.custom_step is None else self._learn(indices)
        self.done += 1

    def _releases(self) -> bool:
        """Whether the next step is one that releases something."""
        return self.done == 0 or not self.schedule.once

    def _learn(self, indices: Indices) -> Tensor:
        """A step of the task's own, which must release as often as is accounted."""
        plan = self.schedule
        door = ReleaseGate(plan.multiplier, plan.adjacency, self.noise, plan.step is not None, exact=plan.exact)
        assert self.job.custom_step is not None
        seen = self.job.custom_step(indices, door)
        if plan.step is not None and door.used != self._releases():
            raise RuntimeError(
                f"step {self.done + 1} released {door.used} times what is accounted {int(self._releases())} times"
            )
        return seen

    def _gather(self, indices: Indices) -> Tensor:
        plan = self.schedule
        assert self.job.gather is not None
        gathered = self.job.gather(distributed.own_share(indices))
        # of several processes one adds the noise, and to the sum of all: what is added later is not on the grid
        total = replace(gathered.total, parts=distributed.all_reduce_sum(gathered.total.parts))
        seen = distributed.all_reduce_sum([gathered.seen])[0]
        parts = [weight.new_empty(weight.shape) for weight in self.weights]
        if distributed.is_main():
            parts = add_noise(total, plan.multiplier, self.noise, private=plan.step is not None, exact=plan.exact)
        parts = distributed.shared(parts)
        torch._foreach_div_(parts, gathered.divisor or max(float(seen[0]), 1.0))
        keep = self._mask(parts)
        if keep:
            torch._foreach_mul_(parts, keep)
        if self.job.watch is not None:
            self.distances.append(self.job.watch(indices, keep).cpu())
        self._move(parts)
        return seen

    def save(self) -> None:
        """A checkpoint of everything; the ledger is forced to disk first."""
        self._force()
        if distributed.is_main():
            checkpoint.save(self.folder / CHECKPOINT, self._state())

    def finish(self) -> None:
        """Writes the weights; the checkpoint, from which noise could be drawn again, is deleted."""
        self._force()
        if distributed.is_main():
            content: dict[str, Any] = {
                "identity": self.identity,
                "step": self.done,
                **self._position(),
                "weights": self.job.model.state_dict(),
                "rows": json.dumps(self.rows),
                "clipping": self.job.method,
            }
            if self.distances:
                content["distances"] = torch.stack(self.distances)
                content["coordinates"] = sum(weight.numel() for weight in self.weights)
            checkpoint.save(self.folder / MODEL, content)
            if self.job.save_artifacts is not None:
                self.job.save_artifacts(self.folder)
            durable_writes.remove(self.folder / CHECKPOINT)

    def _move(self, parts: list[Tensor]) -> None:
        for weight, part in zip(self.weights, parts, strict=True):
            weight.grad = part
        for own in self.optimizers.values():
            own.step()

    def _set_rates(self) -> None:
        left = _decay(self.schedule.optimizer.decay, self.done / self.schedule.steps)
        for name, own in self.optimizers.items():
            for group, rate in zip(own.param_groups, self.rates[name], strict=True):
                group["lr"] = rate * left

    def _mask(self, parts: list[Tensor]) -> list[Tensor]:
        """One for what is kept and zero for what is not, the same for all that is compared at this step; none without a mask."""
        if not self.schedule.mask:
            return []
        return [(self.noise.uniform(p.numel()).view(p.shape) >= self.schedule.mask).to(p.dtype) for p in parts]

    def _row(self, epoch: int) -> Row:
        count, loss, clipped = self.seen.tolist()
        self.seen.zero_()
        mean = {
            "loss": loss / count if count else None,
            "clipped": clipped / count if count and not math.isnan(clipped) else None,
        }
        was = self.job.model.training
        self.job.model.eval()
        figures = self.job.evaluate()
        if self.done == self.schedule.steps and self.job.conclude is not None:
            figures |= self.job.conclude()
        self.job.model.train(was)
        return {"epoch": epoch, "step": self.done, **mean, **figures}

    def _force(self) -> None:
        if self.ledger is not None:
            self.ledger.force()

    def _position(self) -> dict[str, Any]:
        """The run, how far the ledger is (what is written now holds nothing that is not paid for there), and what was never paid for."""
        assert self.ledger is not None
        return {"run": self.schedule.run, "ledger": self.ledger.position().as_dict(), "clear": self.clear}

    def _state(self) -> dict[str, Any]:
        return {
            "identity": self.identity,
            "step": self.done,
            **self._position(),
            "weights": self.job.model.state_dict(),
            "optimizers": {name: own.state_dict() for name, own in self.optimizers.items()},
            "sampler": self.sampler.state(),
            "noise": self.noise.state(),
            "stream": self.stream,
            "torch": torch.get_rng_state(),
            "cuda": torch.cuda.get_rng_state(self.device) if self.device.type == "cuda" else torch.zeros(0),
            "seen": self.seen,
            "rows": json.dumps(self.rows),
            "distances": torch.stack(self.distances) if self.distances else torch.zeros(0),
            "device": self.device.type,
        }

    def _restore(self) -> None:
        found = checkpoint.load(self.folder / CHECKPOINT, self.device)
        if "sampler" not in found:
            raise UsageError(
                f"{self.folder / CHECKPOINT} is a finished model and no checkpoint. Put the right one back, or use --fork"
            )
        if (found["identity"], found["run"]) != (self.identity, self.schedule.run):
            raise UsageError(
                f"the checkpoint in {self.folder} is of another recipe; give that one, or --fork to go on from its weights"
            )
        if found["device"] != self.device.type:
            told = f"the checkpoint in {self.folder} was made on {found['device']}, whose noise {self.device.type} cannot draw again"
            raise UsageError(
                f"{told}. Give --device {found['device']}, or --fork to go on with fresh noise at its cost"
            )
        self.job.model.load_state_dict(found["weights"])
        for name, own in self.optimizers.items():
            own.load_state_dict(found["optimizers"][name])
        self.sampler.restore(found["sampler"])
        self.noise.restore(found["noise"])
        torch.set_rng_state(found["torch"].cpu())
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(found["cuda"].cpu(), self.device)
        self.seen, self.done, self.rows = found["seen"], found["step"], json.loads(found["rows"])
        self.distances = list(found["distances"].cpu())
        self.clear, self.stream = found["clear"], found["stream"]
        if self.ledger is not None:
            self.ledger.stream = self.stream
        self._hold_ledger(found, CHECKPOINT)
        made = min(self.done, 1) if self.schedule.once else self.done
        if self.ledger is not None and self.schedule.step is not None:
            earlier = len(self.ledger.entries) - self.ledger.steps
            if found["ledger"]["lines"] != earlier + made:
                raise UsageError(
                    f"the checkpoint in {self.folder} was changed: its steps are not those of its ledger. Begin again with --fresh"
                )

    def _hold_ledger(self, stored: dict[str, Any], name: str) -> None:
        """Checks that the ledger holds all that a file of this folder was made behind."""
        if self.ledger is not None:
            ledger.require(
                self.ledger.entries, ledger.Position(**stored["ledger"]), self.ledger.path, f"{self.folder / name}"
            )

    def _inherit(self) -> None:
        """The weights of the run before, whatever its recipe; its steps stay in the ledger and are paid for."""
        name, stored = inherit(self.job.model, self.folder, self.device)
        self._hold_ledger(stored, name)
        if stored["clear"] and not self.clear:
            raise Unsupported(
                f"the weights in {self.folder / name} were trained without privacy: nothing private goes on from them"
            )
        self.clear = self.clear or stored["clear"]


def inherit(model: nn.Module, folder: Path, device: torch.device) -> tuple[str, dict[str, Any]]:
    """Give a model the weights that are in a folder; returns the name and the content of the file that holds them.

    Raises:
        UsageError: they do not fit the model, or cannot be read.
    """
    path = folder / CHECKPOINT if (folder / CHECKPOINT).is_file() else folder / MODEL
    stored = checkpoint.load(path, device)
    try:
        model.load_state_dict(stored["weights"])
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise UsageError(
            f"--fork goes on from the weights in {path}, which do not fit this model ({reason}); keep the model"
        ) from None
    return path.name, stored


def _decay(kind: str, done: float) -> float:
    """What is left of the learning rate when a share ``done`` of the steps is over."""
    return {"none": 1.0, "linear": 1.0 - done, "cosine": (1 + math.cos(math.pi * done)) / 2}[kind]
