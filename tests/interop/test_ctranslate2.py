"""CTranslate2 finds the hypotheses that our own search finds."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.config import Config, DecodeConfig, ModelConfig
from regard.decoding import Hypothesis, SearchOptions
from regard.errors import ConfigError, RegardError
from regard.evaluation import precision as precision_module
from regard.evaluation.metrics import Score
from regard.evaluation.precision import use_engine
from regard.interop import ctranslate2 as interop
from regard.interop.ctranslate2 import CTranslate2Engine, export_ctranslate2
from regard.models import build
from regard.models.folder import load_model, save_model
from regard.text.tokenizer import END, SPECIALS, Tokenizers, train
from regard.translation.translator import Translator
from tests.training.runs import make_config, make_data, make_training, no_validation, write_corpus

pytest.importorskip("ctranslate2")

TOKENIZER = train(["the cat sat on the mat and saw a dog", "le chat noir"], kind="bpe", vocabulary=300)
SIDES = Tokenizers(TOKENIZER, TOKENIZER)
SHAPE: dict[str, Any] = {
    "vocabulary": TOKENIZER.size,
    "size": 32,
    "heads": 4,
    "feed_forward_size": 48,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "max_positions": 64,
}
OPTIONS: dict[str, dict[str, Any]] = {
    "the paper's": {},
    "pre": {"norm_placement": "pre", "activation": "gelu"},
    "rms": {"norm": "rms", "activation": "gelu_tanh", "norm_epsilon": 0.01},
    "halves": {"positions": "sinusoidal_halves", "activation": "silu", "bias": False},
    "odd": {"size": 36, "scale_embeddings": False},
    "learned": {"positions": "learned", "embedding_norm": True, "output_bias": True, "tie_embeddings": "target"},
    "rotary": {"positions": "rotary", "rotary_base": 500.0, "activation": "swiglu", "tie_embeddings": "none"},
    "grouped": {
        "key_value_heads": 2,
        "target_vocabulary": TOKENIZER.size + 7,
        "tie_embeddings": "target",
        "score": "dot",
    },
}
TEXTS = ["the cat", "a dog sat on the mat", "noir"]


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))


def random_folder(folder: Path, **options: Any) -> Path:
    """A model of random weights, biases and norms included, so that each of them shows."""
    torch.manual_seed(0)
    config = ModelConfig(**{**SHAPE, **options})
    model = build(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    save_model(folder, model, Config(model=config), {"tokenizer.json": TOKENIZER.text}, force=False)
    return folder


def both(
    folder: Path, *, beams: int = 1, results: int = 1, prefixes: Sequence[Sequence[int]] | None = None, **decode: Any
) -> tuple[list[list[Hypothesis]], list[list[Hypothesis]]]:
    """What torch finds and what CTranslate2 does, in float32."""
    model, config = load_model(folder)
    translator = Translator(model, SIDES, Config(model=config.model, decode=DecodeConfig(**decode)))
    translator.use("ctranslate2", "fp32", folder)
    sources = [[*TOKENIZER.encode(text), END] for text in TEXTS]
    options = SearchOptions(beams, results, prefixes=prefixes)
    engines = translator.torch_engine, translator.engine
    ours, theirs = (engine.search(sources, options) for engine in engines)
    return ours, theirs


def tokens(found: list[list[Hypothesis]]) -> list[list[list[int]]]:
    return [[hypothesis.tokens for hypothesis in hypotheses] for hypotheses in found]


@pytest.mark.parametrize("name", OPTIONS)
def test_a_model_of_every_shape_gives_the_same_probabilities(name: str, tmp_path: Path) -> None:
    ours, theirs = both(random_folder(tmp_path / "model", **OPTIONS[name]))
    assert tokens(ours) == tokens(theirs)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(other[0].log_probabilities, one[0].log_probabilities, atol=1e-4, rtol=1e-4)
        assert other[0].score == pytest.approx(one[0].score, abs=1e-4)
        assert other[0].finished == one[0].finished


@pytest.mark.parametrize(
    "decode", [{"no_repeat_ngram": 2}, {"min_length": 12}, {"max_length_ratio": 0.0, "max_length_extra": 3}], ids=str
)
def test_constraints_are_the_same(decode: dict[str, Any], tmp_path: Path) -> None:
    ours, theirs = both(random_folder(tmp_path / "model", tie_embeddings="none"), **decode)
    assert tokens(ours) == tokens(theirs)


def test_a_prefix_begins_the_translation_and_counts_in_its_score(tmp_path: Path) -> None:
    prefixes = [TOKENIZER.encode("the"), [], TOKENIZER.encode("noir noir")]
    ours, theirs = both(random_folder(tmp_path / "model"), prefixes=prefixes)
    assert tokens(ours) == tokens(theirs)
    assert theirs[0][0].log_probability == pytest.approx(ours[0][0].log_probability, abs=1e-3)


def test_special_tokens_are_never_generated(tmp_path: Path) -> None:
    folder = random_folder(tmp_path / "model", output_bias=True)
    model, config = load_model(folder)
    with torch.no_grad():
        model.output_bias[: len(SPECIALS)] += 5.0  # type: ignore[operator, index]
    save_model(folder, model, config, {"tokenizer.json": TOKENIZER.text}, force=True)
    ours, theirs = both(folder)
    assert tokens(ours) == tokens(theirs)


def test_ctranslate2_leaves_torch_its_threads(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        both(random_folder(tmp_path / "model"))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_several_results_are_different_and_the_best_comes_first(tmp_path: Path) -> None:
    _, theirs = both(random_folder(tmp_path / "model"), beams=4, results=3)
    for found in theirs:
        assert len({tuple(hypothesis.tokens) for hypothesis in found}) == 3
        assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)


def test_equal_weights_with_another_config_are_another_model(tmp_path: Path) -> None:
    both(random_folder(tmp_path / "one"))
    ours, theirs = both(random_folder(tmp_path / "other", positions="sinusoidal_halves"))
    assert tokens(ours) == tokens(theirs)


def test_texts_longer_than_the_positions_are_searched_by_torch(tmp_path: Path) -> None:
    folder = random_folder(tmp_path / "model")
    translator = Translator.load(folder, "cpu", ["decode.max_length_ratio=0", "decode.max_length_extra=4096"])
    translator.use("ctranslate2", "fp32", folder)
    called = []

    def search(sources: Any, options: Any, encoded: Any) -> list[list[Hypothesis]]:
        called.append(len(sources))
        return []

    translator.torch_engine.search = search  # type: ignore[method-assign]
    translator.engine.search([[7, END]], SearchOptions(1))
    assert called == [1]


@pytest.mark.parametrize(
    ("options", "values", "words"),
    [
        ({"score": "cosine"}, [], "model.score = cosine"),
        ({}, ["decode.coverage_penalty=0.2"], "coverage penalty"),
        ({"family": "rnn"}, [], "family rnn"),
    ],
)
def test_an_unsupported_model_is_refused(
    options: dict[str, Any], values: list[str], words: str, tmp_path: Path
) -> None:
    folder = random_folder(tmp_path / "model", **options)
    with pytest.raises(ConfigError, match=words):
        Translator.load(folder, "cpu", values).use("ctranslate2", "fp32", folder)


@pytest.mark.parametrize(("engine", "precision"), [("ctranslate", "auto"), ("torch", "int8")])
def test_an_unknown_engine_or_precision_is_refused(engine: str, precision: str, tmp_path: Path) -> None:
    folder = random_folder(tmp_path / "model")
    with pytest.raises(ConfigError, match="there is no --"):
        Translator.load(folder, "cpu").use(engine, precision, folder)


def measurable_folder(folder: Path, *, pairs: int = 4) -> Path:
    random_folder(folder)
    row = {"source": "the cat sat on the mat", "target": "le chat noir"}
    (folder / "validation.jsonl").write_text(f"{json.dumps(row)}\n" * pairs)
    return folder


def choose(folder: Path, precision: str) -> tuple[str, list[str]]:
    """The compute type that is chosen for a folder, and what is said."""
    said: list[str] = []
    translator = Translator.load(folder, "cpu")
    use_engine(translator, "ctranslate2", precision, folder, token_scores=False, say=said.append)
    assert isinstance(translator.engine, CTranslate2Engine)
    return translator.engine._translator.compute_type, said


def test_the_cost_of_int8_is_measured_once_and_said_every_time(tmp_path: Path) -> None:
    folder = measurable_folder(tmp_path / "model")
    (_, first), (_, again) = choose(folder, "auto"), choose(folder, "auto")
    assert first[0] == "comparing int8 with fp32 on 4 validation sentences, once for this model"
    assert first[1:] == again
    assert re.match(r"int8: \d+\.\d BLEU on 4 validation sentences, fp32: \d+\.\d \(p = .*\); ", again[0])


@pytest.mark.parametrize(
    ("precision", "p", "chosen"), [("auto", 0.003, "float32"), ("auto", 0.2, "int8"), ("int8", 0.003, "int8")]
)
def test_int8_is_chosen_unless_it_costs_bleu_or_is_requested(
    precision: str, p: float, chosen: str, tmp_path: Path
) -> None:
    folder = measurable_folder(tmp_path / "model")
    choose(folder, "auto")
    (kept,) = (tmp_path / "cache").rglob("int8.json")
    kept.write_text(json.dumps({"fp32": 32.5, "int8": 31.2, "p": p, "sentences": 500}))
    compute_type, said = choose(folder, precision)
    assert compute_type.startswith(chosen)
    assert said[0].startswith(f"int8: 31.2 BLEU on 500 validation sentences, fp32: 32.5 (p = {p:.3f})")


def test_int8_is_chosen_if_too_few_translations_differ_for_a_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = [Score(32.5, ""), Score(31.2, "")]
    monkeypatch.setattr(precision_module, "paired_tests", lambda *args, **options: (scores, {}))
    compute_type, said = choose(measurable_folder(tmp_path / "model"), "auto")
    assert compute_type.startswith("int8")
    assert (
        "31.2 BLEU on 4 validation sentences, fp32: 32.5; int8 is used (for exact results: --precision fp32)"
        in said[-1]
    )


def test_int8_is_not_chosen_for_a_folder_without_validation_sentences(tmp_path: Path) -> None:
    compute_type, said = choose(random_folder(tmp_path / "model"), "auto")
    assert compute_type == "float32"
    assert "has no validation.jsonl to measure it on; fp32 is used" in said[0]


def test_weights_in_bf16_are_converted_without_a_copy_in_fp32(tmp_path: Path) -> None:
    folder = random_folder(tmp_path / "wide", positions="learned")
    model, config = load_model(folder)
    model.bfloat16()
    save_model(tmp_path / "narrow", model, config, {"tokenizer.json": TOKENIZER.text}, force=False)
    save_model(tmp_path / "rounded", model.float(), config, {"tokenizer.json": TOKENIZER.text}, force=False)
    (_, narrow), (_, rounded) = both(tmp_path / "narrow"), both(tmp_path / "rounded")
    assert narrow == rounded
    one, other = sorted(path.stat().st_size for path in (tmp_path / "cache").rglob("model.bin"))
    assert one < 0.6 * other


def test_weights_are_as_before_after_a_quantized_conversion(tmp_path: Path) -> None:
    model, _ = load_model(random_folder(tmp_path / "model"))
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    interop.convert(model, SIDES, tmp_path / "model", quantization="int8")  # type: ignore[arg-type]
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, before[name])


@pytest.mark.slow
def test_ctranslate2_finds_a_translation_as_probable_as_ours_in_97_of_100_sentences(tmp_path: Path) -> None:
    write_corpus(tmp_path, lines=1500)
    lines = (tmp_path / "a.txt").read_text().splitlines()
    spelled = [" ".join(word[::-1] for word in line.split()) for line in lines]  # soon learned, and well
    (tmp_path / "b.txt").write_text("".join(f"{line}\n" for line in spelled))
    shape = [
        "model.size=64",
        "model.heads=4",
        "model.feed_forward_size=128",
        "model.norm_placement=pre",
        "model.dropout=0",
    ]
    often = {
        "updates": 300,
        "batch_tokens": 1200,
        "warmup": 50,
        "learning_rate": 0.004,
        "save_every": 300,
        "validate_every": 300,
    }
    config = make_config("transformer", **often).with_values(shape)
    training = make_training(tmp_path / "run", tmp_path, config)
    training.run(no_validation, lambda event: None)
    config, data = make_data(tmp_path, config)
    save_model(tmp_path / "model", training.model, config, {"tokenizer.json": data.tokenizers.source.text}, force=False)
    texts = list(dict.fromkeys(lines))[-300:]
    translator = Translator.load(tmp_path / "model", "cpu")
    ours = translator.translate(texts, beams=5)
    translator.use("ctranslate2", "fp32", tmp_path / "model")
    theirs = translator.translate(texts, beams=5)
    assert len({result.text for result in ours}) > 200
    assert sum(other.score >= one.score - 1e-4 for one, other in zip(ours, theirs, strict=True)) >= 0.97 * len(texts)


def folder_with_validation(folder: Path) -> Path:
    random_folder(folder, tie_embeddings="none")
    rows = [json.dumps({"source": text, "target": text}) for text in TEXTS]
    (folder / "validation.jsonl").write_text("\n".join(rows) + "\n")
    return folder


@pytest.mark.parametrize("quantization", ["float32", "float16", "int8", "int8_float32"])
def test_an_exported_model_translates_in_plain_ctranslate2(quantization: str, tmp_path: Path) -> None:
    import ctranslate2

    verification = export_ctranslate2(
        folder_with_validation(tmp_path / "model"), tmp_path / "out", quantization=quantization
    )
    translator = ctranslate2.Translator(str(tmp_path / "out"), "cpu")
    words = Tokenizers.load(tmp_path / "out").source.tokens([*TOKENIZER.encode("the cat"), END])
    assert translator.translate_batch([words], max_decoding_length=5)[0].hypotheses[0]
    card = (tmp_path / "out" / "card.md").read_text()
    assert f"{verification.greedy} of 3 greedy outputs are identical; BLEU of the greedy outputs differs by" in card


def test_an_exported_model_in_float32_gives_the_same_translations(tmp_path: Path) -> None:
    verification = export_ctranslate2(folder_with_validation(tmp_path / "model"), tmp_path / "out")
    assert verification.greedy == verification.sentences == 3
    assert verification.difference < 1e-3
    assert verification.bleu == 0


def test_an_export_beyond_the_tolerance_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interop, "TOLERANCE", -1.0)
    with pytest.raises(RegardError, match="the exported model differs"):
        export_ctranslate2(folder_with_validation(tmp_path / "model"), tmp_path / "out")
    assert not (tmp_path / "out").exists()
