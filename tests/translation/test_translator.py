"""The translator returns one result per text, whatever the text and whatever else is in the batch."""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.config import Config
from regard.decoding import Encoded, Hypothesis, SearchOptions
from regard.errors import ConfigError, FolderError, InputError, RunError
from regard.inspection.quality import CALIBRATION_FILE, Calibration, Expected
from regard.models import build
from regard.models.folder import save_model
from regard.text.tokenizer import END, Tokenizer, Tokenizers, train
from regard.translation.translator import Result, Translator

TEXT = "the old house sees a small bird , and the river . <2fr>"
FAMILIES = {
    "transformer": {},
    "learned": {"positions": "learned"},
    "rotary": {"positions": "rotary"},
    "rnn": {"family": "rnn"},
    "rnn-none": {"family": "rnn", "score": "none"},
}
LONGEST = 16


@functools.cache
def tokenizer() -> Tokenizer:
    return train([TEXT] * 3, kind="bpe", vocabulary=300, tags=["<2fr>"])


def make(
    family: str = "transformer", *values: str, seed: int = 0, calibration: Calibration | None = None
) -> Translator:
    shape = {
        "size": 16,
        "heads": 2,
        "feed_forward_size": 32,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "max_positions": 40,
    }
    config = Config.read({
        "model": {**shape, **FAMILIES[family], "vocabulary": tokenizer().size},
        "text": {"max_length": LONGEST},
        "decode": {"beams": 2, "max_length_ratio": 1.0, "max_length_extra": 4},
    }).with_values(values)  # fmt: skip
    torch.manual_seed(seed)
    return Translator(build(config.model).eval(), Tokenizers(tokenizer(), tokenizer()), config, calibration=calibration)


def save(folder: Path, translator: Translator) -> Path:
    save_model(
        folder, translator.model, translator.config, {"tokenizer.json": translator.tokenizers.source.text}, force=False
    )
    return folder


class Watched:
    """The torch engine, whose sources are seen first."""

    def __init__(self, translator: Translator, watch: Callable[[Sequence[Sequence[int]]], None]) -> None:
        self.translator, self.watch = translator, watch

    def search(
        self, sources: Sequence[Sequence[int]], options: SearchOptions, encoded: list[Encoded] | None = None
    ) -> list[list[Hypothesis]]:
        self.watch(sources)
        return self.translator.torch_engine.search(sources, options, encoded)


def calibrated(expected: Expected) -> Calibration:
    return Calibration((1.0, 0.5, 0.0, 0.0), expected)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "text",
    ["12 345 !", "😀👩‍👩‍👧", "مرحبا بالعالم", "e\u0301" * 40, "x" * 300, "the bird, " * 12, "你好。" * 9, "\u200f\x01"],
)
def test_every_readable_text_is_translated(family: str, text: str) -> None:
    beside, result = make(family).translate(["the old house", text])
    assert beside.text == make(family).translate(["the old house"])[0].text
    assert result.log_probabilities
    assert not any(note.kind == "input" for note in result.warnings)


def test_a_result_prints_short_and_converts_to_plain_values() -> None:
    result = make().translate(["the old house"], trace=True, align=True)[0]
    assert str(result) == f"Result(text={result.text!r}, score={result.score:.4g})"
    values = json.loads(json.dumps(result._replace(alternatives=[Result("other")]).to_dict()))
    assert (values["text"], values["score"]) == (result.text, result.score)
    assert values["alternatives"][0]["text"] == "other"


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "caf\udce9"])
def test_an_unreadable_text_gets_a_warning_and_changes_no_other(text: str) -> None:
    first, bad, last = make().translate(["the bird", text, "the river"])
    assert (bad.text, [note.kind for note in bad.warnings]) == ("", ["input"])
    assert [first.text, last.text] == [result.text for result in make().translate(["the bird", "the river"])]


@pytest.mark.parametrize("text", ["", "  ", "\t"])
def test_an_empty_text_stays_empty(text: str) -> None:
    assert make().translate([text]) == [Result(text)]


@pytest.mark.parametrize("text", ["<2fr>", " <2fr>  ", "<2fr>\n"])
def test_a_tag_alone_translates_to_an_empty_text(text: str) -> None:
    assert make().translate([text, "the bird"])[0] == Result("")


@pytest.mark.slow
def test_a_text_of_100_000_characters_is_translated_whole() -> None:
    words = random.Random(1).choices(TEXT.split()[:-1], k=20_000)
    text = " ".join(words)[:100_000]
    result = make().translate([text], beams=1, warn=False)[0]
    assert len(result.parts) > 1000
    assert all(part.text for part in result.parts)


