"""Pairs of lines are aligned by one model or two, with settings chosen by gold alignments."""

from __future__ import annotations

import dataclasses
import gzip
import itertools
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner, Result

import regard
from regard.cli.app import app
from regard.config import Config
from regard.errors import ConfigError, DataError, FolderError, InputError, RegardError
from regard.inspection.alignment import (
    METHODS,
    Aligner,
    AlignmentSettings,
    choose_attention,
    choose_settings,
    combined_weights,
    count_matches,
    error_rates,
    extract_links,
)
from regard.models import build
from regard.models.folder import save_model
from regard.text.alignments import Gold, Link
from regard.text.tokenizer import train
from tests.training.runs import FAMILIES, SHAPE

PAIRS = [
    ("the old house", "la vieille maison"),
    ("", "vide"),
    ("green trees near the river", "arbres verts pres du fleuve"),
    ("a", "un"),
    ("he hears the small bird", "il entend le petit oiseau"),
]
DIAGONAL = [Gold(*[frozenset((i, i) for i in range(min(len(s.split()), len(t.split()))))] * 2) for s, t in PAIRS]


def align_pairs(pairs: list[tuple[str, str]], forward: Aligner, backward: Aligner | None = None) -> list[list[Link]]:
    return [extract_links(weights, forward.settings.method) for weights in combined_weights(pairs, forward, backward)]


def make_folder(folder: Path, family: str = "transformer", *, seed: int = 1, **text: Any) -> Path:
    """An untrained model."""
    tokenizer = train([text for pair in PAIRS for text in pair] * 3, kind="bpe", vocabulary=290, tags=["<2fr>"])
    config = Config.read(
        {"model": {**SHAPE, "decoder_layers": 2, **FAMILIES[family]}, "text": {"tags": "<2fr>", **text}}
    )
    shape = dataclasses.replace(config.model, vocabulary=tokenizer.size)
    config = dataclasses.replace(config, model=shape)
    torch.manual_seed(seed)
    save_model(folder, build(shape), config, {"tokenizer.json": tokenizer.text}, force=True)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("models") / "there")


@pytest.fixture(scope="module")
def reverse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("models") / "back", seed=2)


@pytest.mark.parametrize("family", ["transformer", "rnn-input", "rnn-output"])
def test_every_pair_has_an_alignment_and_an_empty_one_has_no_links(tmp_path: Path, family: str) -> None:
    direction = Aligner.load(make_folder(tmp_path / "model", family), "cpu")
    direction.settings = AlignmentSettings(method="one")
    found = align_pairs(PAIRS, direction)
    assert [sorted(target for _, target in links) for links in found] == [
        [0, 1, 2],
        [],
        [0, 1, 2, 3, 4],
        [0],
        [0, 1, 2, 3, 4],
    ]


@pytest.mark.parametrize(("family", "said"), [("rnn-none", "without attention"), ("gpt", "no cross-attention")])
def test_a_model_without_cross_attention_is_refused(tmp_path: Path, family: str, said: str) -> None:
    with pytest.raises(RegardError, match=said):
        Aligner.load(make_folder(tmp_path / "model", family), "cpu")


def test_a_sentence_is_aligned_alike_alone_and_among_others(folder: Path) -> None:
    direction = Aligner.load(folder, "cpu")
    together = combined_weights(PAIRS, direction)
    for pair, weights in zip(PAIRS, together, strict=True):
        torch.testing.assert_close(combined_weights([pair], direction)[0], weights)


def test_a_sentence_longer_than_the_model_knows_has_no_links_and_is_counted(tmp_path: Path) -> None:
    direction = Aligner.load(make_folder(tmp_path / "model", max_length=6), "cpu")
    pairs = [("a", "un"), ("bird " * 30, "un")]
    assert [bool(links) for links in align_pairs(pairs, direction)] == [True, False]
    assert direction.left_out == {"longer than 6 tokens": 1}


