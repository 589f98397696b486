"""`regard train` from the outside: two text files in, a model folder out."""

from __future__ import annotations

import io
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
import torch

from regard import folders
from regard.cli.app import main
from regard.devices import find_device
from regard.documents.formats import read_pairs
from regard.evaluation.calibration import calibrate
from regard.models import build
from regard.text.batching import Batch
from regard.training import loop
from regard.training.data import Files
from regard.training.distributed import Runtime
from regard.training.journal import read
from regard.training.train import check_folder, clear_folder
from regard.training.validation import final_scores, translate, valid_loss, validate, validation_set
from tests.test_folders import HOLD, line, running
from tests.training.runs import make_config, make_data, out_of_memory_above, write_corpus

pytestmark = pytest.mark.slow
SMALL = [
    word
    for value in (
        "model.size=16",
        "model.heads=2",
        "model.feed_forward_size=32",
        "model.encoder_layers=1",
        "model.decoder_layers=1",
        "text.vocabulary=300",
        "train.batch_tokens=400",
        "train.warmup=4",
        "train.validate_every=10",
        "train.save_every=5",
        "decode.beams=2",
        "decode.max_length_ratio=1",
    )
    for word in ("--set", value)
]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("files")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", str(folder / "cache"))
        patch.setenv("COLUMNS", "120")
        yield write_corpus(folder)


