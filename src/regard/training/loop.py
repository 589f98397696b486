"""The loop: batches in, updates out, the same ones whenever it is stopped and started again.

The order of batches is a function of (seed, epoch) and the randomness of an update of (seed, update, rank), so that
what a run does next depends on nothing but its checkpoint. What else moves is one small `Progress`.
"""

from __future__ import annotations

import dataclasses
import math
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.config import Config, TrainConfig
from regard.errors import FolderError, RunError
from regard.memory import free_memory, is_out_of_memory
from regard.models.folder import copy_weights, named_tensors, to_local
from regard.text.batching import Batch, Prefetcher, split_batch
from regard.training.checkpoint import (
    CheckpointWriter,
    checkpoint_path,
    delete_after,
    latest_checkpoint,
    load_checkpoint,
    rename_damaged,
    update_number,
)
from regard.training.data import Data
from regard.training.distributed import Runtime, full_tensor
from regard.training.journal import Journal
from regard.training.optimizer import make_optimizer, rate, reserve
from regard.training.step import Step

TOLERATED = 5  # updates in a row whose loss or gradient is no number, before the run goes back and slows down
LOWERED = 0.5  # what the rate is multiplied by then
AGREED_EVERY = 10  # updates after which several processes ask each other whether to stop


@dataclass
class Progress:
    """All that moves in a run besides weights and the optimizer's averages."""

    update: int = 0
    epoch: int = 0
    batch: int = 0
    """Global batches of the epoch that are consumed."""
    tokens: int = 0
    """Target tokens trained on."""
    skipped: int = 0
    """Updates left out because something was no number."""
    in_a_row: int = 0
    lowered: float = 1.0
    """What the rate is multiplied by since the last fall back."""
    split: int = 1
    """Parts a batch is divided into, since the GPU's memory did not hold it whole."""
    best: float = -math.inf
    best_loss: float = math.inf
    """Of what is equally good, that is the best which is surer of it."""
    best_update: int = 0
    stale: int = 0
    """Validations since the best."""
    seconds: float = 0.0
    finished: bool = False


class Taken(NamedTuple):
    """What an update is made from."""

    tokens: int
    """Of all processes."""
    cursor: tuple[int, int]
    """The epoch and the batch that come after it."""


@dataclass
class Validation:
    """What a validation found: higher is better."""

    score: float
    facts: dict[str, Any] = field(default_factory=dict)
    results: Sequence[Any] = ()
    """What was made for it, to be used again where the same weights are scored once more."""


Validate = Callable[[nn.Module], Validation]
Watch = Callable[[str, dict[str, Any]], None]
"""Told of every update, validation and save, and of what went wrong."""