@pytest.mark.parametrize("family", FAMILIES)
def test_results_do_not_depend_on_the_order_of_texts(family: str) -> None:
    chance = random.Random(2)
    texts = [" ".join(chance.choices(TEXT.split(), k=chance.randint(1, 6))) for _ in range(30)]
    found = dict(zip(texts, make(family).translate(texts), strict=True))
    chance.shuffle(texts)
    for text, result in zip(texts, make(family).translate(texts), strict=True):
        assert result.text == found[text].text
        assert result.score == pytest.approx(found[text].score, abs=1e-5)


def test_identical_texts_are_translated_once() -> None:
    translator, searched = make(), list[int]()

    translator.engine = Watched(translator, lambda sources: searched.append(len(sources)))
    assert len(translator.translate(["the bird", "the river", "the bird", "the bird"])) == 4
    assert sum(searched) == 2


@pytest.mark.slow
def test_a_batch_that_does_not_fit_a_gpu_is_halved() -> None:
    chance, translator = random.Random(2), make()
    texts = [" ".join(chance.choices(TEXT.split(), k=chance.randint(1, 6))) for _ in range(30)]
    found, searched = [result.text for result in translator.translate(texts)], list[int]()

    def watch(sources: Sequence[Sequence[int]]) -> None:
        if len(sources) > 4:
            raise torch.cuda.OutOfMemoryError("as if a GPU were full")
        searched.append(len(sources))

    translator.engine = Watched(translator, watch)
    assert [result.text for result in translator.translate(texts)] == found
    assert len(searched) > 7


def test_a_long_text_is_translated_by_sentence() -> None:
    translator = make()
    sentences = ["The old house sees.", "A small bird!", "And the river."]
    whole = translator.translate(["  ".join(sentences)])[0]
    alone = translator.translate(sentences)
    assert whole.text == "  ".join(result.text for result in alone)
    assert [part.text for part in whole.parts] == [result.text for result in alone]
    assert whole.log_probability == pytest.approx(sum(result.log_probability for result in alone), abs=1e-4)


def test_sentences_that_fit_the_model_stay_together() -> None:
    assert not make().translate(["A bird. The sea."])[0].parts


@pytest.mark.parametrize("expected", [Expected(max_source_length=10), Expected(max_source_sentences=1)])
def test_a_text_longer_than_the_validation_texts_is_translated_by_sentence(expected: Expected) -> None:
    assert len(make(calibration=calibrated(expected)).translate(["A bird. The sea."])[0].parts) == 2


def test_lines_are_translated_one_by_one_and_keep_their_breaks() -> None:
    assert make().translate(["the bird\n\nthe river\n"])[0].text.count("\n\n") == 1


def test_a_sentence_longer_than_the_model_reads_is_split_with_a_warning() -> None:
    result = make("learned").translate(["the bird " * 30])[0]
    assert "split" in [note.kind for note in result.warnings]
    assert len(result.parts) > 2


def test_a_translation_cut_at_the_maximum_length_gets_a_warning() -> None:
    translator = make("transformer", "decode.min_length=500")  # it may end only at the maximum length
    assert "unfinished" in [note.kind for note in translator.translate(["the bird"])[0].warnings]


def test_a_finished_translation_gets_no_warning_of_its_end() -> None:
    translator = make("rnn")
    with torch.no_grad():
        dict(translator.model.named_parameters())["output_bias"][END] = 1000
    assert "unfinished" not in [note.kind for note in translator.translate(["the bird"])[0].warnings]


class Fixed:
    """An engine that returns these texts for every sentence, best first."""

    def __init__(self, *texts: str, finished: Sequence[bool] | None = None) -> None:
        ends = finished or [True] * len(texts)
        self.hypotheses = [_hypothesis(*each) for each in zip(range(len(texts)), texts, ends, strict=True)]

    def search(
        self, sources: Sequence[Sequence[int]], options: SearchOptions, encoded: list[Encoded] | None = None
    ) -> list[list[Hypothesis]]:
        return [self.hypotheses for _ in sources]


def _hypothesis(place: int, text: str, finished: bool) -> Hypothesis:
    ids = tokenizer().encode(text)
    return Hypothesis(ids, -1.0 - place, -1.0 - place, finished, [-1.0 - place] * (len(ids) + 1))


def test_of_hypotheses_with_the_same_text_the_best_is_kept() -> None:
    translator = make()
    translator.engine = Fixed("a bird", "the river", "a bird", finished=[True, True, False])
    result = translator.translate(["the bird"], alternatives=2, trace=True)[0]
    assert [(each.text, each.score) for each in (result, *result.alternatives)] == [
        ("a bird", -1.0),
        ("the river", -2.0),
    ]
    assert result.trace is not None
    assert result.trace.target.text == "a bird"
    assert "unfinished" not in [note.kind for note in result.warnings]


