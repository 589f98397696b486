"""A run survives what happens to its folder: damage, a full disk, no permission, and kill -9 at any moment."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from regard import folders
from regard.errors import FolderError, RequestError, RunError
from regard.text.tokenizer import Tokenizer, Tokenizers
from regard.training.checkpoint import PROGRESS, checkpoints, latest_checkpoint
from regard.training.data import Files
from regard.training.distributed import Runtime
from regard.training.events import Event, UpdateEvent
from regard.training.journal import read
from regard.training.loop import Training
from regard.training.observers import Board
from regard.training.train import Request, _final_weights, run
from regard.training.validation import Validation
from tests.conftest import mounted
from tests.training.runs import ignore, learned, make_config, make_training, no_validation, write_corpus

ALONE = Runtime(torch.device("cpu"), 0, 1)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("corpus")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", str(folder / "cache"))
        yield write_corpus(folder)


@pytest.fixture(scope="module")
def whole(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Training:
    """A run that nothing happens to."""
    return trained(tmp_path_factory.mktemp("whole"), corpus)


@pytest.fixture(scope="module")
def stopped_at_9(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stopped")
    trained(folder, corpus, stop_after=9)
    return folder


def trained(folder: Path, corpus: Path, stop_after: int = 0, by: int = signal.SIGTERM, **values: object) -> Training:
    """A run to its end, or one that is asked to stop after so many updates: 12 of them, saved every 4."""
    training = make_training(folder, corpus, make_config("transformer", **values))
    training.resume()

    def observe(event: Event) -> None:
        if isinstance(event, UpdateEvent) and event.update == stop_after:
            os.kill(os.getpid(), by)

    training.run(no_validation, observe)
    return training


def same(one: Training, other: Training) -> None:
    assert one.progress.update == other.progress.update
    for group, tensors in one.state().items():
        for name, tensor in tensors.items():
            assert torch.equal(tensor, other.state()[group][name]), f"{group}: {name}"


# Damage


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


@pytest.mark.parametrize("part", ["model.safetensors", "optimizer.safetensors", "progress.json", "checksums.json"])
@pytest.mark.parametrize("damage", [cut, flip, Path.unlink])
def test_a_run_resumes_from_the_checkpoint_before_a_damaged_one(
    damage: Callable[[Path], None], part: str, corpus: Path, whole: Training, stopped_at_9: Path, tmp_path: Path
) -> None:
    shutil.copytree(stopped_at_9, tmp_path, dirs_exist_ok=True)
    damage(checkpoints(tmp_path)[-1] / part)
    training = make_training(tmp_path, corpus, make_config("transformer"))
    messages = training.resume()
    assert training.progress.update == 8
    assert messages[0].startswith("update-00000009 was skipped: ")
    assert messages[1:] == ["damaged checkpoints are now named damaged-update-...", "resumed at update 8"]
    training.run(no_validation, ignore)
    same(whole, training)


@pytest.mark.parametrize("change", [lambda values: values | {"unknown": 1}, lambda values: []])
def test_the_progress_of_another_version_is_refused(
    change: Callable[[Any], Any], corpus: Path, stopped_at_9: Path, tmp_path: Path
) -> None:
    shutil.copytree(stopped_at_9, tmp_path, dirs_exist_ok=True)
    path = checkpoints(tmp_path)[-1]
    (path / PROGRESS).write_text(json.dumps(change(json.loads((path / PROGRESS).read_text()))))
    folders.write_checksums(path)
    with pytest.raises(FolderError, match="update-00000009"):
        make_training(tmp_path, corpus, make_config("transformer")).resume()


def test_a_checkpoint_without_the_average_of_its_config_is_refused(
    corpus: Path, stopped_at_9: Path, tmp_path: Path
) -> None:
    shutil.copytree(stopped_at_9, tmp_path, dirs_exist_ok=True)
    with pytest.raises(FolderError, match=r"update-00000009 does not fit its config: .* is missing"):
        make_training(tmp_path, corpus, make_config("transformer", ema_decay=0.9)).resume()


def test_a_damaged_checkpoint_does_not_count_as_kept(corpus: Path, whole: Training, tmp_path: Path) -> None:
    few: dict[str, object] = {"keep_checkpoints": 2, "validate_every": 100}
    trained(tmp_path, corpus, stop_after=11, **few)
    flip(tmp_path / "checkpoints" / "update-00000011" / "model.safetensors")
    flip(tmp_path / "checkpoints" / "update-00000008" / "model.safetensors")
    trained(tmp_path, corpus, stop_after=3, **few)
    found, _ = latest_checkpoint(tmp_path)
    assert found is not None
    assert found.name == "update-00000003"
    assert trained(tmp_path, corpus, **few).progress.update == 12
    assert [path.name for path in checkpoints(tmp_path)] == ["update-00000008", "update-00000012"]


def test_a_run_starts_over_when_every_checkpoint_is_damaged(
    corpus: Path, whole: Training, stopped_at_9: Path, tmp_path: Path
) -> None:
    shutil.copytree(stopped_at_9, tmp_path, dirs_exist_ok=True)
    for path in checkpoints(tmp_path):
        cut(path / "model.safetensors")
    training = make_training(tmp_path, corpus, make_config("transformer"))
    messages = training.resume()
    assert len(messages) == 4
    assert messages[-1].startswith("no checkpoint is intact, so training starts over at update 1")
    training.run(no_validation, ignore)
    same(whole, training)


def test_a_truncated_journal_is_continued(corpus: Path, tmp_path: Path) -> None:
    trained(tmp_path, corpus, stop_after=11)
    journal = tmp_path / "journal.jsonl"
    journal.write_bytes(journal.read_bytes()[:-5])
    trained(tmp_path, corpus)
    assert [line["update"] for line in read(journal) if line["kind"] == "update"] == [1, 12]


def test_ctrl_c_saves_first(corpus: Path, whole: Training, tmp_path: Path) -> None:
    assert trained(tmp_path, corpus, stop_after=7, by=signal.SIGINT).progress.update == 7
    assert checkpoints(tmp_path)[-1].name == "update-00000007"
    same(whole, trained(tmp_path, corpus))


# Files of a run


def request(corpus: Path, out: Path) -> Request:
    config = make_config("transformer", updates=4, metric="loss")
    files = Files(corpus / "a.txt", corpus / "b.txt", False)
    return Request((files,), None, out, config, "regard train")


def start(corpus: Path, out: Path) -> list[str]:
    """A run from files to a model folder; what it says."""
    said: list[str] = []
    run(request(corpus, out), ALONE, said.append, ignore)
    return said


@pytest.fixture(scope="module")
def finished(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("finished") / "out"
    start(corpus, out)
    return out


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "data.sha256"])
@pytest.mark.parametrize("damage", [cut, lambda path: path.write_bytes(b""), lambda path: path.write_bytes(b"\xff[]")])
def test_a_damaged_file_of_a_run_is_named(
    damage: Callable[[Path], None], name: str, corpus: Path, finished: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    shutil.copytree(finished, out)
    damage(out / name)
    with pytest.raises(RequestError) as error:
        start(corpus, out)
    assert str(out) in str(error.value)
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize("name", ["tokenizer.json", "data.sha256"])
def test_a_missing_file_of_a_run_is_named(name: str, corpus: Path, finished: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(finished, out)
    (out / name).unlink()
    with pytest.raises(RequestError, match=str(out)):
        start(corpus, out)


def test_a_run_that_was_stopped_before_its_model_was_written_writes_it(
    corpus: Path, finished: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    shutil.copytree(finished, out)
    (out / "model.safetensors").unlink()
    start(corpus, out)
    assert (out / "model.safetensors").read_bytes() == (finished / "model.safetensors").read_bytes()


@pytest.mark.parametrize("damage", [cut, flip])
def test_a_damaged_finished_model_is_made_again(
    damage: Callable[[Path], None], corpus: Path, finished: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    shutil.copytree(finished, out)
    damage(out / "model.safetensors")
    assert any("model.safetensors is damaged" in line and "rebuilt from the checkpoints" in line
               for line in start(corpus, out))  # fmt: skip
    assert (out / "model.safetensors").read_bytes() == (finished / "model.safetensors").read_bytes()


def test_a_model_that_is_damaged_at_the_end_is_passed_over(corpus: Path, finished: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(finished, out)
    (out / "model.safetensors").unlink()
    shutil.copytree(out / "checkpoints" / "update-00000004", out / "checkpoints" / "update-00000003")
    progress = json.loads((out / "checkpoints" / "update-00000004" / "progress.json").read_text())
    (out / "checkpoints" / "update-00000004" / "progress.json").write_text(json.dumps(progress | {"best_update": 3}))
    folders.write_checksums(out / "checkpoints" / "update-00000004")
    flip(out / "checkpoints" / "update-00000003" / "model.safetensors")
    said = start(corpus, out)
    assert any(line.startswith("update-00000003 was skipped") for line in said)
    assert (out / "model.safetensors").read_bytes() == (finished / "model.safetensors").read_bytes()
    assert "of update 4, the last intact checkpoint" in (out / "card.md").read_text()


def test_without_a_finite_validation_the_last_weights_are_kept(corpus: Path, tmp_path: Path) -> None:
    training = make_training(tmp_path, corpus, make_config("transformer", keep_checkpoints=9))
    training.run(lambda _: Validation(math.nan, math.nan), ignore)
    assert _final_weights(training, print)[1] == 12


# Nothing is written before the request is known to be sound


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("model.max_positions=4", "nothing to train on after cleaning: read 400 pairs; left out .* longer than 2"),
        ("train.seed=9223372036854775808", r"train.seed \(9223372036854775808\) must be from 0 to"),
    ],
)
def test_a_config_that_cannot_work_writes_nothing(value: str, message: str, corpus: Path, tmp_path: Path) -> None:
    asked = request(corpus, tmp_path / "out")

    def start_with(*values: str) -> None:
        run(dataclasses.replace(asked, config=asked.config.with_values(values)), ALONE, lambda _: None, ignore)

    with pytest.raises(RequestError, match=message):
        start_with("model.positions=learned", value)
    assert not (tmp_path / "out").exists()


def test_a_text_to_validate_pairs_with_is_refused(corpus: Path, tmp_path: Path) -> None:
    asked = dataclasses.replace(request(corpus, tmp_path / "out"), valid=Files(corpus / "a.txt", None, True))
    with pytest.raises(RequestError, match="--valid must be SOURCE and TARGET"):
        run(asked, ALONE, print, ignore)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("fresh", [False, True])
def test_a_file_that_is_not_of_a_run_is_never_overwritten(fresh: bool, corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "card.md").write_text("my own\n")
    with pytest.raises(
        RequestError, match=r"card.md does not belong to a run and would be overwritten: choose another"
    ):
        run(dataclasses.replace(request(corpus, tmp_path), fresh=fresh), ALONE, print, ignore)
    assert [path.name for path in tmp_path.iterdir()] == ["card.md"]


def test_a_circular_symbolic_link_is_named(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(FolderError, match="loop is not a folder"):
        start(corpus, tmp_path / "loop")


def test_a_training_text_is_never_overwritten(corpus: Path, tmp_path: Path) -> None:
    shutil.copy(corpus / "a.txt", tmp_path / "card.md")
    files = Files(tmp_path / "card.md", corpus / "b.txt", False)
    with pytest.raises(RequestError, match=r"card.md does not belong to a run and would be overwritten"):
        run(dataclasses.replace(request(corpus, tmp_path), corpora=(files,)), ALONE, print, ignore)
    assert (tmp_path / "card.md").read_bytes() == (corpus / "a.txt").read_bytes()


@pytest.mark.slow
def test_validating_on_the_training_text_gives_a_warning(corpus: Path, tmp_path: Path) -> None:
    said: list[str] = []
    asked = request(corpus, tmp_path / "out")
    run(dataclasses.replace(asked, valid=asked.corpora[0]), ALONE, said.append, ignore)
    assert (
        "the validation text is the training text: its scores do not show how well the model does on other text" in said
    )


# Disks


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for a few checkpoints."""
    (tmp_path / "disk").mkdir()
    with mounted(tmp_path / "disk", "size=640k") as disk:
        yield disk


