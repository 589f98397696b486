"""A Trace holds what the model did while it decoded, whatever the family, and comes back from its file the same."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import Tensor, nn

from regard.decoding import Constraints, Encoded, Hypothesis, Tree, beam, greedy
from regard.errors import FolderError, InputError
from regard.inspection.trace import Side, Trace, make_side, split_punctuation, trace
from regard.models import BERT, State, build
from regard.text.tokenizer import END, MASK, START, Tokenizer, Tokenizers, train
from tests.decoding.small import FREE, PLAIN, shaken
from tests.models.families import BERTS, GENERATORS

TEXTS = ["the old cat sat on the mat", "a dog", "l'été arrive"]
NAMES = ["transformer", "transformer-rotary", "transformer-grouped", "rnn-additive-input-gru", "rnn-dot-output-lstm",
         "rnn-none-input-gru", "rnn-bahdanau", "gpt", "gpt-llama"]  # fmt: skip
all_families = pytest.mark.parametrize("name", NAMES)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train(TEXTS * 3, kind="bpe", vocabulary=300)


class Made:
    """A model of a family, the sources of TEXTS, and what a search found for them."""

    def __init__(self, name: str, tokenizer: Tokenizer, *, beams: int = 1) -> None:
        config = dataclasses.replace(GENERATORS[name], vocabulary=tokenizer.size, target_vocabulary=0)
        self.model = shaken(build(config), 0.1).float()
        self.sides = Tokenizers(tokenizer, tokenizer)
        gpt = config.family == "gpt"
        self.sources = [[*tokenizer.encode(text), *([] if gpt else [END])] for text in TEXTS]
        self.trees: list[Tree] = []
        self.hypotheses = [self.search(self.model, source, beams, gpt) for source in self.sources]

    def search(self, model: Any, ids: list[int], beams: int, gpt: bool) -> Hypothesis:
        constraints = Constraints(max_lengths=[6], **{**FREE, "min_length": 4})
        source, first = (ids[:-1], ids[-1]) if gpt else (ids, START)
        data = (torch.tensor([source]), torch.tensor([first]))
        if beams == 1:
            return greedy(model, *data, constraints=constraints, length_penalty=1.0)[0]
        return beam(model, *data, constraints=constraints, beams=beams, results=1, trees=self.trees, **PLAIN)[0][0]

    def traces(self, **options: Any) -> list[Trace]:
        return trace(self.model, self.sources, self.hypotheses, self.sides, **options)


class Watched(nn.Module):
    """A model that keeps the records of all its steps."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model, self.records = model, list[dict[str, Tensor]]()

    def start(self, source: Tensor, mask: Tensor | None = None, record: Any = None, capacity: int = 0) -> State:
        return self.model.start(source, mask, record, capacity)

    def step(self, tokens: Tensor, state: State, record: Any = None) -> tuple[Tensor, State]:
        self.records.append({})
        return self.model.step(tokens, state, self.records[-1])


@all_families
@pytest.mark.parametrize("beams", [1, 3])
def test_the_weights_are_those_used_while_decoding(name: str, beams: int, tokenizer: Tokenizer) -> None:
    made = Made(name, tokenizer, beams=beams)
    for found, source in zip(made.traces(), made.sources, strict=True):
        watched = Watched(made.model)
        made.search(watched, source, beams, "gpt" in name)
        kinds = {"cross": "cross", "decoder": "self"}
        assert set(found.attention) - {"encoder"} == {
            kind for kind, ending in kinds.items() if any(key.endswith(ending) for key in watched.records[0])
        }
        for kind in set(found.attention) - {"encoder"}:
            for place in range(len(found.target.ids)):
                seen = watched.records[place]
                layers = [seen[f"decoder.{i}.{kinds[kind]}"] for i in range(found.attention[kind].shape[0])]
                used = torch.stack(layers, 1)[:, :, :, -1]  # (R, L, H, K): one of the beam's rows is the chosen one
                own = found.attention[kind][:, :, place, : used.shape[-1]]
                assert float((used - own).abs().amax((1, 2, 3)).min()) < 1e-5


@all_families
@pytest.mark.parametrize("beams", [1, 3])
def test_a_trace_that_reuses_the_encoder_of_the_search_is_the_same(name: str, beams: int, tokenizer: Tokenizer) -> None:
    made = Made(name, tokenizer)
    gpt = "gpt" in name
    rows = [source[:2] for source in made.sources]
    source = torch.tensor([row[:-1] if gpt else row for row in rows])
    data = (source, torch.tensor([row[-1] if gpt else START for row in rows]))
    constraints, encoded = Constraints(max_lengths=[6] * 3, **{**FREE, "min_length": 4}), list[Encoded]()
    if beams == 1:
        hypotheses = greedy(made.model, *data, constraints=constraints, length_penalty=1.0, encoded=encoded)
    else:
        found = beam(made.model, *data, constraints=constraints, beams=beams, results=1, encoded=encoded, **PLAIN)
        hypotheses = [best[0] for best in found]
    again = trace(made.model, rows, hypotheses, made.sides, hidden=True)
    for one, other in zip(
        trace(made.model, rows, hypotheses, made.sides, encoded=encoded[0], hidden=True), again, strict=True
    ):
        for mine, its in ((one.attention, other.attention), (one.hidden, other.hidden)):
            assert list(mine) == list(its)
            for key in mine:
                torch.testing.assert_close(mine[key], its[key], rtol=1e-5, atol=1e-5)