def test_every_part_of_a_text_has_its_tag() -> None:
    translator, read = make(), list[str]()

    def watch(sources: Sequence[Sequence[int]]) -> None:
        read.extend(translator.tokenizers.source.decode(ids) for ids in sources)

    translator.engine = Watched(translator, watch)
    translator.translate(["<2fr> The old house sees. A small bird. And the river."])
    translator.translate(["the bird"], tag="<2fr>")
    assert len(read) == 4
    assert all(text.startswith("<2fr>") for text in read)


def test_an_unknown_tag_is_refused_and_the_known_one_named() -> None:
    with pytest.raises(ConfigError, match="Did you mean <2fr>"):
        make().translate(["a"], tag="<2fi>")


def test_a_text_that_fits_only_without_its_tag_is_split() -> None:
    translator = make("learned", "text.max_length=39")  # all that the positions have places for
    words = ["the", "bird", "sees", "a", "house"] * 20
    text = next(
        " ".join(words[:size]) for size in range(90, 0, -1) if len(tokenizer().encode(" ".join(words[:size]))) == 39
    )
    results = translator.translate([text, "the bird"], tag="<2fr>")
    assert len(results[0].parts) > 1
    assert results[1].text == translator.translate(["the bird"], tag="<2fr>")[0].text


def test_the_parts_of_a_long_sentence_are_as_long_with_a_tag() -> None:
    translator, text = make(), "the bird sees a house " * 20
    plain, tagged = (translator.translate([text], tag=tag)[0].parts for tag in ("", "<2fr>"))
    assert len(tagged) <= len(plain) * LONGEST / (LONGEST - 2)


def test_texts_may_come_from_a_generator() -> None:
    texts = ["the bird", "the house"]
    assert make().translate(text for text in texts) == make().translate(texts)


def test_a_single_string_is_refused() -> None:
    with pytest.raises(InputError, match="in brackets"):
        make().translate("the bird")


@pytest.mark.parametrize(
    ("texts", "problem"),
    [
        ([5], "item 1 is of type int"),
        (["the bird", None], "item 2 is of type NoneType"),
        (5, "put a single text in brackets"),
    ],
)
def test_what_is_not_a_list_of_texts_is_refused(texts: Any, problem: str) -> None:
    with pytest.raises(InputError, match=rf'translate takes a list of texts, such as \["A bird."\]: {problem}'):
        make().translate(texts)


def test_a_loaded_model_prints_as_one_short_line(tmp_path: Path) -> None:
    folder = save(tmp_path / "model", make())
    count = sum(parameter.numel() for parameter in make().model.parameters())
    assert repr(regard.load(folder, "cpu")) == f"Translator(transformer, {count:,} parameters, {folder}, cpu)"
    assert str(make()) == f"Translator(transformer, {count:,} parameters, cpu)"


def test_a_prefix_longer_than_the_positions_is_refused() -> None:
    with pytest.raises(InputError, match=r"the prefix has \d+ tokens; this model can write at most 39"):
        make("learned").translate(["the bird"], prefix="the bird " * 40)


def test_fewer_beams_than_one_are_refused() -> None:
    with pytest.raises(InputError, match=r"beams \(0\) must be at least 1"):
        make().translate(["the bird"], beams=0)


@pytest.mark.parametrize("family", FAMILIES)
def test_white_space_around_a_sentence_does_not_change_its_result(family: str) -> None:
    bare, spaced = make(family).translate(["the bird", "the bird\n"], trace=True, alternatives=1)
    assert spaced.text == bare.text + "\n"
    assert spaced.trace is not None
    assert spaced.alignment == bare.alignment
    assert not spaced.parts
    assert [each.text for each in spaced.alternatives] == [each.text + "\n" for each in bare.alternatives]


def test_a_trace_has_hidden_states_on_request() -> None:
    plain, deep = (make().translate(["the bird"], trace=True, hidden=hidden)[0].trace for hidden in (False, True))
    assert plain is not None
    assert deep is not None
    assert plain.hidden == {}
    assert deep.hidden
    assert deep.target.text == plain.target.text


@pytest.mark.parametrize("family", FAMILIES)
def test_a_linear_probe_trains_on_the_hidden_states_of_a_translation(family: str) -> None:
    traced = make(family).translate(["the bird"], hidden=True)[0].trace
    assert traced is not None
    for states in traced.hidden.values():
        probe = torch.nn.Linear(states.shape[1], 1)
        probe(states).sum().backward()
        assert probe.weight.grad is not None


@pytest.mark.parametrize("family", FAMILIES)
def test_the_trace_is_of_the_translation(family: str) -> None:
    result = make(family).translate(["the old house", "a bird"], trace=True)[0]
    assert result.trace is not None
    assert result.trace.source.text == "the old house"
    assert result.trace.target.text == result.text
    assert result.trace.log_probabilities.tolist() == pytest.approx(list(result.log_probabilities), abs=1e-4)
    assert (result.alignment is None) == (family == "rnn-none")