@pytest.fixture
def unwritable(tmp_path: Path) -> Iterator[Path]:
    """A folder nothing can be written to: by its permissions, or for root, whom they do not stop, by its mount."""
    place = tmp_path / "disk"
    place.mkdir()
    if os.getuid():
        place.chmod(0o555)
        yield place
        return
    with mounted(place, "ro,size=64k") as disk:
        yield disk


def test_a_full_disk_ends_the_run_and_keeps_its_checkpoints(
    corpus: Path, whole: Training, small_disk: Path, tmp_path: Path
) -> None:
    with pytest.raises(RunError, match="the disk is full"):
        trained(small_disk, corpus, save_every=1, keep_checkpoints=100)
    found, damaged = latest_checkpoint(small_disk)
    assert found is not None
    assert not damaged
    shutil.copytree(small_disk, tmp_path / "roomy")
    training = trained(tmp_path / "roomy", corpus)
    same(whole, training)


def test_a_journal_on_a_full_disk_is_an_error_of_one_line(corpus: Path, small_disk: Path) -> None:
    page = json.dumps({"update": 0, "words": ""}) + "\n"
    page = json.dumps({"update": 0, "words": "x" * (4096 - len(page))}) + "\n"
    (small_disk / "journal.jsonl").write_text(page)  # the next line needs a page of the disk
    training = make_training(small_disk, corpus, make_config("transformer", save_every=100))

    def fill(event: Event) -> None:
        with suppress(OSError), open(small_disk / "other", "wb", buffering=0) as file:
            while file.write(bytes(512)):
                pass

    with pytest.raises(RunError, match=r"journal\.jsonl could not be written: the disk is full"):
        training.run(no_validation, fill)


