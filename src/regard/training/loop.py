"""The training loop; an interrupted run that resumes makes the same updates as an uninterrupted one.

The order of batches depends only on (seed, epoch), and the random numbers of an update only on (seed, update, rank).
All other state is in the checkpoint: tensors and `Progress`.
"""

from __future__ import annotations

import dataclasses
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.config import Config
from regard.errors import RunError
from regard.folders import delete
from regard.memory import free_memory, is_out_of_memory
from regard.models.folder import check_shapes, copy_weights, named_tensors
from regard.text.batching import Batch, prefetch, row_count, split_batch
from regard.training import checkpoint, journal
from regard.training.checkpoint import CheckpointWriter, Progress
from regard.training.clock import Clock
from regard.training.data import Data
from regard.training.distributed import Runtime, full_tensor, shard_like, to_local
from regard.training.events import ActivityEvent, Event, Observer, ProblemEvent, UpdateEvent, ValidationEvent
from regard.training.gradients import Gradients
from regard.training.optimizer import allocate_state, learning_rate, make_optimizer
from regard.training.validation import Validation

MAX_NAN_IN_A_ROW = 5  # updates with a non-finite loss or gradient, before training is rolled back
ROLLBACK_LR_SCALE = 0.5  # every rollback multiplies the learning rate by it
MIN_LR_SCALE = 1e-3  # if the learning rate would become lower than this, the run fails
VALIDATION_GAP = 10  # with --minutes, the updates after a validation take at least so many times as long as it did
STOP_CHECK_EVERY = 10  # updates after which processes agree (all_reduce) on whether to stop

Validate = Callable[[nn.Module], Validation]


class PendingUpdate(NamedTuple):
    """An update whose gradients are computed, or queued on the GPU."""

    tokens: int  # target tokens of all processes
    cursor: tuple[int, int]  # the epoch and batch to continue with after this update
    position: float  # after this update, by the main process's clock; 0 without train.minutes