class Training:
    """A run in a folder: its model, optimizer and averages, and where it stands."""

    def __init__(
        self, folder: Path, model: nn.Module, config: Config, data: Data, runtime: Runtime,
        again: Callable[[], nn.Module] | None = None,
    ) -> None:  # fmt: skip
        """`again` makes the model once more as it is at update 0, to begin anew where numbers ended before a save."""
        self.folder, self.config, self.data, self.runtime = folder, config, data, runtime
        self.model = runtime.place(model, sharded=config.train.sharded)
        self.writers = runtime.checkpoint_group(sharded=config.train.sharded)
        """The processes that write a checkpoint together; None where the main one has all there is."""
        self.optimizer = make_optimizer(self.model, config.train)
        self.average = {n: p.clone() for n, p in named_tensors(self.model).items()} if config.train.ema_decay else None
        self.progress = Progress()
        self._taken: Taken | None = None
        """The next update's gradients, where the device was told of them before it was done with the last."""
        self._ahead = runs_ahead(config, runtime)
        self._again = again
        self._saver: CheckpointWriter | None = None
        self.validated: tuple[int, Validation] | None = None
        """The last validation of this process, and the update it was of."""
        self.remarks: list[str] = []
        self.signal = 0
        """What asked the run to stop."""

    # Checkpoints

    def state(self) -> dict[str, dict[str, Tensor]]:
        """Every tensor the run goes on from."""
        names = {id(parameter): name for name, parameter in self.model.named_parameters()}
        optimizer = {
            f"{names[id(parameter)]}:{key}": value
            for parameter, values in self.optimizer.state.items()
            for key, value in values.items()
        }
        groups: dict[str, dict[str, Tensor]] = {"model": named_tensors(self.model), "optimizer": optimizer}
        return groups | ({"average": self.average} if self.average is not None else {})

    def resume(self) -> bool:
        """Go on from the newest checkpoint that is sound, saying which were not; False where there is none."""
        path = self._newest()
        if path is None:
            return False
        self._load(path)
        return True

    def _newest(self, where: Callable[[int], bool] = lambda _: True) -> Path | None:
        """The checkpoint to go on from: the main process looks, and all take the same."""
        path, self.remarks = latest_checkpoint(self.folder, where=where) if self.runtime.is_main else (None, [])
        if self.remarks:
            rename_damaged(self.folder, path, where=where)
            begins = "no checkpoint is sound, so training begins again at update 1; " if path is None else ""
            self.remarks.append(f"{begins}what was passed over is now named damaged-update-...")
        update = int(self.runtime.broadcast(-1 if path is None else update_number(path)))
        return None if update < 0 else checkpoint_path(self.folder, update)

    def _part(self, name: str, saved: Tensor) -> Tensor:
        """Averages and states are divided as their weights are."""
        weight = dict(self.model.named_parameters()).get(name.partition(":")[0])
        if weight is None or weight.shape != saved.shape:
            return torch.empty_like(saved, device="cpu")
        return torch.empty_like(weight.detach(), dtype=saved.dtype)

    def _load(self, path: Path) -> None:
        found = load_checkpoint(path, check=False, part=self._part if self.writers else None)
        copy_weights(self.model, found.tensors["model"], path)
        named = dict(self.model.named_parameters())
        self.optimizer.state.clear()
        for key, value in found.tensors["optimizer"].items():
            name, _, kind = key.rpartition(":")
            place = "cpu" if kind == "step" and self.runtime.device.type == "cpu" else self.runtime.device
            self.optimizer.state[named[name]][kind] = value.to(place)
        if self.average is not None:
            saved = found.tensors["average"]
            self.average = {name: saved[name].to(self.runtime.device) for name in named_tensors(self.model)}
        try:
            self.progress = Progress(**found.progress)
        except TypeError as error:
            raise FolderError(f"{path} was written by another version of Regard: {error}") from error

    def _restart(self, again: Callable[[], nn.Module]) -> None:
        """Back to update 0, for which there is no checkpoint."""
        model = again()
        if self.config.train.sharded:
            model = self.runtime.place(model, sharded=True)
        copy_weights(self.model, named_tensors(model), self.folder)
        for values in self.optimizer.state.values():
            for value in values.values():
                value.zero_()  # as AdamW begins; its memory stays its own
        if self.average is not None:
            self.average = {name: tensor.clone() for name, tensor in named_tensors(self.model).items()}
        self.progress = Progress()

    # The story

    def run(self, validate: Validate, watch: Watch) -> Progress:
        """Train to the last update, or until a signal asks to stop; the folder can be resumed from wherever it ends."""
        settings, progress = self.config.train, self.progress
        step = self._prepared()
        journal = Journal(self.folder / "journal.jsonl" if self.runtime.is_main else None, progress.update)
        self._saver = saver = CheckpointWriter(self.folder, keep=settings.keep_checkpoints, writers=self.writers)
        held = self.optimizer.register_step_pre_hook(
            lambda *_: saver.wait_for_copy()
        )  # no step changes what is being saved
        with journal, saver, held, _asked_to_stop() as stop:
            batches, split = self._batches(), progress.split
            self._rehearse(step)
            while progress.update < settings.updates and not progress.finished:
                begun = time.perf_counter()
                facts = self._update(step, batches)
                took = time.perf_counter() - begun
                progress.seconds += took
                if progress.split > split:
                    split = progress.split
                    watch("split", {"update": progress.update, "parts": split})
                    journal.write("split", progress.update, parts=split)
                if facts is None:
                    watch("skipped", {"update": progress.update + 1})
                    journal.write("skipped", progress.update + 1)
                    if progress.in_a_row >= TOLERATED:
                        self._fall_back(saver)
                        progress, batches = self.progress, self._batches()
                        watch("fell_back", {"update": progress.update, "remarks": self.remarks})
                        journal.take_back(progress.update)
                        facts = {"lowered": progress.lowered, "skipped": progress.skipped}
                        journal.write("fell_back", progress.update + 1, **facts)
                    continue
                last = progress.update == settings.updates
                watch("update", {**facts, "update": progress.update, "seconds": took})
                self.signal = stop()
                stopping = self._all_asked_to_stop(bool(self.signal))
                if progress.update % 10 == 0 or progress.update == 1 or last:
                    journal.write("update", progress.update, **facts, seconds=round(took, 6))
                if progress.update % settings.validate_every == 0 or last:
                    self._validate(step, validate, watch, journal)
                progress.finished = last or (settings.patience > 0 and progress.stale >= settings.patience)
                best = (
                    progress.best_update == progress.update and not settings.average_checkpoints
                )  # it is what is kept
                if progress.update % settings.save_every == 0 or best or progress.finished or stopping:
                    self._save(saver, watch)
                if stopping and not progress.finished:
                    saver.wait()
                    break
        return progress

    def _all_asked_to_stop(self, here: bool) -> bool:
        """Processes agree on it every few updates, so that all of them stop at the same one."""
        if self.runtime.world_size == 1:
            return here
        return self.progress.update % AGREED_EVERY == 0 and self.runtime.any_process(here)

    def _prepared(self) -> Step:
        self.model.train()
        step = Step(self.runtime.wrap(self.model), self.config, self.runtime)
        if self._ahead and not self.optimizer.state:
            reserve(self.optimizer)
        return step

    def _batches(self) -> Iterator[Batch]:
        """This process's share of every global batch from where the run stands, epoch after epoch, without end."""
        number, cursor = self.progress.epoch, self.progress.batch
        while True:
            epoch = self.data.epoch(number, rank=self.runtime.rank, world_size=self.runtime.world_size)
            with Prefetcher(epoch.make, range(cursor, len(epoch.plan)), device=self.runtime.device) as feed:
                for batch in feed:
                    cursor += 1
                    self.cursor = (number, cursor) if cursor < len(epoch.plan) else (number + 1, 0)
                    yield batch
            number, cursor = number + 1, 0

    def _update(self, step: Step, batches: Iterator[Batch]) -> dict[str, Any] | None:
        """One update from the next micro-batches; None where something was no number, and nothing was changed.

        A GPU is not kept waiting: it sees for itself whether all are numbers, and is told of the next update before it
        is asked about this one.
        """
        settings, progress = self.config.train, self.progress
        update = progress.update + 1
        taken, self._taken = self._taken or self._take(step, batches, update + progress.skipped), None
        norm = full_tensor(nn.utils.clip_grad_norm_(self.model.parameters(), settings.max_grad_norm or math.inf))
        found = self.runtime.all_reduce_tensor(torch.stack([step.plain, norm]))
        learning = rate(update, settings, self.config.model.size) * progress.lowered
        for group in self.optimizer.param_groups:
            group["lr"] = learning
        if self._ahead:
            self.optimizer.found_inf = 1 - found.isfinite().all().float()  # type: ignore[attr-defined]
            self.optimizer.step()
            if update < settings.updates:
                self._taken = self._take(step, batches, update + progress.skipped + 1)
        loss, length = found.tolist()  # the one time an update waits for the device
        progress.epoch, progress.batch = taken.cursor
        if not math.isfinite(loss) or not math.isfinite(length):
            progress.skipped += 1
            progress.in_a_row += 1
            return None
        if not self._ahead:
            self.optimizer.step()
        if self.average is not None:
            self._follow(update)
        progress.update, progress.in_a_row = update, 0
        progress.tokens += taken.tokens
        return {
            "loss": loss / taken.tokens,
            "grad_norm": length / self.runtime.world_size,
            "learning_rate": learning,
            "tokens": taken.tokens,
            "epoch": progress.epoch,
        }

    def _take(self, step: Step, batches: Iterator[Batch], attempt: int) -> Taken:
        """The gradients of the next micro-batches, and what of them is known before the device has done anything."""
        micro = [next(batches) for _ in range(self.config.train.gradient_accumulation)]
        cursor = self.cursor
        (tokens,) = self.runtime.all_reduce(sum(batch.target_tokens for batch in micro))
        tokens = max(tokens, 1)  # a bert may find nothing to guess among words it does not know
        # The sum over all tokens of all processes; gradients of processes are averaged, so times their number.
        while not self._gradients(step, micro, self.runtime.world_size / tokens, attempt, last=True):
            if self._saver is None or not self._saver.free_device_memory():
                self._split(step, micro)
        return Taken(int(tokens), cursor)

    def _gradients(self, step: Step, batches: list[Batch], scale: float, attempt: int, *, last: bool) -> bool:
        """Those of `scale` times the loss, joined with other processes' after the `last`; False: too little memory."""
        progress, rank = self.progress, self.runtime.rank
        torch.manual_seed(_mix(self.config.train.seed, attempt, rank))
        parts = [part for batch in batches for part in split_batch(batch, progress.split)]
        step.begin()
        try:
            for number, part in enumerate(parts, 1):
                step(part, scale, last=last and number == len(parts))
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            if last and self.runtime.world_size > 1:  # the others wait for its gradients
                raise RunError(
                    f"process {rank} ran out of GPU memory at update {progress.update + 1}: begin anew (--fresh) with "
                    f"a smaller train.batch_tokens ({self.config.train.batch_tokens})"
                ) from error
            return False
        return True

    def _split(self, step: Step, batches: list[Batch]) -> None:
        """Twice as many parts from here on."""
        rows, shape = max((len(batch.target_out), batch.target_out.shape[1]) for batch in batches)
        if self.progress.split >= rows:
            raise RunError(
                f"one example of {shape} tokens does not fit into the GPU's memory: begin anew (--fresh) with a "
                f"smaller text.max_length ({self.config.text.max_length}) or model.size ({self.config.model.size})"
            )
        self.progress.split *= 2
        self._make_room(step)

    def _make_room(self, step: Step) -> None:
        step.forget()
        free_memory()

    def _rehearse(self, step: Step) -> None:
        """Several processes first try their largest batches without each other, and agree on how they are split.

        One that ran out of memory later, amid joining gradients, would leave the others waiting.
        """
        rank, world = self.runtime.rank, self.runtime.world_size
        if world == 1 or self.config.train.sharded:
            return
        epoch = self.data.epoch(self.progress.epoch, rank=rank, world_size=world)
        rows, lengths = epoch.plan.shapes[:, 0], epoch.plan.shapes[:, 1:].sum(axis=1)
        largest = {int(sizes.argmax()) for sizes in (rows, lengths, rows * lengths)}
        for number in sorted(largest):
            batch = epoch.make(number).each(lambda tensor: tensor.to(self.runtime.device))
            while self.runtime.any_process(not self._gradients(step, [batch], 1.0, 1, last=False)):
                self._split(step, [batch])

    @torch.no_grad()
    def _follow(self, update: int) -> None:
        """The exponential average, quicker at first so that it forgets the random start."""
        assert self.average is not None
        decay = min(self.config.train.ema_decay, (1 + update) / (10 + update))
        ours = [to_local(tensor) for tensor in named_tensors(self.model).values()]
        torch._foreach_lerp_([to_local(tensor) for tensor in self.average.values()], ours, 1 - decay)

    def _validate(self, step: Step, validate: Validate, watch: Watch, journal: Journal) -> None:
        begun = time.perf_counter()
        with self.averaged(), self.runtime.unsharded(self.model):
            found = self._found(step, validate)
        found = dataclasses.replace(found, score=self.runtime.broadcast(found.score))  # or they might not stop together
        self.model.train()
        took = time.perf_counter() - begun
        progress = self.progress
        self.validated = progress.update, found
        progress.stale += 1
        loss = self.runtime.broadcast(float(found.facts.get("valid_loss", math.inf)))
        if (found.score, -loss) > (progress.best, -progress.best_loss):
            progress.best, progress.best_loss, progress.best_update = found.score, loss, progress.update
            progress.stale = 0
        best = progress.best_update == progress.update
        watch("validation", {**found.facts, "update": progress.update, "best": best, "seconds": took})
        journal.write("validation", progress.update, **found.facts, seconds=round(took, 3))

    def _found(self, step: Step, validate: Validate) -> Validation:
        """What a validation finds; where memory is short, the recordings of training have it and give it back."""
        try:
            return validate(self.model)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
        self._make_room(step)
        try:
            return validate(self.model)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            raise RunError(
                f"a validation does not fit into the GPU's memory: begin anew (--fresh) with a smaller "
                f"train.batch_tokens "
                f"({self.config.train.batch_tokens}) or decode.beams ({self.config.decode.beams})"
            ) from error

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Inside, the model has the averaged weights where there are any."""
        if self.average is None:
            yield
            return
        before = {name: tensor.clone() for name, tensor in named_tensors(self.model).items()}
        copy_weights(self.model, self.average, self.folder)
        try:
            yield
        finally:
            copy_weights(self.model, before, self.folder)

    def _save(self, saver: CheckpointWriter, watch: Watch) -> None:
        progress = self.progress
        if self.runtime.is_main or self.writers:
            begun = time.perf_counter()
            settings = self.config.train
            protect = [progress.update, progress.best_update, *last_saved(progress.update, settings)]
            if not progress.finished and progress.update != progress.best_update:  # a run may fall back to it
                protect.append(progress.update - progress.update % settings.save_every)
            saver.save(progress.update, self.state(), dataclasses.asdict(progress), protect=protect)
            watch("saved", {"update": progress.update, "seconds": time.perf_counter() - begun})

    def _fall_back(self, saver: CheckpointWriter) -> None:
        """Too many updates in a row were no numbers: go back to a checkpoint, or the start, with a lower rate.

        Not to one that was saved because somebody stopped the run: one that nothing has stopped has none there.
        """
        saver.wait()
        settings, best = self.config.train, self.progress.best_update
        path = self._newest(
            lambda update: not update % settings.save_every or (update == best and not settings.average_checkpoints)
        )
        lowered, skipped, split = self.progress.lowered * LOWERED, self.progress.skipped, self.progress.split
        if (path is None and self._again is None) or lowered < 1e-3:
            tried = ", and going back did not help" if self.progress.lowered < 1 else ""
            raise RunError(
                f"{self.progress.in_a_row} updates in a row gave no number at update {self.progress.update + 1}"
                f"{tried}: lower train.learning_rate ({self.config.train.learning_rate}) or use train.precision=fp32"
            )
        if path is not None:
            self._load(path)
        elif self._again is not None:
            self._restart(self._again)
        if self.runtime.is_main:
            delete_after(self.folder, self.progress.update)
        self._taken = None
        self.progress = dataclasses.replace(self.progress, lowered=lowered, skipped=skipped, split=split, in_a_row=0)


def last_saved(update: int, settings: TrainConfig) -> list[int]:
    """The updates whose checkpoints `train.average_checkpoints` averages at this update."""
    whole = range(update - update % settings.save_every, 0, -settings.save_every)
    return [update, *(each for each in whole if each != update)][: settings.average_checkpoints]


def runs_ahead(config: Config, runtime: Runtime) -> bool:
    """Whether the device is told of an update before it is done with the last: a GPU works while Python talks."""
    return runtime.device.type == "cuda" and not config.train.sharded


def _mix(*numbers: int) -> int:
    """One seed of several numbers, so that none is like another's neighbour."""
    value = 0x9E3779B97F4A7C15
    for number in numbers:
        value = ((value ^ number) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
        value ^= value >> 31
    return value & (2**63 - 1)


@contextmanager
def _asked_to_stop() -> Iterator[Callable[[], int]]:
    """The signal, SIGTERM or Ctrl-C, that has come, or 0; the same one again ends the program at once.

    Not the other: Ctrl-C reaches the parent of a run too, which then ends its children with SIGTERM.
    """
    asked: list[int] = []

    def hear(number: int, frame: object) -> None:
        if number in asked:
            raise KeyboardInterrupt
        asked.append(number)

    before = {number: signal.signal(number, hear) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield lambda: asked[0] if asked else 0
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