def test_a_full_disk_while_the_tokenizer_is_saved_is_one_line_and_leaves_no_part_of_it(
    corpus: Path, tiny_disk: Path
) -> None:
    tokenizer = learned(corpus)
    huge = Tokenizer(tokenizer.text + " " * 2**20)
    with pytest.raises(RunError, match=r"tokenizer\.json could not be written: the disk is full"):
        Tokenizers(huge, huge).save(tiny_disk)
    assert list(tiny_disk.iterdir()) == []


def test_a_run_whose_folder_is_deleted_ends_with_one_line_and_does_not_create_it_again(
    corpus: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    training = make_training(out, corpus, make_config("transformer", save_every=2, updates=8))

    def delete(event: Event) -> None:
        shutil.rmtree(out, ignore_errors=True)

    with pytest.raises(FolderError, match=r"out/.* cannot be written: No such file or directory"):
        training.run(no_validation, delete)
    assert not out.exists()


def test_tensorboard_files_that_cannot_be_written_are_an_error_without_traceback(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def write() -> None:
        with Board(tmp_path / "out", 0) as board:
            shutil.rmtree(tmp_path / "out")
            while True:
                board.observe(UpdateEvent(1, 1.0, 1.0, 1.0, 1, 0))

    with pytest.raises(FolderError, match="tensorboard cannot be written"):
        write()
    assert "Traceback" not in capfd.readouterr().err


def test_a_folder_that_cannot_be_written_to_is_refused(corpus: Path, unwritable: Path) -> None:
    with pytest.raises(RequestError, match=f"{unwritable}.*cannot be written"):
        start(corpus, unwritable / "out")


# Killed at any moment

KILLED = """
import json, os, random, signal, sys, time
from pathlib import Path
from typing import Any
import torch
torch.set_num_threads(1)
from regard.models.folder import MODEL
from regard.training.checkpoint import checkpoints, read_progress, verify_checkpoint
from tests.training.test_survival import start

corpus, folder, rounds, chance = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), random.Random(3)
os.environ["REGARD_CACHE"] = str(corpus / "cache")

def life(out, after):
    begun, child = time.monotonic(), os.fork()
    if not child:
        try:
            start(corpus, out)
            os._exit(0)
        finally:
            os._exit(1)
    while time.monotonic() - begun < after:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return time.monotonic() - begun, status
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    return after, os.waitpid(child, 0)[1]

length, status = life(folder / "alone", 600)
assert status == 0
run, kills, before, ends = 0, 0, 0, set()
while kills < rounds or status:  # the last one is brought to its end
    out = folder / f"run-{run}"
    _, status = life(out, chance.uniform(0, length) if kills < rounds else 600)
    for path in checkpoints(out):
        verify_checkpoint(path)
    updates = [read_progress(path).update for path in checkpoints(out)]
    assert max(updates, default=0) >= before, (updates, before)
    assert status in (0, signal.SIGKILL), status
    before = max(updates, default=0)
    if status == 0:
        ends.add((out / MODEL).read_bytes() == (folder / "alone" / MODEL).read_bytes())
        run, before = run + 1, 0
    else:
        kills += 1
print(json.dumps({"kills": kills, "finished": run, "ends": sorted(ends)}))
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_run_killed_at_random_moments_ends_the_same_and_loses_no_save(corpus: Path, tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(corpus), str(tmp_path), "6"], capture_output=True, text=True, cwd=root
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["kills"] == 6
    assert told["finished"] >= 1
    assert told["ends"] == [True]
