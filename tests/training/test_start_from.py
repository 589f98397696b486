"""The start: what a run takes over from finished folders, what it trains of it, and what it says."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import regard
from regard.config import Config, ModelConfig, load_config
from regard.errors import ConfigError, FolderError, RequestError
from regard.models import build
from regard.models.folder import load_weights, save_model
from regard.text.tokenizer import Tokenizer, Tokenizers, train
from regard.training.events import Event, UpdateEvent
from regard.training.loop import Training
from regard.training.start_from import (
    base_config,
    check_start,
    load_start,
    origin_checksums,
    reuse_tokenizers,
    set_trained,
)
from regard.translation.translator import Translator
from tests.training.runs import make_config, make_training, no_validation, write_corpus

SHAPE: dict[str, Any] = {
    "size": 16, "heads": 2, "feed_forward_size": 24, "encoder_layers": 2, "decoder_layers": 2, "max_positions": 16,
}  # fmt: skip
TEXTS = ["the old house", "the small bird", "a green tree"] * 5


def tokenizer(texts: list[str] = TEXTS, vocabulary: int = 280) -> Tokenizer:
    return train(texts, kind="bpe", vocabulary=vocabulary)


def make_folder(folder: Path, sides: Tokenizers, **shape: Any) -> tuple[Path, nn.Module]:
    """A finished model: not trained, but not like a new one either."""
    target = 0 if sides.shared else sides.target.size
    model = ModelConfig(**SHAPE, **shape, vocabulary=sides.source.size, target_vocabulary=target)
    config = Config(model=model).over({"text": {"vocabulary": 280, "shared": sides.shared}})
    built = build(config.model)
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.mul_(3)
    sides_files = folder.parent / f"{folder.name}-tokenizers"
    sides_files.mkdir(parents=True)
    sides.save(sides_files)
    save_model(folder, built, config, {p.name: p.read_bytes() for p in sides_files.iterdir()}, force=False)
    return folder, built


@pytest.fixture
def one(tmp_path: Path) -> tuple[Path, nn.Module, Tokenizers]:
    sides = Tokenizers(*[tokenizer()] * 2)
    return *make_folder(tmp_path / "one", sides), sides


def fitted(folder: Path, sides: Tokenizers, *values: str) -> ModelConfig:
    shape = base_config([folder]).with_values(values).model
    target = 0 if sides.shared else sides.target.size
    return dataclasses.replace(shape, vocabulary=sides.source.size, target_vocabulary=target)


# A folder of the same vocabulary


def test_with_the_same_tokenizer_all_weights_are_kept(one: tuple[Path, nn.Module, Tokenizers]) -> None:
    folder, theirs, sides = one
    model = build(fitted(folder, sides))
    said = load_start(model, [folder], sides)[0]
    assert said.endswith(f"copied {len(list(model.parameters()))} of {len(list(model.parameters()))} tensors")
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), theirs.parameters(), strict=True))


def test_the_shape_and_the_tokenizer_are_those_of_the_folder(one: tuple[Path, nn.Module, Tokenizers]) -> None:
    folder, _, sides = one
    said: list[str] = []
    config = base_config([folder]).with_values(["train.learning_rate=0.1"])
    assert config.model.size == 16
    assert config.train == dataclasses.replace(Config().train, learning_rate=0.1)
    taken = reuse_tokenizers([folder], config.text, said.append)
    assert taken is not None
    assert taken.fingerprint == sides.fingerprint
    assert said == [f"the tokenizer of {folder} is used"]


@pytest.mark.parametrize("layers", [1, 3])
def test_layers_are_matched_by_number(one: tuple[Path, nn.Module, Tokenizers], layers: int) -> None:
    folder, theirs, sides = one
    model = build(fitted(folder, sides, f"model.encoder_layers={layers}"))
    said = load_start(model, [folder], sides)[0]
    ours = model.get_parameter("encoder.blocks.0.attention.in_proj.weight")
    assert torch.equal(ours, theirs.get_parameter("encoder.blocks.0.attention.in_proj.weight"))
    assert ("; new: encoder.blocks.*.attention" if layers == 3 else "; not used: encoder.blocks.*.attention") in said


def test_tied_embeddings_can_be_untied(one: tuple[Path, nn.Module, Tokenizers]) -> None:
    folder, theirs, sides = one
    model = build(fitted(folder, sides, "model.tie_embeddings=none"))
    assert "new" not in load_start(model, [folder], sides)[0]
    for name in ("source.token.weight", "target.token.weight", "output.weight"):
        assert torch.equal(model.get_parameter(name), theirs.get_parameter("source.token.weight"))


def test_a_folder_whose_weights_do_not_fit_is_refused(one: tuple[Path, nn.Module, Tokenizers]) -> None:
    folder, _, sides = one
    with pytest.raises(FolderError, match=r"no weights of .* fit this model"):
        load_start(build(fitted(folder, sides, "model.size=8", "model.feed_forward_size=9")), [folder], sides)


# Another vocabulary


@pytest.mark.parametrize(
    "shape", [{}, {"family": "rnn"}, {"tie_embeddings": "none", "output_bias": True}, {"family": "bert"}]
)
def test_tokens_of_the_same_text_keep_their_rows(tmp_path: Path, shape: dict[str, Any]) -> None:
    old, new = tokenizer(), tokenizer(["the old river", "a small river bird"] * 5)
    folder, theirs = make_folder(tmp_path / "old", Tokenizers(old, old), **shape)
    model = build(fitted(folder, Tokenizers(new, new)))
    said = load_start(model, [folder], Tokenizers(new, new))[0]
    shared = {token: place for place, token in enumerate(old.tokens(range(old.size)))}
    places = [(number, shared[token]) for number, token in enumerate(new.tokens(range(new.size))) if token in shared]
    assert 261 < len(places) < new.size
    assert f"new tokens: {new.size - len(places)} of {new.size} (the others keep their embedding)" in said
    ours, before = dict(model.named_parameters()), dict(theirs.named_parameters())
    rows = [name for name in ours if ours[name].shape[0] == new.size and "position" not in name]
    assert rows
    for name in rows:
        assert all(torch.equal(ours[name][i], before[name][j]) for i, j in places), name


def test_new_tokens_have_the_standard_deviation_of_the_old(one: tuple[Path, nn.Module, Tokenizers]) -> None:
    folder, theirs, _ = one
    new = tokenizer([f"word{number}" for number in range(400)] * 3, 900)
    model = build(fitted(folder, Tokenizers(new, new)))
    load_start(model, [folder], Tokenizers(new, new))
    fresh = model.get_parameter("source.token.weight")[400:].detach()
    before = theirs.get_parameter("source.token.weight").detach()
    assert float(fresh.std()) == pytest.approx(float(before.std()), rel=0.1)


def test_a_text_section_that_asks_for_another_tokenizer_gets_one(one: tuple[Path, nn.Module, Tokenizers]) -> None:
    folder, _, _ = one
    said: list[str] = []
    text = base_config([folder]).with_values(["text.vocabulary=300"]).text
    assert reuse_tokenizers([folder], text, said.append) is None
    assert said == [f"the tokenizer of {folder} is not used: the config asks for another one"]


def test_tags_are_added_to_a_reused_tokenizer(one: tuple[Path, nn.Module, Tokenizers]) -> None:
    folder, theirs, sides = one
    taken = reuse_tokenizers([folder], base_config([folder]).with_values(["text.tags=<2fr>"]).text, lambda _: None)
    assert taken is not None
    assert taken.shared
    assert taken.source.encode("<2fr> the old house")[0] == sides.source.size
    model = build(fitted(folder, taken))
    assert f"new tokens: 1 of {taken.source.size}" in load_start(model, [folder], taken)[0]
    rows = model.get_parameter("source.token.weight")[: sides.source.size]
    assert torch.equal(rows, theirs.get_parameter("source.token.weight"))


def test_each_side_keeps_its_own_rows(tmp_path: Path) -> None:
    old = Tokenizers(tokenizer(), tokenizer(["un arbre vert", "la maison"] * 5))
    new = Tokenizers(tokenizer(["the river"] * 5), old.target)
    folder, theirs = make_folder(tmp_path / "two", old, tie_embeddings="target")
    model = build(fitted(folder, new))
    assert "source tokens" in load_start(model, [folder], new)[0]
    assert torch.equal(model.get_parameter("target.token.weight"), theirs.get_parameter("target.token.weight"))


# Two berts


@pytest.mark.parametrize("same", [True, False])
def test_two_berts_make_a_transformer(tmp_path: Path, same: bool) -> None:
    first, second = tokenizer(), tokenizer(["un arbre vert", "la maison"] * 5)
    second = first if same else second
    berts = [make_folder(tmp_path / str(i), Tokenizers(t, t), family="bert") for i, t in enumerate((first, second))]
    origins = [folder for folder, _ in berts]
    config = base_config(origins)
    check_start(config, origins, tmp_path / "out")
    taken = reuse_tokenizers(origins, config.text, lambda _: None)
    assert taken is not None
    assert taken.shared == same
    target = 0 if taken.shared else taken.target.size
    model = build(dataclasses.replace(config.model, vocabulary=taken.source.size, target_vocabulary=target))
    said = load_start(model, origins, taken)[0]
    assert "; new: decoder.blocks.*.cross.in_proj.weight" in said
    assert torch.equal(model.get_parameter("source.token.weight"), berts[0][1].get_parameter("source.token.weight"))
    assert torch.equal(model.get_parameter("target.token.weight"), berts[1][1].get_parameter("source.token.weight"))


@pytest.fixture(scope="module")
def berts(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    sides = Tokenizers(*[tokenizer()] * 2)
    return [make_folder(tmp_path_factory.mktemp("berts") / str(i), sides, family="bert")[0] for i in range(2)]


@pytest.mark.parametrize(
    "value",
    ["size=64", "feed_forward_size=128", "max_positions=247", "positions=sinusoidal", "norm=rms", "output_bias=false"],
)
def test_a_shape_that_two_berts_do_not_have_is_refused(berts: list[Path], tmp_path: Path, value: str) -> None:
    name = value.partition("=")[0]
    config = base_config(berts).with_values([f"model.{value}"])
    with pytest.raises(ConfigError, match=rf"two bert folders make a transformer .*: do not set model.{name}"):
        check_start(config, berts, tmp_path / "out")


@pytest.mark.parametrize(
    "value",
    [
        "dropout=0.3",
        "attention_dropout=0.1",
        "encoder_layers=1",
        "tie_embeddings=none",
    ],
)
def test_fields_that_two_berts_leave_open_can_be_set(berts: list[Path], tmp_path: Path, value: str) -> None:
    config = base_config(berts).with_values([f"model.{value}"])
    check_start(config, berts, tmp_path / "out")
    sides = reuse_tokenizers(berts, config.text, lambda _: None)
    assert sides is not None
    new = load_start(build(dataclasses.replace(config.model, vocabulary=sides.source.size)), berts, sides)[1]
    assert new
    assert all(".cross" in name for name in new)


# What is refused


def test_a_start_that_does_not_fit_is_refused(one: tuple[Path, nn.Module, Tokenizers], tmp_path: Path) -> None:
    folder, _, sides = one
    bert, _ = make_folder(tmp_path / "bert", sides, family="bert")
    config = base_config([folder])
    with pytest.raises(ConfigError, match=r"give it with --from FOLDER"):
        check_start(Config().with_values(["train.lora_rank=4"]), [], tmp_path / "out")
    with pytest.raises(ConfigError, match=r"--from and --out are the same folder"):
        check_start(config, [folder], folder)
    with pytest.raises(
        ConfigError, match=r"model.family = transformer cannot start from bert .*--from BERT --from BERT"
    ):
        check_start(config, [bert], tmp_path / "out")
    with pytest.raises(ConfigError, match=r"takes two bert models, and one is model.family = transformer"):
        base_config([folder, bert])
    with pytest.raises(ConfigError, match=r"and 3 were given"):
        base_config([bert, bert, bert])
    with pytest.raises(FolderError, match=r"There is no folder"):
        base_config([tmp_path / "nowhere"])
    (folder / "model.safetensors").unlink()
    with pytest.raises(FolderError, match=r"has no model.safetensors"):
        check_start(config, [folder], tmp_path / "out")


def test_folders_with_other_weights_have_other_checksums(
    one: tuple[Path, nn.Module, Tokenizers], tmp_path: Path
) -> None:
    other, _ = make_folder(tmp_path / "other", one[2])
    assert origin_checksums([one[0]]) != origin_checksums([other])


# What is trained


@pytest.mark.parametrize(
    ("patterns", "frozen"),
    [
        ("encoder.*", {"encoder"}),
        ("encoder", {"encoder"}),
        ("target.token", {"source"}),  # the same tensor, by its second name
        ("decoder.blocks.0.* source", {"source", "decoder.blocks.0"}),
    ],
)
def test_parameters_that_match_a_pattern_are_frozen(patterns: str, frozen: set[str]) -> None:
    model = build(ModelConfig(**SHAPE, vocabulary=50))
    said = set_trained(model, Config().with_values([f"train.freeze={patterns}"]), ())
    still = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    assert still == {name for name, _ in model.named_parameters() if name.startswith(tuple(f"{f}." for f in frozen))}
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    assert said.startswith(f"{trained:,} of ")


@pytest.mark.parametrize(
    ("patterns", "message"),
    [
        ("encodr.*", r"no parameter is called encodr.\*. Did you mean encoder\?"),
        ("body", "no parameter is called body. Known: decoder, encoder, source, target."),
        ("*", "train.freeze leaves nothing to train"),
    ],
)
def test_a_pattern_without_a_match_is_refused(patterns: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        set_trained(build(ModelConfig(**SHAPE, vocabulary=50)), Config().with_values([f"train.freeze={patterns}"]), ())


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    os.environ["REGARD_CACHE"] = str(folder / "cache")
    return write_corpus(folder)


def trained(folder: Path, corpus: Path, stop_after: int | None = None, **values: Any) -> Training:
    training = make_training(folder, corpus, make_config("transformer", ema_decay=0.9, **values))
    training.resume()

    def observe(event: Event) -> None:
        if isinstance(event, UpdateEvent) and event.update == stop_after:
            os.kill(os.getpid(), signal.SIGTERM)

    training.run(no_validation, observe)
    return training


@pytest.mark.parametrize("values", [{"freeze": "encoder.* source.token"}, {"lora_rank": 2}])
def test_a_run_with_frozen_weights_or_lora_resumes_exactly(
    corpus: Path, tmp_path: Path, values: dict[str, Any]
) -> None:
    whole = trained(tmp_path / "whole", corpus, **values).state()
    stopped = trained(tmp_path / "parts", corpus, 5, **values)
    assert stopped.progress.update == 5
    resumed = trained(tmp_path / "parts", corpus, **values).state()
    assert whole.keys() == resumed.keys()
    for group, tensors in whole.items():
        for name, tensor in tensors.items():
            assert torch.equal(tensor, resumed[group][name]), f"{group}: {name}"


def test_frozen_weights_do_not_change_and_have_no_optimizer_state(corpus: Path, tmp_path: Path) -> None:
    training = trained(tmp_path / "run", corpus, freeze="encoder")
    torch.manual_seed(1)
    before = build(training.config.model)
    for name, parameter in training.model.named_parameters():
        assert torch.equal(parameter, before.get_parameter(name)) == name.startswith("encoder."), name
    assert not any(name.startswith("encoder.") for name in training.state()["optimizer"])


def adapted(origins: list[Path], *values: str) -> tuple[nn.Module, str]:
    """A model from folders, with LoRA, and its report."""
    config = base_config(origins).with_values(["train.lora_rank=2", *values])
    sides = reuse_tokenizers(origins, config.text, lambda _: None)
    assert sides is not None
    target = 0 if sides.shared else sides.target.size
    model = build(dataclasses.replace(config.model, vocabulary=sides.source.size, target_vocabulary=target))
    return model, set_trained(model, config, load_start(model, origins, sides)[1])


def test_with_lora_embeddings_with_a_new_tag_are_trained(tmp_path: Path) -> None:
    sides = Tokenizers(*[tokenizer()] * 2)
    folder, _ = make_folder(tmp_path / "one", sides, tie_embeddings="none", output_bias=True)
    model, said = adapted([folder], "text.tags=<2fr>")
    assert said.endswith("parameters are trained (LoRA of rank 2, and new parameters)")
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert said.startswith(f"{sum(parameter.numel() for parameter in trained.values()):,} of ")
    tables = {name for name in trained if not name.endswith((".lora_A", ".lora_B"))}
    assert tables == {"source.token.weight", "target.token.weight", "output.weight", "output_bias"}


def test_with_lora_the_cross_attention_of_two_berts_is_fully_trained(tmp_path: Path) -> None:
    sides = Tokenizers(*[tokenizer()] * 2)
    model, _ = adapted([make_folder(tmp_path / str(i), sides, family="bert")[0] for i in range(2)])
    for name, parameter in model.named_parameters():
        assert parameter.requires_grad == (".cross" in name or name.endswith((".lora_A", ".lora_B"))), name
        assert ".cross" not in name or not name.endswith((".lora_A", ".lora_B"))


# From the outside

RUN = {
    "train.batch_tokens": 400,
    "train.warmup": 2,
    "train.learning_rate": 0.003,
    "train.validate_every": 5,
    "train.save_every": 5,
    "decode.beams": 1,
    "decode.max_length_ratio": 1.0,
}
TINY = {
    "model.size": 16,
    "model.heads": 2,
    "model.feed_forward_size": 32,
    "model.encoder_layers": 1,
    "model.decoder_layers": 1,
    "text.vocabulary": 300,
}


def trains(corpus: Path, out: Path, files: str = "ab", config: dict[str, Any] | None = None, **options: Any) -> str:
    """What a run says."""
    said: list[str] = []
    paths = [corpus / f"{name}.txt" for name in files]
    config = RUN | (config or {})
    regard.train(*paths, out=out, updates=5, config=config, device="cpu", threads=1, say=said.append, **options)
    return "\n".join(said)


@pytest.fixture(scope="module")
def origin(corpus: Path) -> Path:
    trains(corpus, corpus / "origin", config=TINY)
    return corpus / "origin"


@pytest.mark.slow
def test_a_run_reports_what_it_copies_and_does_not_resume_from_another_folder(
    corpus: Path, origin: Path, tmp_path: Path
) -> None:
    said = trains(corpus, tmp_path / "out", start_from=origin)
    assert f"the tokenizer of {origin} is used" in said
    tensors = len(load_weights(origin))
    assert f"from {origin}: copied {tensors} of {tensors} tensors" in said
    assert "is used" not in trains(corpus, tmp_path / "out", start_from=origin)
    other = shutil.copytree(origin, tmp_path / "other")
    save_model(other, build(load_config(origin).model), load_config(origin), {}, force=True)
    with pytest.raises(FolderError, match=r"holds a run on other data, .* or from another model \(--from\)"):
        trains(corpus, tmp_path / "out", start_from=other)


@pytest.mark.slow
def test_lora_is_merged_into_a_plain_model(corpus: Path, origin: Path, tmp_path: Path) -> None:
    said = trains(corpus, tmp_path / "out", start_from=origin, config={"train.lora_rank": 2})
    assert "are trained (LoRA of rank 2)" in said
    before, after = load_weights(origin), load_weights(tmp_path / "out")
    assert before.keys() == after.keys()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed
    assert all(
        name.endswith(("in_proj.weight", "out_proj.weight", "up_proj.weight", "down_proj.weight")) for name in changed
    )
    Translator.load(tmp_path / "out").translate(["the old house"])


@pytest.mark.slow
def test_frozen_weights_are_saved_unchanged(corpus: Path, origin: Path, tmp_path: Path) -> None:
    trains(corpus, tmp_path / "out", start_from=origin, config={"train.freeze": "encoder"})
    before, after = load_weights(origin), load_weights(tmp_path / "out")
    for name, tensor in before.items():
        assert torch.equal(tensor, after[name]) == name.startswith("encoder."), name


def command(corpus: Path, *words: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "regard", *words, "--device", "cpu", "--threads", "1"],
        capture_output=True,
        text=True,
        input=text,
        env={**os.environ, "REGARD_CACHE": str(corpus / "cache"), "COLUMNS": "200"},
    )


@pytest.mark.slow
def test_another_shape_than_that_of_two_berts_is_refused_in_one_line(
    corpus: Path, berts: list[Path], tmp_path: Path
) -> None:
    start = [word for folder in berts for word in ("--from", str(folder))]
    paths = [str(corpus / "a.txt"), str(corpus / "b.txt"), "--out", str(tmp_path / "out")]
    refused = command(corpus, "train", *paths, *start, "--set", "model.norm=rms")
    assert refused.returncode == 2
    assert refused.stderr.endswith("with their tokenizers: do not set model.norm\n")
    assert "Traceback" not in refused.stderr


@pytest.mark.slow
def test_a_model_of_two_directions_has_one_tag_for_each(corpus: Path, tmp_path: Path) -> None:
    """--tag and --also of docs/start-from.md."""
    values = [word for name, value in (RUN | TINY).items() for word in ("--set", f"{name}={value}")]
    words = ["train", f"{corpus}/a.txt", f"{corpus}/b.txt", "--out", str(tmp_path / "out"), "--updates", "5"]
    also = ["--tag", "<2b>", "--also", f"{corpus}/b.txt,{corpus}/a.txt,1,<2a>"]
    done = command(corpus, *words, *also, *values)
    assert done.returncode == 0, done.stderr
    assert load_config(tmp_path / "out").text.tags == "<2b> <2a>"
    source = Tokenizers.load(tmp_path / "out").source
    for tag in ("<2a>", "<2b>"):
        assert source.tokens(source.encode(f"{tag} the house"))[0] == tag
    lines = "the old house\n\nsmall bird\n"
    done = command(corpus, "translate", str(tmp_path / "out"), "-", "--tag", "<2a>", text=lines)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[1] == ""
    with pytest.raises(RequestError, match=r"was not trained with the tag <2c>. Did you mean <2"):
        Translator.load(tmp_path / "out").translate(["the old house"], tag="<2c>")


@pytest.mark.slow
def test_back_translated_text_is_a_corpus_beside_the_real_one(corpus: Path, tmp_path: Path) -> None:
    """The commands of docs/start-from.md."""
    words = {**TINY, "text.tokenizer": "words"}  # a model that has learned little would write bytes at random
    trains(corpus, tmp_path / "reverse", "ba", config=words)
    alone, back = tmp_path / "alone.txt", tmp_path / "back.txt"
    texts = [f"{line} tree" for line in (corpus / "b.txt").read_text().splitlines()[:80]]
    alone.write_text("".join(f"{text}\n" for text in texts))
    results = Translator.load(tmp_path / "reverse").translate(texts, seed=1)
    back.write_text("".join(f"{result.text}\n" for result in results))
    said = trains(
        corpus, tmp_path / "out", config={**TINY, "text.cleaning": "empty"}, also=[(back, alone, 0.5, "<BT>")]
    )
    assert "read 80 pairs" in said
    assert Tokenizers.load(tmp_path / "out").source.tags == ("<BT>",)