def test_a_tag_is_no_word_of_the_source(folder: Path) -> None:
    plain, tagged = Aligner.load(folder, "cpu"), Aligner.load(folder, "cpu", tag="<2fr>")
    one, other = (combined_weights(PAIRS[:1], aligner)[0] for aligner in (plain, tagged))
    assert one.shape == other.shape
    assert not torch.allclose(one, other)
    with pytest.raises(ConfigError, match="not trained with the tag <2de>"):
        Aligner.load(folder, "cpu", tag="<2de>")


@pytest.mark.parametrize("tag", ["", "<2fr>"])
def test_a_word_in_a_script_without_spaces_is_one_word(folder: Path, tag: str) -> None:
    pairs = [("中国人民", "the old house"), ("中国 人民", "the old house")]
    weights = combined_weights(pairs, Aligner.load(folder, "cpu", tag=tag))
    assert [tuple(part.shape) for part in weights] == [(3, 1), (3, 2)]


def test_lines_without_spaces_between_words_are_reported(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "unspaced.zh").write_text("中国人民站起来了\n老房子很小的\n猫\n")
    (tmp_path / "spaced.zh").write_text("中国 人民 站 起来 了\n老 房子 很 小 的\n猫\n")
    (tmp_path / "en.txt").write_text("the people stood up\nthe old house is small\ncat\n")
    said = [
        regard.align(folder, tmp_path / f"{name}.zh", tmp_path / "en.txt", device="cpu").messages
        for name in ("unspaced", "spaced")
    ]
    assert said == [
        [
            "2 lines have no spaces, so each is one word to align: put spaces between their words, as a word segmenter "
            "does"
        ],
        [],
    ]


# Two directions.


def test_the_attention_of_two_models_is_multiplied(folder: Path, reverse: Path) -> None:
    forward, backward = Aligner.load(folder, "cpu"), Aligner.load(reverse, "cpu")
    one, other = combined_weights(PAIRS[2:3], forward)[0], combined_weights([PAIRS[2][::-1]], backward)[0].T
    forward.settings = AlignmentSettings(method="union")
    assert align_pairs(PAIRS[2:3], forward, backward)[0] == extract_links(one * other, "union")


def total(direction: Aligner, backward: Aligner | None = None) -> float:
    return error_rates(count_matches(align_pairs(PAIRS, direction, backward), DIAGONAL))["aer"]


def test_the_settings_with_the_lowest_error_rate_are_chosen(folder: Path) -> None:
    direction = Aligner.load(folder, "cpu")
    errors = {}
    for layer, head, shift in itertools.product(("mean", 0, 1), ("mean", 0, 1), (False, True)):
        if layer != "mean" or head == "mean":
            settings = direction.settings = AlignmentSettings(layer, head, shift, "one")  # type: ignore[arg-type]
            errors[settings] = total(direction)
    choose_attention(direction, PAIRS, DIAGONAL)
    assert errors[direction.settings] == min(errors.values())


def test_the_method_with_the_lowest_error_rate_is_chosen_and_saved(tmp_path: Path, corpus: Path) -> None:
    forward, backward = (Aligner.load(make_folder(tmp_path / str(seed), seed=seed), "cpu") for seed in (1, 2))
    dev = [str(corpus / name) for name in ("a.txt", "b.txt", "gold.align")]
    choose_settings((dev[0], dev[1], dev[2]), forward, backward)
    saved = AlignmentSettings.load(forward.folder, forward.config)
    assert saved == forward.settings
    errors = []
    for method in METHODS:
        forward.settings = replace(saved, method=method)
        errors.append(total(forward, backward))
    assert errors[METHODS.index(saved.method)] == min(errors)


