"""Each method finds what a model of known structure writes its words from, and is the formula it is named after."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.decoding import Hypothesis
from regard.errors import ConfigError, InputError
from regard.inspection import attribution
from regard.inspection.trace import Trace, sum_by_word, trace
from regard.models import State, build
from regard.text.tokenizer import END, MASK, START, Tokenizer, Tokenizers, train
from tests.decoding.small import shaken
from tests.inspection.traces import side
from tests.models.families import BERTS, GENERATORS

TEXT = "the old cat sat on the mat"
NAMES = ["transformer", "transformer-grouped", "rnn-additive-input-gru", "rnn-dot-output-lstm", "rnn-none-input-gru",
         "gpt", "gpt-llama", "bert", "bert-pre"]  # fmt: skip


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train([TEXT] * 3, kind="words", vocabulary=50)


def seen(name: str, tokenizer: Tokenizer, written: str = "cat mat sat") -> tuple[Any, Trace]:
    """A model away from where much is zero, and its trace of TEXT and of what it is told to write."""
    config = dataclasses.replace((GENERATORS | BERTS)[name], vocabulary=tokenizer.size, target_vocabulary=0)
    model = shaken(build(config), 0.1).float()
    source = tokenizer.encode(TEXT)
    if config.family == "bert":
        return model, trace(model, [[*source, END]], [], Tokenizers(tokenizer, tokenizer))[0]
    source = [START, *source] if config.family == "gpt" else [*source, END]
    told = Hypothesis(tokenizer.encode(written), 0.0, 0.0, True, [])
    return model, trace(model, [source], [told], Tokenizers(tokenizer, tokenizer))[0]


class Bag(nn.Module):
    """A token is written as probably as it is often in the source, wherever it stands."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.config = dataclasses.replace(GENERATORS["rnn-none-input-gru"], vocabulary=vocabulary)
        self.source = nn.Embedding.from_pretrained(4 * torch.eye(vocabulary))

    def start(self, source: Tensor, mask: Tensor | None = None, record: Any = None, capacity: int = 0) -> State:
        read = self.source(source)
        return State(read.sum(1) if mask is None else (read * mask[..., None]).sum(1), ())

    def step(self, tokens: Tensor, state: State, record: Any = None) -> tuple[Tensor, State]:
        return state.memory[:, None].expand(-1, tokens.shape[1], -1), state


@pytest.mark.parametrize("method", ["gradient", "ablation"])
def test_every_method_attributes_a_copied_word_to_its_source(method: str, tokenizer: Tokenizer) -> None:
    model = Bag(tokenizer.size)
    source, written = [*tokenizer.encode("old cat sat mat"), END], tokenizer.encode("mat cat old")
    told = Hypothesis(written, 0.0, 0.0, True, [])
    found = attribution.explain(trace(model, [source], [told], Tokenizers(tokenizer, tokenizer))[0], method, model)
    assert found.picture()[1].argmax(1).tolist() == [3, 1, 0, 4]


@pytest.mark.parametrize("method", ["attention", "rollout", "value", "gradient", "ablation"])
def test_a_linear_probe_trains_on_a_map(method: str, tokenizer: Tokenizer) -> None:
    model, found = seen("gpt", tokenizer)
    values = attribution.explain(found, method, model).values
    probe = nn.Linear(values.shape[-1], 1)
    probe(values).sum().backward()
    assert probe.weight.grad is not None


@pytest.mark.parametrize("name", [name for name in NAMES if name != "gpt-llama"])
def test_integrated_gradients_add_up_to_the_change_of_the_log_probability(
    name: str, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attribution, "POINTS", 64)  # a norm bends sharply where embeddings are nearly nothing
    model, found = seen(name, tokenizer)
    target = attribution._explained_tokens(found)
    with torch.no_grad():
        whole = attribution.log_probabilities(model, [found.source.ids], target, START)[0]
        with attribution.scaled_embeddings(model, 0.0):
            nothing = attribution.log_probabilities(model, [found.source.ids], target, START)[0]
    given = attribution.explain(found, "gradient", model).values[0, 0].sum(1)
    torch.testing.assert_close(given, whole - nothing, atol=0.02, rtol=0.01)


@pytest.mark.parametrize("name", NAMES)
def test_the_model_is_unchanged_afterwards(name: str, tokenizer: Tokenizer) -> None:
    model, found = seen(name, tokenizer)
    attribution.explain_all(found, model)
    assert not any(module._forward_hooks for module in model.modules())


def test_ablation_is_the_loss_of_log_probability_without_the_word(tokenizer: Tokenizer) -> None:
    model, found = seen("transformer", tokenizer)
    without = [number for place, number in enumerate(found.source.ids) if place != 2]
    with torch.no_grad():
        logs = attribution.log_probabilities(model, [without], found.target.ids, START)[0]
    lost = attribution.explain(found, "ablation", model).values[0, 0, :, 2]
    torch.testing.assert_close(lost, found.log_probabilities - logs, atol=1e-5, rtol=1e-4)


def test_ablation_in_a_gpt_changes_only_later_words(tokenizer: Tokenizer) -> None:
    model, found = seen("gpt", tokenizer)
    lost = attribution.explain(found, "ablation", model).values[0, 0]
    begin = len(found.source.words)
    later = torch.ones(lost.shape).tril(begin - 1).bool()
    assert (lost[~later] == 0).all()
    assert (lost[later] != 0).all()