class Training:
    """A run in a folder: model, optimizer, averaged weights and progress."""

    def __init__(
        self, folder: Path, model: nn.Module, config: Config, data: Data, runtime: Runtime, clock: Clock | None = None
    ) -> None:
        self.folder, self.config, self.data, self.runtime = folder, config, data, runtime
        self.model = runtime.place(model, sharded=config.train.sharded)
        self.optimizer = make_optimizer(self.model, config.train)
        self.average = {n: p.clone() for n, p in named_tensors(self.model).items()} if config.train.ema_decay else None
        self.clock = clock or Clock(config.train)
        self.progress = Progress(next_validation=config.train.validate_every, next_save=config.train.save_every)
        self.batches: Iterator[Batch] = self._endless_batches()  # this process's shard of each of the next batches
        self.signal = 0  # the signal that asked the run to stop
        self._stops_at_once = False  # a signal raises KeyboardInterrupt
        self._cursor = (0, 0)
        self._pending: PendingUpdate | None = None
        self._runs_ahead = runs_ahead(config, runtime)
        self._gradients: Gradients | None = None
        self._saver: CheckpointWriter | None = None  # while the run is running
        self._observe: Observer = lambda event: None

    # One update

    def step(self) -> UpdateEvent | None:
        """Make one update: forward, backward, clip, optimizer.

        Returns None if the loss or gradient was NaN or inf. The weights are not changed then, and after several such
        updates in a row the run is rolled back to its last checkpoint. On a GPU, the optimizer checks on the device
        whether the loss is finite, and the gradients of the next update are queued before this loss is read.
        """
        start, settings, progress = time.perf_counter(), self.config.train, self.progress
        update = progress.update + 1
        pending, self._pending = self._pending or self._compute_gradients(update + progress.skipped), None
        grad_norm = full_tensor(nn.utils.clip_grad_norm_(self.model.parameters(), settings.max_grad_norm or math.inf))
        sums = self.runtime.all_reduce_tensor(torch.stack([self.gradients.nll, grad_norm]))
        position = max(pending.position, 1.0) if settings.minutes else update
        lr = learning_rate(position, settings, self.config.model.size) * progress.lr_scale
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        read_sums = read_later(sums)
        if self._runs_ahead:
            self.optimizer.found_inf = 1 - sums.isfinite().all().float()  # type: ignore[attr-defined]
            self.optimizer.step()
            if position < settings.updates:
                self._pending = self._compute_gradients(update + progress.skipped + 1)
        nll, norm = read_sums()  # the only time that an update waits for the GPU
        progress.epoch, progress.batch = pending.cursor
        is_finite = math.isfinite(nll) and math.isfinite(norm)
        if is_finite:
            if not self._runs_ahead:
                self.optimizer.step()
            if self.average is not None:
                self._update_ema(update)
            progress.update, progress.position, progress.nan_in_a_row = update, position, 0
            progress.tokens += pending.tokens
        else:
            progress.skipped += 1
            progress.nan_in_a_row += 1
        seconds = time.perf_counter() - start
        progress.seconds += seconds
        if not is_finite:
            message = (
                f"update {update:,} skipped: loss {nll}, gradient norm {norm}; {journal.FILE} lists all such updates"
            )
            self._observe(ProblemEvent("skipped", update, message if progress.skipped == 1 else ""))
            if progress.nan_in_a_row >= MAX_NAN_IN_A_ROW and self._saver is not None:
                self._roll_back(self._saver)
            return None
        loss, norm = nll / pending.tokens, norm / self.runtime.world_size
        event = UpdateEvent(update, loss, norm, lr, pending.tokens, progress.epoch, seconds)
        self._observe(event)
        return event

    @property
    def gradients(self) -> Gradients:
        """The forward and backward pass, made when it is first needed."""
        if self._gradients is None:
            self.model.train()
            self._gradients = Gradients(self.runtime.wrap(self.model), self.config, self.runtime)
            if self._runs_ahead and not self.optimizer.state:
                allocate_state(self.optimizer)
        return self._gradients

    def _endless_batches(self) -> Iterator[Batch]:
        """This process's shard of every batch, epoch after epoch."""
        epoch_number, cursor = self.progress.epoch, self.progress.batch
        while True:
            epoch = self.data.epoch(epoch_number, rank=self.runtime.rank, world_size=self.runtime.world_size)
            for batch in prefetch(epoch.make, range(cursor, len(epoch.plan)), device=self.runtime.device):
                cursor += 1
                self._cursor = (epoch_number, cursor) if cursor < len(epoch.plan) else (epoch_number + 1, 0)
                yield batch
            epoch_number, cursor = epoch_number + 1, 0

    def _compute_gradients(self, attempt: int) -> PendingUpdate:
        """Compute, or queue on the GPU, the gradients of the next micro-batches, in parts if its memory is short."""
        settings, progress, runtime = self.config.train, self.progress, self.runtime
        micro_batches = [next(self.batches) for _ in range(settings.gradient_accumulation)]
        cursor = self._cursor
        position = self.clock.position() if settings.minutes and runtime.is_main else 0.0
        total, position = runtime.all_reduce(sum(batch.target_tokens for batch in micro_batches), position)
        tokens = max(int(total), 1)  # masked language modelling may mask no token of a small batch
        while True:
            torch.manual_seed(_mix_seed(settings.seed, attempt, runtime.rank))
            parts = [part for batch in micro_batches for part in split_batch(batch, progress.split)]
            if settings.packed and progress.split > 1:
                self.gradients.uses_graphs = False  # the parts of a packed batch differ in shape
            self.gradients.zero()
            try:
                for number, part in enumerate(parts, 1):
                    # The loss is the mean over the tokens of all processes. DDP averages gradients over processes, so
                    # it is multiplied by their number.
                    self.gradients.accumulate(part, runtime.world_size / tokens, last=number == len(parts))
                return PendingUpdate(tokens, cursor, position)
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                is_one_example = progress.split >= max(map(row_count, micro_batches))
                if is_one_example or runtime.world_size > 1:  # other processes wait for its gradients
                    raise RunError(
                        f"process {runtime.rank} ran out of GPU memory at update {progress.update + 1}: start over "
                        f"(--fresh) with a smaller train.batch_tokens ({settings.batch_tokens}), text.max_length "
                        f"({self.config.text.max_length}) or model.size ({self.config.model.size})"
                    ) from error
            progress.split *= 2
            free_memory()
            message = f"out of GPU memory after update {progress.update:,}: split batches into {progress.split} parts"
            self._observe(ProblemEvent("split", progress.update, message, {"parts": progress.split}))

    # The run

    def run(self, validate: Validate, observe: Observer) -> Progress:
        """Train to the last update, or until a signal asks to stop; a stopped run can be resumed."""
        settings, path = self.config.train, self.folder / journal.FILE
        entries = journal.Journal(path, self.progress.update, self.clock) if self.runtime.is_main else None

        def pass_on(event: Event) -> None:
            self.clock.observe(event)
            observe(event)
            if entries is not None:
                entries.observe(event)

        self._observe, self.signal = pass_on, 0
        try:
            with CheckpointWriter(self.folder, keep=settings.keep_checkpoints) as saver, self._handling_signals():
                self._saver = saver
                with self.optimizer.register_step_pre_hook(lambda *_: saver.wait_for_copy()):
                    self._train(saver, validate)
        finally:
            self._saver, self._observe = None, lambda event: None
            self._restart_batches()  # ends the thread that loads batches
        return self.progress

    def _train(self, saver: CheckpointWriter, validate: Validate) -> None:
        """Update, save and validate until the run is finished, or until a signal asks to stop."""
        settings = self.config.train
        if not self.progress.update:
            if settings.minutes:
                self.clock.prepared = self.progress.prepared = self.clock.elapsed()
            self._save(saver)  # a rollback may need it
        while not self.finished:
            if not self._is_validation_due():
                if self.step() is None:
                    continue
                progress, stopping = self.progress, bool(self.signal)
                if self.runtime.world_size > 1:  # all processes must stop at the same update
                    stopping = progress.update % STOP_CHECK_EVERY == 0 and self.runtime.all_reduce(stopping)[0] > 0
                is_due = progress.position >= progress.next_save
                if is_due:
                    progress.next_save = progress.position + settings.save_every
                if is_due or stopping or self._is_validation_due():
                    self._save(saver)
                if stopping:
                    return
                continue
            try:
                self._stops_at_once = self.runtime.world_size == 1
                if self._stops_at_once and self.signal:
                    return
                self._validate(saver, validate)
            except KeyboardInterrupt:  # the resumed run validates
                return
            finally:
                self._stops_at_once = False
            progress = self.progress
            out_of_patience = 0 < settings.patience <= progress.validations_since_best
            if progress.position >= settings.updates or out_of_patience:
                progress.finished_at = settings.minutes or settings.updates
                self._save(saver)

    def _is_validation_due(self) -> bool:
        return self.progress.position >= min(self.progress.next_validation, self.config.train.updates)

    def _validate(self, saver: CheckpointWriter, validate: Validate) -> None:
        start, progress, settings = time.perf_counter(), self.progress, self.config.train
        self._observe(ActivityEvent(progress.update, "validating"))
        saver.wait_for_copy()  # averaged weights replace the others for a while
        with self.averaged(), self.runtime.unsharded(self.model):
            validation = validate(self.model)
            seconds = time.perf_counter() - start
            position = self.clock.position() if settings.minutes else progress.position
            # the main process decides for all, or they might not stop together
            values = validation.score, validation.loss, position, validation.metrics.get("sentences", 0)
            score, loss, position, sentences = map(self.runtime.broadcast, values)
            used = position - progress.position
            progress.position = position
            progress.next_validation = position + max(settings.validate_every, VALIDATION_GAP * used)
            best_score, best_loss = progress.best_score, progress.best_loss
            is_best = math.isfinite(score) and math.isfinite(loss)
            if is_best and best_score is not None and best_loss is not None:
                # scores of different sentences, as with little time left, cannot be compared
                comparable = sentences == progress.best_sentences
                is_best = (score, -loss) > (best_score, -best_loss) if comparable else loss < best_loss
            progress.validations_since_best += 1
            if is_best:
                progress.best_score, progress.best_loss, progress.best_update = score, loss, progress.update
                progress.best_sentences = int(sentences)
                progress.validations_since_best = 0
            scores = {"valid_loss": validation.loss, **validation.metrics}
            self._observe(ValidationEvent(progress.update, scores, validation.sample, is_best, seconds, self.model))
        self.model.train()

    # Averaged weights

    @torch.no_grad()
    def _update_ema(self, update: int) -> None:
        """Update the exponential moving average (EMA); its decay starts low, to forget the initial weights soon."""
        assert self.average is not None
        decay = min(self.config.train.ema_decay, (1 + update) / (10 + update))
        weights = [to_local(tensor) for tensor in named_tensors(self.model).values()]
        torch._foreach_lerp_([to_local(tensor) for tensor in self.average.values()], weights, 1 - decay)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """A context in which the model has its averaged weights, if train.ema_decay is set."""
        if self.average is None:
            yield
            return
        weights = {name: tensor.clone() for name, tensor in named_tensors(self.model).items()}
        copy_weights(self.model, self.average, self.folder)
        try:
            yield
        finally:
            copy_weights(self.model, weights, self.folder)

    # Checkpoints

    def state(self) -> dict[str, dict[str, Tensor]]:
        """Every tensor of a checkpoint: weights, optimizer state and averaged weights."""
        names = {id(parameter): name for name, parameter in self.model.named_parameters()}
        optimizer = {
            f"{names[id(parameter)]}:{key}": value
            for parameter, values in self.optimizer.state.items()
            for key, value in values.items()
        }
        groups: dict[str, dict[str, Tensor]] = {"model": named_tensors(self.model), "optimizer": optimizer}
        return groups | ({"average": self.average} if self.average is not None else {})

    def resume(self) -> list[str]:
        """Load the newest intact checkpoint, if there is one; returns messages for the user."""
        path, messages = self._newest_checkpoint()
        if path is not None:
            self._load(path)
        progress, settings = self.progress, self.config.train
        if settings.minutes:  # the time of updates after the checkpoint counts, although they are lost
            entries = journal.read(self.folder / journal.FILE)
            self.clock.spent = max([progress.elapsed, *(entry.get("elapsed", 0.0) for entry in entries)])
            self.clock.prepared = progress.prepared
        if progress.update and not self.finished:
            messages.append(f"resumed at update {progress.update:,}")
            if progress.finished_at:  # and continues to a later end
                progress.finished_at = progress.validations_since_best = 0
                if settings.minutes:  # the same time is another position in the longer run
                    progress.position = self.runtime.broadcast(self.clock.position())
                    progress.next_validation = progress.position + settings.validate_every
                    progress.next_save = progress.position + settings.save_every
        return messages

    @property
    def finished(self) -> bool:
        """Whether the run has ended. It continues if its config has been given a later end."""
        return self.progress.finished_at == (self.config.train.minutes or self.config.train.updates)

    def _newest_checkpoint(self, where: Callable[[int], bool] = lambda _: True) -> tuple[Path | None, list[str]]:
        """The newest intact checkpoint, which the main process chooses for all, and messages about damaged ones."""
        path, messages = checkpoint.latest_checkpoint(self.folder, where=where) if self.runtime.is_main else (None, [])
        if messages:
            start = "no checkpoint is intact, so training starts over at update 1; " if path is None else ""
            messages.append(f"{start}damaged checkpoints are now named damaged-update-...")
        update = int(self.runtime.broadcast(-1 if path is None else checkpoint.update_number(path)))
        return None if update < 0 else checkpoint.checkpoint_path(self.folder, update), messages

    def _load(self, path: Path) -> None:
        named = dict(self.model.named_parameters())
        # EMA and optimizer state (NAME:KIND) are sharded like their weight
        tensors = checkpoint.load_tensors(
            path, lambda name, saved: shard_like(named.get(name.partition(":")[0]), saved)
        )
        copy_weights(self.model, tensors["model"], path)
        self.optimizer.state.clear()
        for key, value in tensors.get("optimizer", {}).items():
            name, _, kind = key.rpartition(":")
            device = "cpu" if kind == "step" and self.runtime.device.type == "cpu" else self.runtime.device
            self.optimizer.state[named[name]][kind] = value.to(device)
        if self.average is not None:
            saved = tensors.get("average", {})
            check_shapes(self.model, saved, path)
            self.average = {name: saved[name].to(self.runtime.device) for name in named_tensors(self.model)}
        self.progress = checkpoint.read_progress(path)
        self._restart_batches()

    def _restart_batches(self) -> None:
        """Continue with the batches after `progress`."""
        self._pending = None
        self.batches = self._endless_batches()

    def _save(self, saver: CheckpointWriter) -> None:
        progress, settings, tensors = self.progress, self.config.train, self.state()
        if settings.sharded and self.runtime.world_size > 1:

            def gather(tensor: Tensor) -> Tensor:  # one after the other: all of them may not fit into GPU memory
                whole = full_tensor(tensor)
                return whole.cpu() if self.runtime.is_main else torch.empty(0)

            tensors = {group: {name: gather(x) for name, x in named.items()} for group, named in tensors.items()}
        if not self.runtime.is_main:
            return
        self._observe(ActivityEvent(progress.update, "saving"))
        progress.elapsed = self.clock.elapsed() if settings.minutes else 0.0
        protect = [progress.update, progress.best_update]
        if not self.finished:  # a rollback may need the last one by train.save_every
            protect.append(progress.update // settings.save_every * settings.save_every)
        saver.save(progress.update, tensors, dataclasses.asdict(progress), protect=protect)

    def _roll_back(self, saver: CheckpointWriter) -> None:
        """Roll back to a checkpoint and lower the learning rate: the loss was NaN too often in a row.

        Checkpoints that were saved because the run was stopped are not used: an uninterrupted run does not have them.
        """
        saver.wait()
        before, settings = self.progress, self.config.train
        path, messages = self._newest_checkpoint(
            lambda update: bool(settings.minutes) or update % settings.save_every == 0 or update == before.best_update
        )
        lr_scale = before.lr_scale * ROLLBACK_LR_SCALE
        if lr_scale < MIN_LR_SCALE or path is None:
            raise RunError(
                f"loss was NaN {before.nan_in_a_row} times in a row at update {before.update + 1}, and rolling back "
                f"did not help: lower train.learning_rate ({settings.learning_rate}) or use train.precision=fp32"
            )
        self._load(path)
        for newer in checkpoint.checkpoints(self.folder) if self.runtime.is_main else ():
            if checkpoint.update_number(newer) > self.progress.update:
                delete(newer)
        self.progress = dataclasses.replace(
            self.progress, lr_scale=lr_scale, nan_in_a_row=0, skipped=before.skipped, split=before.split
        )
        message = f"loss was NaN {before.nan_in_a_row} times in a row: rolled back to update {self.progress.update:,}"
        message = "\n".join([f"{message}, learning rate halved", *messages])
        values = {"lr_scale": lr_scale, "skipped": before.skipped}
        self._observe(ProblemEvent("rollback", self.progress.update, message, values))

    # Signals

    @contextmanager
    def _handling_signals(self) -> Iterator[None]:
        """Handle SIGTERM and SIGINT (Ctrl-C) within the context; `signal` becomes the one that asked to stop."""
        if threading.current_thread() is not threading.main_thread():  # only the main thread may set handlers
            yield
            return
        before = {number: signal.signal(number, self._receive) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _receive(self, number: int, frame: object) -> None:
        """Store the first signal; the same signal again, or one during a validation, raises KeyboardInterrupt.

        Another one is ignored: Ctrl-C reaches torchrun too, which then ends its processes with SIGTERM.
        """
        repeated = number == self.signal
        self.signal = self.signal or number
        if repeated or self._stops_at_once:
            raise KeyboardInterrupt


def runs_ahead(config: Config, runtime: Runtime) -> bool:
    """Whether the next update is queued before this loss is read, so that the GPU does not wait for Python."""
    return runtime.device.type == "cuda" and not config.train.sharded


def read_later(values: Tensor) -> Callable[[], list[float]]:
    """Start copying values to the host; the returned function waits for that copy alone."""
    if not values.is_cuda:
        return values.tolist
    on_host, copied = values.to("cpu", non_blocking=True), torch.cuda.Event()
    copied.record()

    def read() -> list[float]:
        copied.synchronize()
        return on_host.tolist()

    return read


def _mix_seed(*numbers: int) -> int:
    """Combine several numbers into one seed; neighbouring numbers give unrelated seeds."""
    value = 0x9E3779B97F4A7C15
    for number in numbers:
        value = ((value ^ number) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
        value ^= value >> 31
    return value & (2**63 - 1)