# The command.


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    for side, name in enumerate(("a.txt", "b.txt")):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in PAIRS))
    lines = [" ".join(f"{i}-{j}" for i, j in sorted(gold.sure)) for gold in DIAGONAL]
    (tmp_path / "gold.align").write_text("".join(f"{line}\n" for line in lines))
    return tmp_path


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, corpus: Path) -> Any:
    import regard.devices

    monkeypatch.setattr(regard.devices, "use_threads", lambda _: None)
    monkeypatch.chdir(corpus)

    def command(*words: object) -> Result:
        result = CliRunner().invoke(app, ["align", *map(str, words), "--device", "cpu"])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return command


def test_the_command_prints_a_line_for_every_pair_and_the_error_rate_on_stderr(run: Any, folder: Path) -> None:
    done = run(folder, "a.txt", "b.txt", "--gold", "gold.align")
    lines = done.stdout.split("\n")
    assert len(lines) == len(PAIRS) + 1
    assert lines[1] == ""
    assert lines[3] == "0-0"
    assert done.stderr.startswith("AER ")


def test_chosen_settings_are_saved_for_later_calls(run: Any, tmp_path: Path, reverse: Path) -> None:
    folder = make_folder(tmp_path / "model")
    back = make_folder(tmp_path / "back", seed=2)
    dev = ("--dev", "a.txt", "b.txt", "gold.align")
    chosen = run(folder, "a.txt", "b.txt", "--reverse", back, *dev)
    assert "AER" in chosen.stderr
    assert (back / "alignment.json").exists()
    later = run(folder, "a.txt", "b.txt", "--reverse", back)
    assert later.stdout == chosen.stdout
    assert later.stderr == ""
    with pytest.raises(ConfigError, match="--dev chooses the head: leave out --head"):
        run(folder, "a.txt", "b.txt", "--head", 0, *dev)


def test_the_json_report_has_the_settings(run: Any, folder: Path) -> None:
    asked = ("--layer", 1, "--head", 0, "--shift", "--method", "union")
    facts = json.loads(run(folder, "a.txt", "b.txt", *asked, "--gold", "gold.align", "--out", "links", "--json").stdout)
    assert facts["settings"] == {"layer": 1, "head": 0, "shift": True, "method": "union"}
    assert facts["pairs"] == len(PAIRS) == len(Path("links").read_text().splitlines())
    assert 0 <= facts["aer"] <= 1
    with pytest.raises(ConfigError, match="give --out FILE too"):
        run(folder, "a.txt", "b.txt", "--json")
    with pytest.raises(FolderError, match="already exists"):
        run(folder, "a.txt", "b.txt", "--out", "links")


def test_two_directions_without_settings_use_the_mean_of_the_layers(folder: Path, reverse: Path, corpus: Path) -> None:
    found = regard.align(folder, corpus / "a.txt", corpus / "b.txt", reverse=reverse, device="cpu")
    assert found.settings == found.reverse_settings == AlignmentSettings(layer="mean")


def test_impossible_settings_are_refused(run: Any, folder: Path, corpus: Path) -> None:
    with pytest.raises(InputError, match="no decoder layer 2"):
        run(folder, "a.txt", "b.txt", "--layer", 2)
    with pytest.raises(InputError, match=r"the layer \(last\) must be a number from 0, or mean"):
        run(folder, "a.txt", "b.txt", "--layer", "last")
    with pytest.raises(InputError, match=r"the layer \(²\) must be a number"):
        run(folder, "a.txt", "b.txt", "--layer", "²")
    (corpus / "short").write_text("0-0\n")
    with pytest.raises(DataError, match="short has fewer lines than the pairs"):
        run(folder, "a.txt", "b.txt", "--gold", "short")