@all_families
def test_the_log_probabilities_are_those_of_the_search(name: str, tokenizer: Tokenizer) -> None:
    made = Made(name, tokenizer)
    for found, hypothesis in zip(made.traces(), made.hypotheses, strict=True):
        torch.testing.assert_close(
            found.log_probabilities, torch.tensor(hypothesis.log_probabilities), rtol=1e-4, atol=1e-4
        )
        assert found.target.ids == [*hypothesis.tokens, END]
        assert found.score == hypothesis.score


@all_families
def test_the_alternatives_of_every_step_include_the_chosen_token(name: str, tokenizer: Tokenizer) -> None:
    made = Made(name, tokenizer)
    for found in made.traces(top=made.sides.target.size):
        for number, log_probability, step in zip(
            found.target.ids, found.log_probabilities.tolist(), found.alternatives, strict=True
        ):
            own = next(alternative for alternative in step if alternative.id == number)
            assert own.log_probability == pytest.approx(log_probability, abs=1e-5)
            assert sum(math.exp(alternative.log_probability) for alternative in step) == pytest.approx(1, abs=1e-4)


@all_families
def test_a_trace_does_not_depend_on_its_batch(name: str, tokenizer: Tokenizer) -> None:
    made = Made(name, tokenizer)
    for row, together in enumerate(made.traces()):
        alone = trace(made.model, made.sources[row : row + 1], made.hypotheses[row : row + 1], made.sides)[0]
        for kind, weights in alone.attention.items():
            torch.testing.assert_close(together.attention[kind], weights, rtol=1e-5, atol=1e-5)


@all_families
def test_attention_has_its_tokens_along_its_axes(name: str, tokenizer: Tokenizer) -> None:
    made = Made(name, tokenizer)
    config = GENERATORS[name]
    heads = 1 if config.family == "rnn" else config.heads
    for found in made.traces():
        for kind, weights in found.attention.items():
            rows, columns = found.rows(kind).ids, found.columns(kind).ids
            assert weights.shape[1:] == (heads, len(rows), len(columns))
            torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:3]))


@pytest.mark.parametrize("name", [*NAMES, "bert"])
def test_a_linear_probe_trains_on_every_tensor_of_a_trace(name: str, tokenizer: Tokenizer) -> None:
    if name == "bert":
        bert = build(dataclasses.replace(BERTS[name], vocabulary=tokenizer.size))
        found = trace(bert, [tokenizer.encode(TEXTS[0])], [], Tokenizers(tokenizer, tokenizer), hidden=True)[0]
    else:
        found = Made(name, tokenizer).traces(hidden=True)[0]
    for states in (*found.hidden.values(), *found.attention.values(), found.log_probabilities):
        probe = nn.Linear(states.shape[-1], 1)
        probe(states).sum().backward()
        assert probe.weight.grad is not None


@all_families
def test_both_kinds_of_files_have_the_whole_trace(name: str, tmp_path: Path, tokenizer: Tokenizer) -> None:
    made = Made(name, tokenizer, beams=2)
    found = made.traces(hidden=True, trees=made.trees)[0]
    for suffix in (".json", ".safetensors"):
        found.save(tmp_path / f"a{suffix}")
    values = json.loads((tmp_path / "a.json").read_text())
    assert values == json.loads(json.dumps(found.as_json()))
    with safe_open(tmp_path / "a.safetensors", framework="pt") as file:
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - it is no dict
        facts = json.loads(file.metadata()["trace"])
    assert {**facts, **{key: values[key] for key in tensors}} == values
    for key, tensor in tensors.items():
        torch.testing.assert_close(torch.tensor(values[key]["values"]).reshape(values[key]["shape"]), tensor)


@pytest.mark.parametrize("name", BERTS)
def test_a_bert_has_encoder_attention_and_predictions(name: str, tokenizer: Tokenizer) -> None:
    model = build(dataclasses.replace(BERTS[name], vocabulary=tokenizer.size)).eval()
    assert isinstance(model, BERT)
    ids = [START, *tokenizer.encode("the old"), MASK, END]
    found, _ = trace(model, [ids, ids[:3]], [], Tokenizers(tokenizer, tokenizer), hidden=True)
    assert set(found.attention) == {"encoder"}
    assert found.attention["encoder"].shape == (2, 4, len(ids), len(ids))
    assert len(found.alternatives) == (0 if model.head is None else len(ids))


def test_the_tree_has_subwords(tokenizer: Tokenizer) -> None:
    made = Made("transformer", tokenizer, beams=2)
    found = made.traces(trees=made.trees)[0]
    allowed = [[branch for branch in step if math.isfinite(branch.log_probability)] for step in made.trees[0]]
    assert [[(branch.id, branch.kept) for branch in step] for step in found.tree] == [
        [(branch.token, branch.kept) for branch in step] for step in allowed
    ]
    assert all(branch.subword for step in found.tree for branch in step)
    json.dumps(found.as_json(), allow_nan=False)  # what rules forbade is no number that JSON knows


