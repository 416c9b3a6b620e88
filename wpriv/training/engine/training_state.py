"""The state of a training and its files: checkpoints, the finished model and unpublished diagnostics."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from wpriv._version import __version__
from wpriv.accounting import ledger
from wpriv.accounting.ledger import Ledger
from wpriv.config.train_parts import Average
from wpriv.errors import Unsupported, UsageError
from wpriv.files import checkpoint, durable_writes
from wpriv.randomness import Seeds, augmentation_key, key_digest, new_key, sampling_generator
from wpriv.results.storage import LOOKS
from wpriv.training.engine import distributed, sharding
from wpriv.training.engine.early_stop import Watch
from wpriv.training.engine.job import Job, Schedule
from wpriv.training.engine.sampler import Sampler, sampler
from wpriv.training.engine.saved_weights import CHECKPOINT, DIAGNOSTICS, LEDGER, MODEL, inherit
from wpriv.training.engine.update_rules import UpdateRule
from wpriv.training.noise.noise_stream import CorrelatedNoise, Noise


class WeightAverage:
    """The average a of released weights w: after step t, a becomes b a + (1 - b) w, from the first weights on.

    b is the decay of the plan; with a ramp min(decay, (1 + t) / (10 + t)). It is post-processing: it costs no privacy.

    Source: Polyak, Juditsky (1992) on averages of iterates; De et al. (2022) for private training.
    """

    def __init__(self, plan: Average, weights: Sequence[Tensor]):
        self.plan, self.weights = plan, list(weights)
        self.values = [weight.detach().clone() for weight in weights]

    def update(self, step: int) -> None:
        """Take in the weights after step ``step``, which is counted from 1."""
        kept = min(self.plan.decay, (1 + step) / (10 + step)) if self.plan.ramp else self.plan.decay
        with torch.no_grad():
            torch._foreach_lerp_(self.values, [weight.detach() for weight in self.weights], 1 - kept)

    def load(self, values: Sequence[Tensor]) -> None:
        """Continue from the average of a checkpoint."""
        for value, stored in zip(self.values, values, strict=True):
            value.copy_(stored)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Give the model the averaged weights within the block."""
        last = [weight.data for weight in self.weights]
        try:
            for weight, value in zip(self.weights, self.values, strict=True):
                weight.data = value.clone()
            yield
        finally:
            for weight, data in zip(self.weights, last, strict=True):
                weight.data = data


Row = dict[str, Any]
SOFTWARE = f"wpriv {__version__} and torch {torch.__version__}"