def test_the_preparation_in_the_docs_keeps_gold_words_in_place_and_cuts_the_others(tmp_path: Path) -> None:
    page = (Path(__file__).parent.parent.parent / "docs" / "align.md").read_text()
    (program,) = re.findall(r"```python\n(.*?)```", page, re.S)
    data, out = tmp_path / "data", tmp_path / "out"
    tokenised = {"en": "Mr. Speaker , I do .", "fr": "à le heure , je le ai aujourd' hui ."}
    plain = {"en": "The Speaker's chair (two-thirds).", "fr": "L'hon. député qu'il a vu aujourd'hui: c'est du Sénat."}
    for folder, parts, texts in (
        ("word_alignment_gold", ("enfr.train25k", "enfr.dev", "enfr.test"), tokenised),
        ("hansards_enfr", ("train", "extra", "valid"), plain),
    ):
        (data / folder).mkdir(parents=True)
        for part, (language, text) in itertools.product(parts, texts.items()):
            (data / folder / f"{part}.{language}.gz").write_bytes(gzip.compress(f"{text}\n".encode()))
    for part in ("dev", "test"):
        (data / "word_alignment_gold" / f"enfr.{part}.talp.gz").write_bytes(gzip.compress(b"1-1\n"))
    subprocess.run([sys.executable, "-c", program, data, out], check=True)
    assert (out / "test.fr").read_text() == "a le heure , je le ai aujourd' hui .\n"
    assert (out / "train.en").read_text().splitlines()[1:] == ["the speaker 's chair ( two - thirds ) ."] * 2
    assert (out / "valid.fr").read_text() == "le hon. depute que il a vu aujourd' hui : ce est de le senat .\n"


def test_the_verb_returns_alignments_and_their_error_rate(folder: Path, corpus: Path) -> None:
    found = regard.align(folder, corpus / "a.txt", corpus / "b.txt", gold=corpus / "gold.align", device="cpu")
    assert len(found.alignments) == found.pairs == len(PAIRS)
    assert found.alignments[3] == [(0, 0)]
    assert found.aer == found.to_dict()["aer"]
    found.save(corpus / "links")
    assert (corpus / "links").read_text().splitlines()[3] == "0-0"


# Another aligner's alignments.


def test_the_alignments_of_another_aligner_are_scored(tmp_path: Path) -> None:
    (tmp_path / "other.links").write_text("0-0 1-1\n0-0\n")
    (tmp_path / "gold.talp").write_text("1-1 2p2 3-3\n1-2\n")
    result = regard.align(hypothesis=tmp_path / "other.links", gold=tmp_path / "gold.talp")
    assert result.to_dict() == {
        "pairs": 2,
        "points": 3,
        "aer": 1 - (1 + 2) / (3 + 3),
        "precision": 2 / 3,
        "recall": 1 / 3,
        "left_out": {},
    }


def test_alignments_counted_from_one_bring_a_message(tmp_path: Path) -> None:
    (tmp_path / "other.links").write_text("1-1 2-2\n")
    (tmp_path / "gold").write_text("0-0 1-1\n")
    result = regard.align(hypothesis=tmp_path / "other.links", gold=tmp_path / "gold")
    assert "if its words are counted from 1, name it other.talp" in result.messages[0]
    (tmp_path / "other.links").rename(tmp_path / "other.talp")
    assert regard.align(hypothesis=tmp_path / "other.talp", gold=tmp_path / "gold").aer == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--hypothesis other", "give --gold FILE"),
        ("--hypothesis other --gold gold", "gold has more lines than other: the shorter has 1"),
        ("--hypothesis other --gold gold --layer 1", "--layer is for a model"),
        ("--hypothesis other --gold gold --out x", "--out is for the alignments of a model"),
        ("--hypothesis gold --gold other", "gold:1: '0p0' is not an alignment"),
        ("--gold gold", "give a model folder and texts to align, or --hypothesis FILE"),
    ],
)
def test_alignments_that_cannot_be_scored_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("other").write_text("0-0\n")
    Path("gold").write_text("0p0\n0-0\n")
    result = CliRunner().invoke(app, ["align", *words.split()])
    assert isinstance(result.exception, RegardError)
    assert message in str(result.exception)