def test_a_masked_word_of_a_bert_is_explained_by_its_best_prediction(tokenizer: Tokenizer) -> None:
    model, _ = seen("bert", tokenizer)
    ids = [*tokenizer.encode(" old"), MASK, END] if "Ġold" in tokenizer.text else [5, MASK, END]
    found = trace(model, [ids], [], Tokenizers(tokenizer, tokenizer))[0]
    assert attribution._explained_tokens(found)[1] == found.alternatives[1][0].id


@pytest.mark.parametrize(
    ("name", "kind"), [("transformer", "cross"), ("transformer", "encoder"), ("bert", "encoder"), ("gpt", "decoder")]
)
def test_rollout_gives_shares_that_sum_to_one(name: str, kind: str, tokenizer: Tokenizer) -> None:
    model, found = seen(name, tokenizer)
    rows = attribution.explain(found, "rollout", model, kind).values[0, 0]
    assert (rows >= 0).all()
    torch.testing.assert_close(rows.sum(-1), torch.ones(len(rows)))


def test_rollout_halves_every_layer_with_its_residual() -> None:
    one, two = torch.tensor([[0.2, 0.8], [0.6, 0.4]]), torch.tensor([[1.0, 0.0], [0.5, 0.5]])
    half = torch.eye(2) / 2
    expected = (two / 2 + half) @ (one / 2 + half)
    torch.testing.assert_close(attribution.rollout_self(torch.stack([one, two])), expected)


def test_cross_rollout_follows_the_encoder_and_leaves_out_the_written_words() -> None:
    encoder, decoder = torch.eye(2)[None], torch.eye(2)[None]
    cross = torch.tensor([[[0.9, 0.1], [0.3, 0.7]]])
    torch.testing.assert_close(attribution.rollout_cross(encoder, decoder, cross), cross[0])


@pytest.mark.parametrize("name", ["transformer", "transformer-grouped"])
def test_value_is_the_norm_of_the_projected_values(name: str, tokenizer: Tokenizer) -> None:
    model, found = seen(name, tokenizer)
    record: dict[str, Tensor] = {}
    with torch.no_grad():
        state = model.start(torch.tensor([found.source.ids]), None, record)
        memory = state.memory.memories[1].value[0]  # (G, S, D)
    layer = model.decoder.blocks[1].cross
    sizes = torch.empty(4, 4, 8)
    vectors = torch.zeros(4, 8, 16)
    for head in range(4):
        matrix = layer.out_proj.weight[:, 4 * head : 4 * head + 4]
        for row in range(4):
            for column in range(8):
                weight = found.attention["cross"][1, head, row, column]
                brought = weight * (matrix @ memory[head * layer.key_value_heads // 4, column])
                sizes[head, row, column] = brought.norm()
                vectors[row, column] += brought
    shown = attribution.explain(found, "value", model)
    torch.testing.assert_close(shown.values[1], sizes)
    torch.testing.assert_close(shown.joined[1], vectors.norm(dim=-1))


def test_value_of_an_rnn_is_the_weight_times_the_norm_of_the_state(tokenizer: Tokenizer) -> None:
    model, found = seen("rnn-additive-input-gru", tokenizer)
    record: dict[str, Tensor] = {}
    with torch.no_grad():
        model.start(torch.tensor([found.source.ids]), None, record)
    expected = found.attention["cross"][0, 0] * record["encoder.output"][0].norm(dim=-1)
    torch.testing.assert_close(attribution.explain(found, "value", model).values[0, 0], expected)


def test_subwords_are_summed_into_words() -> None:
    rows, columns = side("a b", 2), side("c")
    tokens = torch.arange(10.0).reshape(5, 2)
    summed = sum_by_word(sum_by_word(tokens.mT, columns).mT, rows)
    assert summed.tolist() == [[2.0, 4.0], [10.0, 12.0], [8.0, 9.0]]


def test_a_layer_and_a_head_are_chosen_by_number(tokenizer: Tokenizer) -> None:
    _, found = seen("transformer", tokenizer)
    where, values = attribution.explain(found, "attention").picture(0, 3)
    assert where == "layer 0, head 3"
    assert torch.equal(values, found.by_word("cross")[0, 3])


@pytest.mark.parametrize(
    ("method", "kind", "layer", "message"),
    [
        ("attention", None, 9, "no cross layer 9: they count from 0 to 1"),
        ("gradient", None, 1, "gradient has no layers and heads"),
        ("gradient", "encoder", None, "for a transformer the kind is cross"),
        ("rollout", "decoder", None, "rollout has the kinds encoder and cross"),
        ("value", None, None, "value needs the model"),
    ],
)
def test_a_map_that_does_not_exist_is_refused_with_a_reason(
    method: str, kind: str | None, layer: int | None, message: str, tokenizer: Tokenizer
) -> None:
    model, found = seen("transformer", tokenizer)
    with pytest.raises(InputError, match=message):
        attribution.explain(found, method, None if method == "value" else model, kind).picture(layer)


def test_an_rnn_without_attention_has_gradient_and_ablation(tokenizer: Tokenizer) -> None:
    model, found = seen("rnn-none-input-gru", tokenizer)
    with pytest.raises(InputError, match="has no attention to show: use --method gradient"):
        attribution.explain(found, "attention", model)
    assert [shown.method for shown in attribution.explain_all(found, model)] == ["gradient", "ablation"]


def test_an_unknown_method_is_corrected(tokenizer: Tokenizer) -> None:
    with pytest.raises(ConfigError, match="Did you mean gradient"):
        attribution.check_method("gradients", None)