def test_the_chosen_hypothesis_is_a_path_of_the_tree(tokenizer: Tokenizer) -> None:
    made = Made("transformer", tokenizer, beams=3)
    for found in made.traces(trees=made.trees):
        here = {-1}
        for number, step in zip(found.target.ids, found.tree, strict=False):
            here = {place for place, b in enumerate(step) if b.id == number and b.parent in here and b.kept}
            assert here


# Words.


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece", "words", "characters"])
def test_every_word_of_the_text_is_a_word_of_the_trace(kind: Any) -> None:
    text = "the old  cat sat."
    tokenizer = train([text, *map(chr, range(97, 123))] * 5, kind=kind, vocabulary=500)
    found = make_side(tokenizer, [*tokenizer.encode(text), END], text)
    assert found.words == ["the", "old", "cat", "sat.", "</s>"]
    assert found.special == [False] * 4 + [True]
    assert sorted(set(found.word)) == [0, 1, 2, 3, 4]
    assert "".join(found.subwords[:-1]) == text


def test_tokens_of_half_characters_belong_to_their_word() -> None:
    tokenizer = train(["a"], kind="bpe", vocabulary=0)  # bytes alone
    ids = tokenizer.encode("né 日本")
    found = make_side(tokenizer, ids)
    assert found.words == ["né", "日本"]
    assert found.word == [0] * 3 + [1] * 7
    assert "".join(found.subwords) == "né 日本"


def test_in_a_script_without_spaces_every_token_is_a_word() -> None:
    tokenizer = train(["日本語"] * 3, kind="characters", vocabulary=300)
    assert make_side(tokenizer, tokenizer.encode("日本語")).words == ["日", "本", "語"]


def test_a_tag_before_a_script_without_spaces_is_one_word_more() -> None:
    tokenizer = train(["日本語"] * 3, kind="characters", vocabulary=300, tags=["<2en>"])
    assert make_side(tokenizer, tokenizer.encode("<2en> 日本語")).words == ["<2en>", "日", "本", "語"]


def test_an_empty_target_is_its_end_token(tokenizer: Tokenizer) -> None:
    assert make_side(tokenizer, [END]).words == ["</s>"]
    assert make_side(tokenizer, []).words == []


def test_attention_by_word_is_summed_over_columns_and_averaged_over_rows(tokenizer: Tokenizer) -> None:
    words = train(["b a"] * 3, kind="bpe", vocabulary=300)  # knows " a", and z and q as letters
    found = dataclasses.replace(
        Made("transformer", tokenizer).traces()[0],
        source=make_side(words, words.encode("zq a")),
        target=make_side(words, [*words.encode("zq"), END]),
        attention={"cross": torch.tensor([[[[0.5, 0.3, 0.2], [0.1, 0.1, 0.8], [0.0, 0.0, 1.0]]]])},
    )
    assert found.source.word == [0, 0, 1]
    torch.testing.assert_close(found.by_word("cross")[0, 0], torch.tensor([[0.5, 0.5], [0.0, 1.0]]))


def test_an_attention_that_is_not_there_is_named(tokenizer: Tokenizer) -> None:
    found = Made("gpt", tokenizer).traces()[0]
    with pytest.raises(InputError, match="this trace of a gpt has no attention 'cross': it has decoder"):
        found.by_word("cross")


# Files.


def test_a_file_is_not_overwritten_without_force(tmp_path: Path, tokenizer: Tokenizer) -> None:
    found = Made("transformer", tokenizer).traces()[0]
    found.save(tmp_path / "a.json")
    with pytest.raises(FolderError, match="already exists"):
        found.save(tmp_path / "a.json")


def test_the_same_trace_gives_the_same_bytes(tmp_path: Path, tokenizer: Tokenizer) -> None:
    found = Made("transformer", tokenizer).traces()[0]
    for name in ("a.safetensors", "b.safetensors"):
        found.save(tmp_path / name)
    assert (tmp_path / "b.safetensors").read_bytes() == (tmp_path / "a.safetensors").read_bytes()


def test_another_suffix_is_refused(tmp_path: Path, tokenizer: Tokenizer) -> None:
    with pytest.raises(InputError, match=r"must end in \.safetensors or \.json"):
        Made("transformer", tokenizer).traces()[0].save(tmp_path / "a.html")


@pytest.mark.parametrize(
    ("subwords", "words"),
    [([" ", "river", "."], ["river", "."]), ([" (", "a", " "], ["(", "a"]), (["l", "'", "eau"], ["l'eau"])],
)
def test_punctuation_around_a_word_is_a_word_of_its_own_and_a_space_is_none(
    subwords: list[str], words: list[str]
) -> None:
    text = "".join(subwords).strip()
    side = Side(text, [5, 6, 7], subwords, [text], [0, 0, 0], [False])
    assert split_punctuation(side).words == words