def test_an_alignment_does_not_count_the_tag() -> None:
    plain = make().translate(["the old house"], align=True, tag="<2fr>")[0]
    assert plain.alignment is not None
    assert plain.trace is None
    assert {source for source, _ in plain.alignment} <= {0, 1, 2}


def test_alignments_of_parts_are_joined() -> None:
    text = "The old house sees. A small bird! And the river."
    result = make().translate([text], align=True)[0]
    assert result.alignment is not None
    assert len(result.parts) == 3
    first = len({target for _, target in result.parts[0].alignment or []})
    assert min(source for source, target in result.alignment if target >= first) >= 4


def test_alternatives_differ_and_come_best_first() -> None:
    result = make("rnn").translate(["the old house"], alternatives=3)[0]
    texts = [result.text, *(other.text for other in result.alternatives)]
    assert len(set(texts)) == len(texts) > 1
    scores = [result.score, *(other.score for other in result.alternatives)]
    assert scores == sorted(scores, reverse=True)


def test_the_torch_engine_can_be_chosen_again(tmp_path: Path) -> None:
    translator = make()
    translator.engine = Fixed("a bird")
    translator.use("torch", "fp32", tmp_path)
    assert translator.engine is translator.torch_engine


def test_bf16_can_be_switched_back_to_fp32(tmp_path: Path) -> None:
    folder = save(tmp_path / "model", make())
    translator = Translator.load(folder, "cpu")
    weights = {name: tensor.clone() for name, tensor in translator.model.state_dict().items()}
    for precision, same in (("bf16", False), ("fp32", True), ("bf16", False), ("auto", True)):
        translator.use("torch", precision, folder)
        assert all(torch.equal(tensor, weights[name]) for name, tensor in translator.model.state_dict().items()) == same
        assert translator.torch_engine.models[0] is translator.model


@pytest.mark.parametrize("seed", [None, 1])
def test_logits_that_are_not_finite_name_their_sentence(seed: int | None) -> None:
    translator = make("rnn", "model.tie_embeddings=none")
    bird = tokenizer().encode("a bird")[-1]
    with torch.no_grad():
        translator.model.get_parameter("source.weight")[bird] = torch.nan
    with pytest.raises(RunError, match="gives no probabilities for 'a bird': its logits are not finite"):
        translator.translate(["the old house near the river", "a bird", "the house sees"], seed=seed)


def test_translations_begin_with_the_prefix() -> None:
    results = make().translate(["the bird", "the river sees a house"], prefix="the small ")
    assert all(result.text.startswith("the small") for result in results)


def test_a_sample_depends_on_the_seed_alone() -> None:
    one, same, other = (make().translate(["the old house"], seed=seed)[0].text for seed in (1, 1, 2))
    assert one == same != other


def test_confidence_comes_from_the_calibration_of_the_folder(tmp_path: Path) -> None:
    folder = save(tmp_path / "model", make())
    assert regard.load(folder).translate(["the bird"])[0].confidence is None
    (folder / CALIBRATION_FILE).write_text(calibrated(Expected()).as_text())
    sure = regard.load(folder).translate(["the bird"])[0].confidence
    assert sure is not None
    assert 0 < sure < 1


@pytest.mark.parametrize("family", FAMILIES)
def test_an_ensemble_of_a_model_with_itself_translates_like_the_model(family: str, tmp_path: Path) -> None:
    folder = save(tmp_path / "a", make(family))
    alone, twice = (regard.load(name).translate(["the old house"])[0] for name in (folder, f"{folder}+{folder}"))
    assert alone.text == twice.text
    assert alone.score == pytest.approx(twice.score, abs=1e-5)


def test_models_of_different_tokenizers_are_not_joined(tmp_path: Path) -> None:
    other = make()
    other.tokenizers = Tokenizers(*[train(["quite another text"], kind="bpe", vocabulary=300, tags=["<2fr>"])] * 2)
    one, two = save(tmp_path / "a", make()), save(tmp_path / "b", other)
    with pytest.raises(FolderError, match="another tokenizer"):
        regard.load(f"{one}+{two}")


def test_a_stream_is_read_no_further_than_requested() -> None:
    read = list[int]()

    def texts() -> Iterator[str]:
        for number in range(100):
            read.append(number)
            yield "the bird"

    stream = make().stream(texts(), lines=4)
    next(stream)
    assert len(read) == 4


def test_a_result_without_a_trace_cannot_be_drawn(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="trace=True"):
        make().translate(["the bird"])[0].draw(tmp_path / "a.png")