class TrainingState:
    """Everything that determines how a training continues, and the files that hold it.

    Args:
        seeds: from which the first weights of the model were drawn already.
        folder: of checkpoint, ledger and model; only the main process writes there.
        identity: a fingerprint of the recipe and of its run; a checkpoint of another one is refused.
        resume: continue from the checkpoint in the folder. fork: begin from the weights in the folder, behind their
            ledger. Without ``resume`` the ledger must hold no line of this run.
    Raises:
        UsageError: the ledger does not fit: see ``Ledger`` and ``ledger.require``.
        Unsupported: a private training would begin from weights that were trained without privacy.
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
        generator = sampling_generator(seeds)
        drawn = (schedule.sampling, schedule.records, schedule.batch)
        self.sampler: Sampler = sampler(*drawn, generator, job.groups, once=schedule.recursion is not None)
        self.noise = Noise(seeds.noise, device)
        self.correlated = None if schedule.recursion is None else CorrelatedNoise(schedule.recursion, self.noise)
        self.weights = [p for p in job.model.parameters() if p.requires_grad]
        self.optimizers = job.optimizers
        if not (self.optimizers or job.hosted):
            self.optimizers = {"model": UpdateRule(self.weights, schedule.optimizer)}
        self.rates = {name: [group["lr"] for group in each.param_groups] for name, each in self.optimizers.items()}
        self.resumed, self.steps_done = resume, 0
        self.stream = key_digest(seeds.noise)
        # the last step that a resumed run repeats with the noise of the first time; None where no new key is due
        self.repeats_until: int | None = None
        # set where the training ends after its present step: whether that step was fixed in advance
        self.ended: bool | None = None
        # called before anything is saved; a loop of the caller checks here that the network is that of its steps
        self.before_saving: Callable[[], None] = lambda: None
        # called with the noisy gradient of every step before the weights are updated; an audit observes it here
        self.before_update: Callable[[list[Tensor]], None] = lambda parts: None
        self.watch = None if schedule.looks is None else Watch(schedule.looks)
        self.looks_ledger: Ledger | None = None
        self.without_noise = schedule.step is None  # in this run, or in one before it
        self.rows: list[Row] = []
        self.checked: list[int] = []  # the steps of which records were compared with records alone
        self.diagnostics = torch.zeros(3, device=device)
        self.distances: list[Tensor] = []
        if job.augmentation is not None:
            job.augmentation.key = augmentation_key(seeds)
        if job.adaptive is not None:
            job.adaptive.begin(schedule.multiplier, schedule.adjacency)
        self.average: WeightAverage | None = None
        self.ledger: Ledger | None = None
        if distributed.is_main():
            planned, words = self._releases(schedule.steps), {"adjacency": schedule.adjacency, "stream": self.stream}
            self.ledger = Ledger(folder / LEDGER, schedule.run, planned, resume=resume, paid=schedule.paid, **words)
            if schedule.looks is not None and schedule.looks.step is not None:
                most = schedule.looks.most
                self.looks_ledger = Ledger(folder / LOOKS, schedule.run, most, resume=resume, **words)
        stored = self._restore(fixed=seeds.fixed) if resume else {}
        if fork:
            self._inherit()
        if not job.divided:
            distributed.broadcast_weights(job.model)
        if schedule.average is not None:
            self.average = WeightAverage(schedule.average, self.weights)
            if resume:
                self.average.load(stored["average"])

    def save(self) -> None:
        """Write a checkpoint of everything; the ledger is forced to disk first."""
        self.before_saving()
        self._force()
        if self.job.divided:
            position = {"identity": self.identity, **self._position()} if distributed.is_main() else None
            sharding.save(self.folder, self.steps_done, position, self.job.model, self.optimizers)
        if distributed.is_main():
            checkpoint.save(self.folder / CHECKPOINT, self._content())
            if self.job.divided:
                sharding.delete(self.folder, but_step=self.steps_done)

    def finish(self) -> None:
        """Write the model and the diagnostics, and delete the checkpoint, from which noise could be drawn again.

        The model holds the weights, which are made of noisy releases alone in a private training, and what is public:
        how the gradients were clipped and the position in the ledger. What was computed from training records without
        noise is in the diagnostics.
        """
        self.before_saving()
        self._force()
        weights = sharding.whole_weights(self.job.model) if self.job.divided else self.job.model.state_dict()
        if not distributed.is_main():
            return
        diagnostics: dict[str, Any] = {"identity": self.identity, **self._position(), "rows": json.dumps(self.rows)}
        if self.distances:
            diagnostics["distances"] = torch.stack(self.distances)
            diagnostics["coordinates"] = sum(weight.numel() for weight in self.weights)
        # before the model: where the model is, its diagnostics are
        checkpoint.save(self.folder / DIAGNOSTICS, diagnostics)
        model = {
            "identity": checkpoint.recipe_digest(self.identity),
            "step": self.steps_done,
            **self._position(),
            "weights": weights,
            "clipping": self.job.method,
            "checked": self.checked,
            **({} if self.ended is None else {"ended": self.ended}),
            "remarks": list(self.job.remarks),
            **self._averaged(),
        }
        checkpoint.save(self.folder / MODEL, model)
        if self.job.save_artifacts is not None:
            self.job.save_artifacts(self.folder)
        durable_writes.remove(self.folder / CHECKPOINT)
        if self.job.divided:
            sharding.delete(self.folder)

    def _averaged(self) -> dict[str, Any]:
        """Return the ``state_dict`` with the averaged weights, as an entry of the model's file."""
        if self.average is None:
            return {}
        with self.average.in_use():
            return {"average": {name: value.clone() for name, value in self.job.model.state_dict().items()}}

    def _releases(self, steps: int) -> int:
        return min(steps, 1) if self.schedule.once else steps

    def _ledgers(self) -> list[Ledger]:
        return [each for each in (self.ledger, self.looks_ledger) if each is not None]

    def _force(self) -> None:
        for each in self._ledgers():
            each.force()

    def _name_stream(self) -> None:
        for each in self._ledgers():
            each.stream = self.stream

    def _position(self) -> dict[str, Any]:
        """Return the run, its position in the ledger, and whether the weights were trained without noise."""
        assert self.ledger is not None
        return {"run": self.schedule.run, "ledger": self.ledger.position().as_dict(), "clear": self.without_noise}

    def _content(self) -> dict[str, Any]:
        return {
            "identity": self.identity,
            "step": self.steps_done,
            **self._position(),
            **self._weights(),
            "sampler": self.sampler.state(),
            "noise": self.noise.state(),
            "stream": self.stream,
            "torch": torch.get_rng_state(),
            "cuda": torch.cuda.get_rng_state(self.device) if self.device.type == "cuda" else torch.zeros(0),
            "seen": self.diagnostics,
            "checked": self.checked,
            "rows": json.dumps(self.rows),
            "distances": torch.stack(self.distances) if self.distances else torch.zeros(0),
            "device": self.device.type,
            "software": SOFTWARE,
            **({} if self.average is None else {"average": self.average.values}),
            **({} if self.job.augmentation is None else {"augmentation": self.job.augmentation.key}),
            **({} if self.job.adaptive is None else {"clip_norm": self.job.adaptive.norm}),
            **({} if self.job.scheduler is None else {"scheduler": self.job.scheduler.state_dict()}),
            **({} if self.watch is None else {"best": self.watch.best, "waited": self.watch.waited}),
            **({} if self.correlated is None else {"correlated": self.correlated.state()}),
        }

    def _weights(self) -> dict[str, Any]:
        """Return weights and optimizers; or where each process has written its part, the number of parts."""
        if self.job.divided:
            return {"weights": {}, "optimizers": {}, "divided": distributed.size()}
        optimizers = {name: each.state_dict() for name, each in self.optimizers.items()}
        return {"weights": self.job.model.state_dict(), "optimizers": optimizers}

    def _restore_weights(self, stored: dict[str, Any]) -> None:
        sharding.require_processes(stored, self.job.divided, self.folder)
        if self.job.divided:
            sharding.load(self.folder, stored, self.job.model, self.optimizers)
            return
        self.job.model.load_state_dict(stored["weights"])
        for name, each in self.optimizers.items():
            each.load_state_dict(stored["optimizers"][name])

    def renew_noise(self) -> None:
        """Draw all later noise from a new key, and save it before it is used.

        The steps to come are in no ledger: a copy of this folder goes on with another key, and so never adds the same
        noise to another sum.
        """
        key = distributed.broadcast(new_key())
        self.noise.restore(key.hex())
        self.stream, self.repeats_until = key_digest(key), None
        self._name_stream()
        self.save()

    def _restore(self, *, fixed: bool) -> dict[str, Any]:
        """Continue from the checkpoint, and return its content; noise of a ``fixed`` seed stays that of the seed."""
        stored = self._load_checkpoint()
        self._restore_weights(stored)
        self.sampler.restore(stored["sampler"])
        self.noise.restore(stored["noise"])
        if self.correlated is not None:
            self.correlated.restore(stored["correlated"])
        torch.set_rng_state(stored["torch"].cpu())
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(stored["cuda"].cpu(), self.device)
        self.diagnostics, self.steps_done, self.rows = stored["seen"], stored["step"], json.loads(stored["rows"])
        self.distances, self.checked = list(stored["distances"].cpu()), list(stored.get("checked", ()))
        self.without_noise, self.stream = stored["clear"], stored["stream"]
        if self.job.augmentation is not None:
            self.job.augmentation.key = stored["augmentation"]
        if self.job.adaptive is not None:
            self.job.adaptive.norm = stored["clip_norm"]
        if self.job.scheduler is not None:
            self.job.scheduler.load_state_dict(stored["scheduler"])
        if self.watch is not None:
            self.watch.best, self.watch.waited = stored["best"], stored["waited"]
            self.ended = False if self.watch.is_over else None
        self._name_stream()
        self._require_ledger(stored, CHECKPOINT)
        if self.ledger is not None and self.schedule.step is not None:
            earlier = len(self.ledger.entries) - self.ledger.steps
            if stored["ledger"]["lines"] != earlier + self._releases(self.steps_done):
                fault = f"the checkpoint in {self.folder} does not fit its ledger"
                raise UsageError(f"{fault}. Begin again with `fresh=True`")
            self._require_repeatable(stored.get("software", SOFTWARE))
        if self.schedule.step is not None and not fixed:
            last = self.steps_done if self.ledger is None else max(self.steps_done, self.ledger.steps)
            self.repeats_until = distributed.broadcast(last)
        return stored

    def _require_repeatable(self, software: str) -> None:
        """Refuse to repeat steps by other software, whose sums may differ in their digits from the first ones."""
        assert self.ledger is not None
        if software != SOFTWARE and self.ledger.steps > self._releases(self.steps_done):
            raise UsageError(
                f"{self.ledger.path}: the steps since the checkpoint were taken by {software}, and are repeated with "
                f"the same noise, for which every digit of their sums must be the same; found {SOFTWARE}. Continue "
                f"with the first, or with `fork=True`, which accounts for both"
            )

    def _load_checkpoint(self) -> dict[str, Any]:
        path = self.folder / CHECKPOINT
        stored = checkpoint.load(path, self.device)
        if "sampler" not in stored:
            raise UsageError(
                f"{path} is a finished model, not a checkpoint. Put the right one back, or use `fork=True`"
            )
        averaged = {} if self.schedule.average is None else {"average": list}
        augmented = {} if self.job.augmentation is None else {"augmentation": int}
        adapted = {} if self.job.adaptive is None else {"clip_norm": float}
        scheduled = {} if self.job.scheduler is None else {"scheduler": dict}
        looked = {} if self.watch is None else {"best": float, "waited": int}
        looked |= {} if self.correlated is None else {"correlated": dict}
        checkpoint.require(stored, path, checkpoint.METRICS | averaged | augmented | adapted | scheduled | looked)
        if (stored["identity"], stored["run"]) != (self.identity, self.schedule.run):
            raise UsageError(
                f"the checkpoint in {self.folder} is of another recipe; give that one, "
                f"or `fork=True` to continue from its weights"
            )
        device = stored["device"]
        if device != self.device.type:
            raise UsageError(
                f"the checkpoint in {self.folder} was made on {device}, whose noise {self.device.type} cannot draw "
                f"again. Give `device={device}`, or `fork=True` to continue with new noise at its cost"
            )
        return stored

    def _inherit(self) -> None:
        """Begin from the weights of the run before, whatever its recipe; its steps stay in the ledger."""
        # divided weights were loaded before they were divided
        name, stored = inherit(None if self.job.divided else self.job.model, self.folder, self.device)
        self._require_ledger(stored, name)
        if stored["clear"] and not self.without_noise:
            raise Unsupported(
                f"the weights in {self.folder / name} were trained without privacy: no private training can continue "
                f"from them"
            )
        self.without_noise = self.without_noise or stored["clear"]

    def _require_ledger(self, stored: dict[str, Any], name: str) -> None:
        """Check that the ledger still holds every release that a file of this folder depends on."""
        if self.ledger is not None:
            position = ledger.Position(**stored["ledger"])
            ledger.require(self.ledger.entries, position, self.ledger.path, f"{self.folder / name}")
