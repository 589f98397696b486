"""What every generating family promises, checked over all of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from regard.config import ModelConfig
from regard.models import State, build, tree_map
from regard.text.batching import Batch
from tests.models.families import BERTS, GENERATORS, GPTS, TRANSFORMERS, reorder

CLOSE = {"rtol": 1e-5, "atol": 1e-5}
LENGTHS = (7, 4, 1)
SOURCE_MASK = torch.arange(7) < torch.tensor(LENGTHS)[:, None]

all_generators = pytest.mark.parametrize("name", GENERATORS)
both_capacities = pytest.mark.parametrize("capacity", [0, 16])


def made(name: str) -> tuple[nn.Module, Tensor, Tensor]:
    config = GENERATORS[name]
    model = build(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # away from the start, where much is zero
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model, torch.randint(0, config.vocabulary, (3, 7)), torch.randint(0, config.target_vocabulary_size, (3, 6))


def written(model: nn.Module, target: Tensor, state: State, widths: tuple[int, ...]) -> Tensor:
    logits = []
    for part in target.split(widths, dim=1):
        step, state = model.step(part, state)
        logits.append(step)
    return torch.cat(logits, dim=1)


@both_capacities
@pytest.mark.parametrize("widths", [(1,) * 6, (2, 3, 1), (1, 5)])
@all_generators
def test_one_long_step_equals_many_short_ones(name: str, widths: tuple[int, ...], capacity: int) -> None:
    model, source, target = made(name)
    whole, _ = model.step(target, model.start(source, SOURCE_MASK))
    in_parts = written(model, target, model.start(source, SOURCE_MASK, capacity=capacity), widths)
    torch.testing.assert_close(in_parts, whole, **CLOSE)


@all_generators
def test_a_sentence_alone_equals_the_same_sentence_in_a_padded_batch(name: str) -> None:
    model, source, target = made(name)
    together, _ = model.step(target, model.start(source, SOURCE_MASK))
    for row, length in enumerate(LENGTHS):
        alone, _ = model.step(target[row : row + 1], model.start(source[row : row + 1, :length]))
        torch.testing.assert_close(alone[0], together[row], **CLOSE)


@pytest.mark.parametrize("lengths", [(LENGTHS, (2, 6, 3)), ((1,), (1,))], ids=["sentences", "one token"])
@pytest.mark.parametrize("name", TRANSFORMERS)
def test_packed_sentences_have_the_logits_of_each_sentence_alone(
    name: str, lengths: tuple[tuple[int, ...], tuple[int, ...]]
) -> None:
    model, source, target = made(name)
    rows, target_rows = (
        [row[:length] for row, length in zip(side, side_lengths, strict=False)]
        for side, side_lengths in zip((source, target), lengths, strict=True)
    )
    starts = [torch.tensor([[0, *np.cumsum(side_lengths)]]).int() for side_lengths in lengths]
    batch = Batch(
        source=torch.cat(rows)[None],
        mask=None,
        target_in=torch.cat(target_rows)[None],
        target_out=torch.cat(target_rows)[None],
        segments=None,
        target_tokens=sum(lengths[1]),
        examples=np.arange(len(rows)),
        source_starts=starts[0],
        target_starts=starts[1],
    )
    alone = [
        model.step(target_row[None], model.start(row[None]))[0]
        for row, target_row in zip(rows, target_rows, strict=True)
    ]
    torch.testing.assert_close(model(batch), torch.cat(alone, dim=1), **CLOSE)


@both_capacities
@all_generators
def test_a_sentence_alone_decodes_as_in_a_padded_batch(name: str, capacity: int) -> None:
    model, source, target = made(name)
    together = written(model, target, model.start(source, SOURCE_MASK, capacity=capacity), (1,) * 6)
    for row, length in enumerate(LENGTHS):
        state = model.start(source[row : row + 1, :length], capacity=capacity)
        alone = written(model, target[row : row + 1], state, (1,) * 6)
        torch.testing.assert_close(alone[0], together[row], **CLOSE)


@all_generators
def test_the_token_ids_of_padding_do_not_matter(name: str) -> None:
    model, source, target = made(name)
    expected, _ = model.step(target, model.start(source, SOURCE_MASK))
    other = source.masked_fill(~SOURCE_MASK, 3)
    torch.testing.assert_close(model.step(target, model.start(other, SOURCE_MASK))[0], expected, rtol=0, atol=0)


@all_generators
def test_a_mask_that_hides_nothing_changes_nothing(name: str) -> None:
    model, source, target = made(name)
    expected, _ = model.step(target, model.start(source))
    masked, _ = model.step(target, model.start(source, torch.ones_like(source, dtype=torch.bool)))
    torch.testing.assert_close(masked, expected, **CLOSE)


@all_generators
def test_changing_a_later_token_changes_no_earlier_logit(name: str) -> None:
    model, source, target = made(name)
    before, _ = model.step(target, model.start(source))
    changed = target.clone()
    changed[:, 4] = (changed[:, 4] + 1) % GENERATORS[name].target_vocabulary_size
    after, _ = model.step(changed, model.start(source))
    torch.testing.assert_close(after[:, :4], before[:, :4], rtol=0, atol=0)
    assert not torch.allclose(after[:, 4], before[:, 4])


@both_capacities
@all_generators
def test_reordering_the_past_reorders_the_hypotheses(name: str, capacity: int) -> None:
    model, source, target = made(name)
    rows = torch.tensor([0, 0, 1, 1, 2, 2])  # two hypotheses a sentence
    state = reorder(model.start(source, SOURCE_MASK, capacity=capacity), rows)
    memory = state.memory
    first = torch.cat([target[:, :3], target[:, 3:]], dim=1).reshape(6, 3)  # different beginnings
    _, state = model.step(first, state)
    swap = torch.tensor([1, 1, 3, 2, 4, 4])  # the beam keeps, drops and doubles within a sentence
    state = reorder(state, swap)
    assert state.memory is memory
    logits, _ = model.step(target[rows, :1], state)
    for row, (sentence, history) in enumerate(zip(rows, swap, strict=True)):
        alone = model.start(source[sentence : sentence + 1, : LENGTHS[sentence]])
        _, alone = model.step(first[history : history + 1], alone)
        expected, _ = model.step(target[sentence : sentence + 1, :1], alone)
        torch.testing.assert_close(logits[row], expected[0], **CLOSE)


@all_generators
def test_every_tensor_of_the_past_has_one_row_per_hypothesis(name: str) -> None:
    model, source, target = made(name)
    _, state = model.step(target[:, :2], model.start(source, SOURCE_MASK))
    sizes: list[int] = []
    tree_map(lambda x: (sizes.append(len(x)), x)[1], state.past)
    assert sizes
    assert set(sizes) == {3}


@all_generators
def test_without_capacity_an_older_state_can_be_used_again(name: str) -> None:
    model, source, target = made(name)
    _, state = model.step(target[:, :2], model.start(source, SOURCE_MASK))
    first, _ = model.step(target[:, 2:4], state)
    model.step(target[:, 4:6], state)
    torch.testing.assert_close(model.step(target[:, 2:4], state)[0], first, rtol=0, atol=0)


@all_generators
def test_eval_is_deterministic_and_training_is_not(name: str) -> None:
    model, source, target = made(name)
    assert torch.equal(model.step(target, model.start(source))[0], model.step(target, model.start(source))[0])
    model.train()
    assert not torch.equal(model.step(target, model.start(source))[0], model.step(target, model.start(source))[0])


@all_generators
def test_every_parameter_gets_a_gradient(name: str) -> None:
    model, source, target = made(name)
    logits, _ = model.step(target, model.start(source, SOURCE_MASK if "gpt" not in name else None))
    logits.square().sum().backward()
    assert [n for n, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0] == []


def names(config: ModelConfig) -> set[str]:
    """The stable names of what a model did."""
    decoder = {f"decoder.{i}.hidden" for i in range(config.decoder_layers)} | {"decoder.embedding", "decoder.output"}
    encoder = {f"encoder.{i}.hidden" for i in range(config.encoder_layers)} | {"encoder.embedding", "encoder.output"}
    if config.family == "rnn":
        return encoder | decoder | (set() if config.score == "none" else {"decoder.0.cross"})
    decoder |= {f"decoder.{i}.self" for i in range(config.decoder_layers)}
    if config.family == "gpt":
        return decoder
    encoder |= {f"encoder.{i}.self" for i in range(config.encoder_layers)}
    return encoder | decoder | {f"decoder.{i}.cross" for i in range(config.decoder_layers)}


@all_generators
def test_a_record_holds_every_attention_and_hidden_state_and_changes_no_logit(name: str) -> None:
    model, source, target = made(name)
    config = GENERATORS[name]
    if config.family == "gpt":
        source = source[:, :0]
    record: dict[str, Tensor] = {}
    mask = SOURCE_MASK if source.shape[1] else None
    logits, _ = model.step(target, model.start(source, mask, record), record)
    torch.testing.assert_close(logits, model.step(target, model.start(source, mask))[0], **CLOSE)
    assert set(record) == names(config)
    for key, value in record.items():
        length = 7 if key.startswith("encoder") else 6
        if key.endswith((".self", ".cross")):
            heads = 1 if config.family == "rnn" else config.heads
            assert value.shape == (3, heads, length, 7 if key.endswith("cross") else length)
            torch.testing.assert_close(value.sum(-1), torch.ones(3, heads, length))
        else:
            assert value.shape[:2] == (3, length)


@pytest.mark.parametrize("name", [name for name in GENERATORS if "gpt" not in name and "none" not in name])
def test_the_attention_of_two_hypotheses_is_that_of_each_alone(name: str) -> None:
    model, source, target = made(name)
    state = reorder(model.start(source, SOURCE_MASK), torch.tensor([0, 0, 1, 1, 2, 2]))
    together: dict[str, Tensor] = {}
    model.step(target.reshape(6, 3), state, together)
    alone: dict[str, Tensor] = {}
    model.step(target.reshape(6, 3)[1::2], model.start(source, SOURCE_MASK), alone)
    torch.testing.assert_close(together["decoder.0.cross"][1::2], alone["decoder.0.cross"], **CLOSE)


@pytest.mark.parametrize("name", GPTS)
def test_prompts_of_different_lengths_continue_as_if_alone(name: str) -> None:
    model, source, target = made(name)
    for capacity in (0, 16):
        state = model.start(source, SOURCE_MASK, capacity=capacity)
        together = written(model, target, state, (2, 1, 3))
        for row, length in enumerate(LENGTHS):
            text = torch.cat([source[row, :length], target[row]])[None]
            expected, _ = model.step(text, model.start(text[:, :0]))
            torch.testing.assert_close(together[row], expected[0, length:], **CLOSE)


@pytest.mark.parametrize("name", BERTS)
def test_a_sentence_alone_encodes_as_in_a_padded_batch(name: str) -> None:
    model = build(BERTS[name]).eval()
    source = torch.randint(0, 50, (3, 7))
    together = model.encode(source, mask=SOURCE_MASK)
    for row, length in enumerate(LENGTHS):
        alone = model.encode(source[row : row + 1, :length])
        torch.testing.assert_close(alone[0], together[row, :length], **CLOSE)


@pytest.mark.parametrize("name", BERTS)
def test_a_bert_records_every_attention_and_hidden_state(name: str) -> None:
    model = build(BERTS[name]).eval()
    record: dict[str, Tensor] = {}
    model.encode(torch.randint(0, 50, (3, 7)), record=record)
    layers = {f"encoder.{i}.{kind}" for i in range(2) for kind in ("self", "hidden")}
    assert set(record) == layers | {"encoder.embedding", "encoder.output"}


@pytest.mark.parametrize("record", [False, True])
@all_generators
def test_a_training_pass_and_decoding_work_under_bf16_autocast(name: str, record: bool) -> None:
    model, source, target = made(name)
    kept: dict[str, Tensor] | None = {} if record else None
    with torch.autocast("cpu", torch.bfloat16):
        logits, state = model.step(target, model.start(source, SOURCE_MASK, kept), kept)
        model.step(target[:, :1], state, kept)
    logits.float().square().sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    exact, _ = model.float().step(target, model.start(source, SOURCE_MASK))
    torch.testing.assert_close(logits.float(), exact, rtol=0.2, atol=0.3)


def packed_batch(tokens: Tensor, segments: Tensor) -> Batch:
    return Batch(tokens, 0, np.zeros(0, np.int64), source=tokens, target_in=tokens, segments=segments)


@pytest.mark.parametrize("name", GPTS)
def test_packed_texts_of_a_gpt_do_not_see_each_other(name: str) -> None:
    model, source, _ = made(name)
    segments = torch.tensor([[1, 1, 1, 2, 2, 2, 2]]).expand(3, -1)
    before = model(packed_batch(source, segments))
    changed = source.clone()
    changed[:, 0] = (changed[:, 0] + 1) % 50
    after = model(packed_batch(changed, segments))
    torch.testing.assert_close(after[:, 3:], before[:, 3:], rtol=0, atol=0)
    assert not torch.allclose(after[:, :3], before[:, :3])


def test_packed_texts_of_a_bert_do_not_see_each_other() -> None:
    model = build(BERTS["bert"]).eval()
    source, segments = torch.randint(1, 50, (2, 7)), torch.tensor([[1, 1, 1, 2, 2, 2, 2]]).expand(2, -1)
    before = model.encode(source, segments=segments)
    changed = source.clone()
    changed[:, 0] = changed[:, 0] % 49 + 1
    torch.testing.assert_close(model.encode(changed, segments=segments)[:, 3:], before[:, 3:], rtol=0, atol=0)