def regard(*words: str, text: str = "") -> subprocess.CompletedProcess[str]:
    """`regard WORDS` in this process: importing torch takes longer than a small run."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    out, errors = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(errors):
        patch.setattr(sys, "argv", ["regard", *words])
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        with pytest.raises(SystemExit) as end:
            main()
    for number, handler in handlers.items():
        signal.signal(number, handler)
    out.seek(0)
    return subprocess.CompletedProcess(words, end.value.code or 0, out.read(), errors.getvalue())


def request(corpus: Path, out: Path, *more: str) -> list[str]:
    files = [str(corpus / "a.txt"), str(corpus / "b.txt")]
    return ["train", *files, "--out", str(out), "--device", "cpu", "--threads", "1", *SMALL, *more]


def command(corpus: Path, out: Path, *more: str) -> list[str]:
    """The command of a process of its own, to be stopped or killed."""
    return [sys.executable, "-m", "regard", *request(corpus, out, *more)]


def train(corpus: Path, out: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return regard(*request(corpus, out, *more))


@pytest.fixture(scope="module")
def trained(corpus: Path) -> Path:
    out = corpus / "model"
    done = train(corpus, out, "--updates", "20")
    assert done.returncode == 0, done.stderr
    return out


def test_a_run_leaves_a_model_folder(trained: Path) -> None:
    for name in ("model.safetensors", "config.json", "tokenizer.json", "card.md", "journal.jsonl", "checksums.json"):
        assert (trained / name).is_file(), name
    for name in ("training.png", "training.svg", "tensorboard"):
        assert (trained / name).exists(), name
    assert "![training](training.png)" in (trained / "card.md").read_text()


def test_a_translator_keeps_its_first_validation_pairs(trained: Path) -> None:
    pairs = list(read_pairs(trained / "validation.jsonl"))
    assert pairs
    assert all(pair.source and pair.target for pair in pairs)


def test_the_same_command_again_says_that_the_run_is_finished(corpus: Path, trained: Path) -> None:
    before = (trained / "model.safetensors").read_bytes()
    done = train(corpus, trained, "--updates", "20")
    assert done.returncode == 0, done.stderr
    assert "finished" in done.stderr
    assert (trained / "model.safetensors").read_bytes() == before


def test_another_config_is_refused_with_the_difference(corpus: Path, trained: Path) -> None:
    done = train(corpus, trained, "--updates", "20", "--set", "train.learning_rate=0.5")
    assert done.returncode == 2
    assert "train.learning_rate was 0.002 and is now 0.5" in done.stderr
    assert "--fresh" in done.stderr


def test_a_size_is_chosen_said_and_kept_on_another_machine(corpus: Path) -> None:
    out, files = corpus / "chosen", [str(corpus / "a.txt"), str(corpus / "b.txt")]
    words = ["train", *files, "--out", str(out), "--device", "cpu", "--updates", "3"]
    words += ["--set", "decode.beams=1", "--set", "decode.max_length_ratio=1"]
    first = regard(*words, "--threads", "1")
    assert first.returncode == 0, first.stderr
    assert "1 core: a transformer of 3+3 layers of 128" in first.stderr
    config = (out / "config.json").read_bytes()
    again = regard(*words, "--threads", "2")
    assert again.returncode == 0, again.stderr
    assert "layers of" not in again.stderr
    assert (out / "config.json").read_bytes() == config


def test_a_run_whose_minutes_are_too_short_says_so_and_is_finished_with_honest_numbers(corpus: Path) -> None:
    out = corpus / "minutes"
    first = train(corpus, out, "--minutes", "0.01")
    assert first.returncode == 0, first.stderr
    assert "0.01 minutes: a transformer" in first.stderr
    assert re.search(r"only \d+% of an epoch fits into --minutes 0.01; --minutes \d+ would be enough", first.stderr)
    assert re.search(r"BLEU is [\d.]+: the model did not learn", first.stderr)
    updates = json.loads((out / "config.json").read_text())["train"]["updates"]
    assert (
        f"| updates | {updates}, the last in epoch 1; as many as fitted into --minutes 0.01 |"
        in (out / "card.md").read_text()
    )
    again = train(corpus, out, "--minutes", "0.01")
    assert again.returncode == 0, again.stderr
    assert f"was finished at update {updates}: there is nothing left to do" in again.stderr


def test_other_data_is_refused(corpus: Path, trained: Path, tmp_path: Path) -> None:
    other = write_corpus(tmp_path, lines=200)
    done = train(other, trained, "--updates", "20")
    assert done.returncode == 2
    assert "holds a run on other data" in done.stderr


def test_translations_come_line_for_line_empty_lines_too(trained: Path) -> None:
    text = "the old house\n\n   \nsmall bird\n"
    done = regard("translate", str(trained), "-", "--device", "cpu", "--threads", "1", text=text)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split("\n")) == 5
    assert done.stdout.split("\n")[1] == ""


def test_a_run_that_was_stopped_resumes_and_ends_the_same(corpus: Path, trained: Path) -> None:
    out = corpus / "stopped"
    running = subprocess.Popen(command(corpus, out, "--updates", "20"), stderr=subprocess.PIPE, text=True)
    while running.poll() is None and not list(out.glob("checkpoints/update-*")):
        time.sleep(0.05)
    running.send_signal(signal.SIGTERM)
    _, said = running.communicate(timeout=120)
    assert running.returncode == 128 + signal.SIGTERM, said
    done = train(corpus, out, "--updates", "20")
    assert done.returncode == 0, done.stderr
    assert (out / "model.safetensors").read_bytes() == (trained / "model.safetensors").read_bytes()


def test_a_run_that_was_killed_resumes_and_ends_the_same(corpus: Path, trained: Path) -> None:
    out = corpus / "killed"
    running = subprocess.Popen(command(corpus, out, "--updates", "20"), stderr=subprocess.DEVNULL)
    while running.poll() is None and not list(out.glob("checkpoints/update-*")):
        time.sleep(0.02)
    running.kill()
    running.wait()
    done = train(corpus, out, "--updates", "20")
    assert done.returncode == 0, done.stderr
    assert (out / "model.safetensors").read_bytes() == (trained / "model.safetensors").read_bytes()


def test_a_second_run_on_one_folder_is_refused_and_deletes_nothing(corpus: Path) -> None:
    out = corpus / "shared"
    with running(HOLD, out) as first:  # a run that has written nothing yet
        assert line(first) == "locked"
        second = train(corpus, out)
        assert second.returncode == 2
        assert second.stderr.startswith(f"regard: another run is writing to {out}")
        assert (out / folders.LOCK).exists()


@pytest.mark.parametrize("name", ["link", "old", "."])
def test_a_run_that_fails_early_shows_its_error_and_keeps_the_folder_that_was_there(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "link").symlink_to("old")
    monkeypatch.chdir(tmp_path / "old" if name == "." else tmp_path)
    done = train(corpus.resolve(), Path(name), "--set", "text.max_length=1")
    assert done.returncode == 2
    assert "nothing to train on after cleaning" in done.stderr.splitlines()[-1]
    assert list((tmp_path / "old").iterdir()) == []


def updates(out: Path) -> list[int]:
    return [entry["update"] for entry in read(out / "journal.jsonl") if entry["kind"] == "update"]


def test_a_finished_run_continues_to_more_updates(corpus: Path, tmp_path: Path) -> None:
    out, more = tmp_path / "out", ["--set", "train.schedule=cosine", "--set", "train.learning_rate=0.01"]
    assert train(corpus, out, "--updates", "20", *more).returncode == 0
    again = train(corpus, out, "--updates", "40", *more)
    assert again.returncode == 0, again.stderr
    assert "continues after update 20 to 40 updates; the learning rate follows the longer schedule" in again.stderr
    assert updates(out) == [1, 10, 20, 30, 40]
    assert json.loads((out / "config.json").read_text())["train"]["updates"] == 40
    assert [entry["update"] for entry in read(out / "journal.jsonl") if entry["kind"] == "finished"] == [20, 40]
    for number in ("40", "30"):
        assert "a larger --updates continues it" in train(corpus, out, "--updates", number, *more).stderr


def test_a_continued_run_that_was_killed_continues(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert train(corpus, out, "--updates", "10").returncode == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop.Training, "run", lambda *_: sys.exit(9))
        assert train(corpus, out, "--updates", "20").returncode == 9
    done = train(corpus, out, "--updates", "20")
    assert done.returncode == 0, done.stderr
    assert updates(out) == [1, 10, 20]


def test_a_finished_run_continues_with_more_minutes(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert train(corpus, out, "--minutes", "0.1").returncode == 0
    first = json.loads((out / "config.json").read_text())["train"]["updates"]
    done = train(corpus, out, "--minutes", "0.3")
    assert done.returncode == 0, done.stderr
    assert f"continues after update {first:,} to 0.3 minutes" in done.stderr
    assert json.loads((out / "config.json").read_text())["train"]["updates"] > first
    assert "a larger --minutes continues it" in train(corpus, out, "--minutes", "0.1").stderr


@pytest.mark.parametrize("value", ["model.size=32", "train.learning_rate=0.5"])
def test_a_finished_run_with_another_config_is_refused(trained: Path, corpus: Path, value: str) -> None:
    done = train(corpus, trained, "--updates", "40", "--set", value)
    assert done.returncode == 2
    name, _, number = value.partition("=")
    assert f"{name} was" in done.stderr
    assert f"is now {number}" in done.stderr
    assert f"start from this model with --from {trained} and another --out" in done.stderr


def test_fewer_updates_of_an_unfinished_run_are_refused(corpus: Path, tmp_path: Path, trained: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(trained, out)
    (out / "journal.jsonl").unlink()
    done = train(corpus, out, "--updates", "10")
    assert done.returncode == 2
    assert "train.updates was 20 and is now 10" in done.stderr


@pytest.mark.parametrize("family", ["gpt", "bert"])
def test_one_text_trains_a_language_model(corpus: Path, family: str) -> None:
    out = corpus / family
    words = ["train", str(corpus / "a.txt"), "--out", str(out), "--device", "cpu", "--threads", "1", *SMALL]
    words += ["--set", f"model.family={family}", "--set", "text.context_length=16", "--updates", "10", "--json"]
    done = regard(*words)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["scores"]["loss"] > 0


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--updates", "5", "--minutes", "1"), "give one of them"),
        (("--set", "train.updates=5", "--minutes", "1"), "give one of them"),
        (("--recipe", "multi30k-endee"), "Did you mean multi30k-ende?"),
        (("--set", "train.updats=5"), "There is no option train.updats. Did you mean train.updates?"),
        (("--set", "model.family=gpt"), "model.family = gpt: the training text must be one file"),
        (("--also", "a.txt,b.txt"), "a.txt,b.txt must be SOURCE,TARGET,WEIGHT, such as back.en,back.fr,0.5"),
        ((("--also", f"{__file__},{__file__},-1")), "(-1.0) must be above 0 and at most 1000"),
        (("--tag", "to French"), "a tag (to French) is one token, such as <2fr>, before"),
        (("--minutes", "inf"), "--minutes (inf) must be a number of minutes"),
        (("--device", "tpu"), "'tpu' is not one of 'auto', 'cpu', 'cuda', 'mps'"),
    ],
)
def test_a_wrong_request_writes_nothing(corpus: Path, tmp_path: Path, more: tuple[str, ...], message: str) -> None:
    done = train(corpus, tmp_path / "out", *more)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_a_second_corpus_is_trained_on_by_its_weight(corpus: Path, tmp_path: Path) -> None:
    more = write_corpus(tmp_path, lines=150)
    out = tmp_path / "out"
    done = train(corpus, out, "--updates", "5", "--also", f"{more}/a.txt,{more}/b.txt,2.5")
    assert done.returncode == 0, done.stderr
    assert "read 150 pairs" in done.stderr
    again = train(corpus, out, "--updates", "5", "--also", f"{more}/a.txt,{more}/b.txt,3")
    assert again.returncode == 2
    assert "holds a run on other data" in again.stderr


def test_another_tokenizer_than_the_models_own_is_refused(trained: Path, tmp_path: Path) -> None:
    import shutil

    from regard.text.tokenizer import train as learn

    copy = tmp_path / "model"
    shutil.copytree(trained, copy, ignore=shutil.ignore_patterns("checkpoints"))
    other = learn(["other words altogether"] * 50, kind="bpe", vocabulary=300)
    (copy / "tokenizer.json").write_text(other.text, encoding="utf-8")
    done = regard("translate", str(copy), text="a\n")
    assert done.returncode == 2
    assert "tokenizer.json is damaged: its SHA-256" in done.stderr


def translated(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    words = ["translate", str(folder), "--device", "cpu", "--threads", "1", *more]
    return regard(*words, text="the old house\nsmall bird\n")


def test_samples_depend_on_the_seed_alone(trained: Path) -> None:
    first = translated(trained, "--sample", "--seed", "3")
    assert first.returncode == 0, first.stderr
    assert translated(trained, "--sample", "--seed", "3").stdout == first.stdout
    assert translated(trained, "--sample", "--seed", "4").stdout != first.stdout


def test_only_the_search_of_a_trained_model_can_be_changed(trained: Path) -> None:
    assert translated(trained, "--set", "decode.beams=3").returncode == 0
    refused = translated(trained, "--set", "model.size=64")
    assert refused.returncode == 2
    assert "only decode.FIELD=VALUE can" in refused.stderr


def test_validation_files_of_unequal_length_are_refused_before_the_tokenizer_is_trained(
    corpus: Path, tmp_path: Path
) -> None:
    (tmp_path / "v.en").write_text("the old house\nsmall bird\n")
    (tmp_path / "v.fr").write_text("the old house\n")
    out = tmp_path / "out"
    done = train(corpus, out, "--updates", "5", "--valid", str(tmp_path / "v.en"), str(tmp_path / "v.fr"))
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "v.fr" in done.stderr
    assert not out.exists()


@pytest.mark.parametrize("lines", [1, 10])
def test_too_little_data_leaves_nothing_behind(tmp_path: Path, lines: int) -> None:
    few, out = write_corpus(tmp_path / "few", lines), tmp_path / "out"
    done = train(few, out, "--updates", "5")
    assert done.returncode == 2
    assert "needs at least 50" in done.stderr.splitlines()[-1]
    assert not out.exists()


def test_a_vocabulary_that_is_too_small_is_refused(corpus: Path, tmp_path: Path) -> None:
    done = train(corpus, tmp_path / "out", "--updates", "5", "--set", "text.vocabulary=5")
    assert done.returncode == 2
    assert "text.vocabulary (5) is too small for bpe: it needs 261 or more" in done.stderr
    assert not (tmp_path / "out").exists()


def test_confidence_is_calibrated_by_the_validation_sentences(tmp_path: Path) -> None:
    config, data = make_data(write_corpus(tmp_path, lines=3000), make_config("transformer"))
    valid_set = validation_set(data, [Files(tmp_path / "a.txt", tmp_path / "b.txt", single=False)], None, print)
    results = translate(build(config.model).eval(), valid_set, len(valid_set.sources))
    calibration = calibrate(valid_set.sources, valid_set.references, results)
    assert calibration is not None
    assert len(calibration.weights) == 4
    assert calibration.expected.max_source_length >= max(map(len, valid_set.references))


def test_chinese_is_validated_with_its_own_tokenizer_which_is_said(tmp_path: Path) -> None:
    config, data = make_data(write_corpus(tmp_path, lines=300), make_config("transformer"))
    text, said = tmp_path / "valid.zh", list[str]()
    text.write_text("他在河边看见三只鸟。\n", encoding="utf-8")
    valid_set = validation_set(data, [], Files(text, text, single=False), said.append)
    assert said == ["the reference is Chinese: BLEU uses the tokenizer zh"]
    model, runtime = build(config.model), Runtime(find_device("cpu"), 0, 1)
    validated = validate(model, valid_set, runtime)
    assert "tok:zh" in validated.metrics["signature"]
    assert "tok:zh" in final_scores(model, valid_set, runtime)[0]["bleu"]["signature"]


@pytest.mark.parametrize("deleted", range(7))
def test_a_run_that_is_killed_while_its_folder_is_cleared_can_start_over(
    deleted: int, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(trained, tmp_path / "out")
    delete, calls = folders.delete, list[Path]()

    def killed(path: Path) -> None:
        calls.append(path)
        if len(calls) > deleted:
            raise KeyboardInterrupt
        delete(path)

    monkeypatch.setattr(folders, "delete", killed)
    with pytest.raises(KeyboardInterrupt):
        clear_folder(tmp_path / "out")
    check_folder(tmp_path / "out", fresh=True)


def test_starting_over_deletes_damaged_checkpoints(tmp_path: Path) -> None:
    aside = tmp_path / "checkpoints" / "damaged-update-00000003"
    aside.mkdir(parents=True)
    clear_folder(tmp_path)
    assert not aside.exists()


@pytest.mark.parametrize("family", ["transformer", "rnn-input", "gpt", "bert"])
def test_the_validation_loss_of_split_batches_is_the_same(
    family: str, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, data = make_data(corpus, make_config(family))
    model, runtime = build(config.model).eval(), Runtime(find_device("cpu"), 0, 1)
    whole = valid_loss(model, data, runtime)
    forward = out_of_memory_above(3, lambda _, batch: type(model).forward(model, batch))
    monkeypatch.setattr(model, "forward", lambda batch: forward(model, batch))
    assert valid_loss(model, data, runtime) == pytest.approx(whole, rel=1e-5)


def test_the_validation_loss_keeps_nothing_for_gradients(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, data = make_data(corpus, make_config("transformer"))
    model, requires_grad = build(config.model), list[bool]()

    def observed(batch: Batch) -> torch.Tensor:
        logits = type(model).forward(model, batch)
        requires_grad.append(logits.requires_grad)
        return logits

    monkeypatch.setattr(model, "forward", observed)
    valid_loss(model, data, Runtime(find_device("cpu"), 0, 1))
    assert requires_grad
    assert not any(requires_grad)


def test_a_refused_fresh_start_changes_nothing(trained: Path, corpus: Path) -> None:
    def held() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in sorted(trained.rglob("*")) if path.is_file()}

    before = held()
    done = train(corpus, trained, "--updates", "20", "--fresh", "--set", "train.freeze=encodr")
    assert done.returncode == 2
    assert held() == before


def test_two_vocabularies_cannot_share_embeddings(corpus: Path, tmp_path: Path) -> None:
    done = train(corpus, tmp_path / "out", "--updates", "2", "--set", "text.shared=false")
    assert done.returncode == 2
    assert 'set model.tie_embeddings="target"' in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("card.md", []),
        ("model.safetensors", []),
        ("tokenizer.json", ["--fresh"]),
        ("config.json", ["--fresh"]),
    ],
)
def test_a_file_of_another_program_is_not_overwritten(corpus: Path, tmp_path: Path, name: str, more: list[str]) -> None:
    (tmp_path / name).write_text("mine")
    done = train(corpus, tmp_path, "--updates", "2", *more)
    assert done.returncode == 2
    assert f"{name} does not belong to a run" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_run_that_was_killed_at_its_start_starts_again(corpus: Path, tmp_path: Path, trained: Path) -> None:
    for name in ("data.sha256", "tokenizer.json"):
        (tmp_path / name).write_bytes((trained / name).read_bytes())
    assert train(corpus, tmp_path, "--updates", "2").returncode == 0


@pytest.mark.parametrize("kept", ["checkpoints", "model.safetensors"])
def test_a_run_without_its_config_is_neither_resumed_nor_overwritten(
    corpus: Path, tmp_path: Path, trained: Path, kept: str
) -> None:
    shutil.copytree(trained, tmp_path / "out")
    (tmp_path / "out" / "config.json").unlink()
    if kept == "model.safetensors":
        shutil.rmtree(tmp_path / "out" / "checkpoints")
    done = train(corpus, tmp_path / "out", "--updates", "20")
    assert done.returncode == 2
    assert "holds a run without its config.json" in done.stderr
    assert (tmp_path / "out" / kept).exists()
    assert train(corpus, tmp_path / "out", "--updates", "2", "--fresh").returncode == 0


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--valid", "", __file__], "the name of a text file is empty"),
        (["--tag", " "], "is one token, such as <2fr>"),
        (["--out", ""], "its name is empty"),
    ],
)
def test_an_empty_option_is_refused(corpus: Path, tmp_path: Path, more: list[str], said: str) -> None:
    done = train(corpus, tmp_path / "out", "--updates", "2", *more)
    assert done.returncode == 2
    assert said in done.stderr
    assert not (tmp_path / "out").exists()


def test_standard_input_is_not_trained_on(corpus: Path, tmp_path: Path) -> None:
    words = [word.replace(str(corpus / "a.txt"), "-") for word in request(corpus, tmp_path / "out")]
    done = regard(*words, text="the bird\n")
    assert done.returncode == 2
    assert "- can be read only once" in done.stderr


def test_a_loss_that_is_nan_before_the_first_save_rolls_back_to_the_start(corpus: Path, tmp_path: Path) -> None:
    high = ["train.learning_rate=1e17", "train.warmup=1", "train.save_every=1000", "train.precision=fp32"]
    done = train(corpus, tmp_path / "out", "--updates", "6", *(word for each in high for word in ("--set", each)))
    kinds = [json.loads(line)["kind"] for line in (tmp_path / "out" / "journal.jsonl").read_text().splitlines()]
    assert "rollback" in kinds
    assert "loss was NaN 5 times in a row: rolled back to update 0, learning rate halved" in done.stderr
    assert "and rolling back did not help: lower train.learning_rate" in done.stderr


def test_a_damaged_cache_is_prepared_again(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    weights = []
    for out in ("one", "two"):
        done = train(corpus, tmp_path / out, "--updates", "2")
        assert done.returncode == 0
        assert done.stderr.count("was damaged and is prepared again") == (out == "two")
        weights.append((tmp_path / out / "model.safetensors").read_bytes())
        for path in (tmp_path / "cache" / "prepared").rglob("*.ids.bin"):
            path.write_bytes(path.read_bytes()[::-1])
    assert weights[0] == weights[1]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("journal.jsonl", "journal.jsonl cannot be read: Is a directory"),
        ("tensorboard", "tensorboard is not a folder"),
    ],
)
def test_a_file_in_place_of_a_folder_is_an_error_of_one_line(
    corpus: Path, tmp_path: Path, trained: Path, name: str, said: str
) -> None:
    out = tmp_path / "out"
    shutil.copytree(trained, out)
    for path in (out / "model.safetensors", *out.glob("checkpoints/*20")):
        folders.delete(path)
    folders.delete(out / name)
    (out / name).touch() if name == "tensorboard" else (out / name).mkdir()
    done = train(corpus, out, "--updates", "20")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith(said)


def test_invalid_lines_of_a_journal_are_ignored(tmp_path: Path) -> None:
    lines = ['{"kind": "update", "update": 1}', '{"update": "x"}', "7", '{"kind": "upd']
    (tmp_path / "journal.jsonl").write_text("\n".join(lines))
    assert read(tmp_path / "journal.jsonl") == [{"kind": "update", "update": 1}]


def test_a_worker_restarted_by_torchrun_does_not_start_over(
    corpus: Path, tmp_path: Path, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(trained, tmp_path / "out")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    done = train(corpus, tmp_path / "out", "--updates", "20", "--fresh")
    assert "was finished at update 20" in done.stderr
