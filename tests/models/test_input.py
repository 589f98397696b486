"""Bad input to a model gets one clear line naming what is wrong and what would be right."""

from __future__ import annotations

import pytest
import torch

from regard import Config, ConfigError, InputError
from regard.models import build
from tests.models.families import BERTS, GENERATORS

GOOD = torch.randint(0, 40, (2, 5))
READERS = ["transformer", "gpt", "rnn-additive-input-gru"]


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(
    ("source", "message"),
    [
        (GOOD.float(), "source is float32; it must hold token ids as int64 or int32"),
        (GOOD[0], r"source has shape \(5,\); it must be \(batch, tokens\)"),
        (GOOD + 50, "source holds the token id [0-9]+; the vocabulary has ids 0 to 49"),
        (GOOD - 50, "source holds the token id -[0-9]+; the vocabulary has ids 0 to 49"),
    ],
)
def test_a_source_without_valid_token_ids_is_refused(name: str, source: torch.Tensor, message: str) -> None:
    with pytest.raises(InputError, match=message):
        build(GENERATORS[name]).start(source)


@pytest.mark.parametrize("name", READERS)
def test_a_target_without_valid_token_ids_is_refused(name: str) -> None:
    model = build(GENERATORS[name])
    with pytest.raises(InputError, match="target is float32; it must hold token ids"):
        model.step(GOOD.float(), model.start(GOOD))


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (torch.ones(2, 5), "the mask of source is float32; it must be bool, True for real tokens"),
        (torch.ones(2, 4, dtype=torch.bool), r"the mask of source has shape \(2, 4\) and the tokens \(2, 5\)"),
    ],
)
def test_a_mask_of_another_kind_or_shape_is_refused(name: str, mask: torch.Tensor, message: str) -> None:
    with pytest.raises(InputError, match=message):
        build(GENERATORS[name]).start(GOOD, mask)


@pytest.mark.parametrize("name", ["transformer", "rnn-additive-input-gru"])
def test_an_empty_source_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="source has no tokens"):
        build(GENERATORS[name]).start(GOOD[:, :0])


def test_a_source_longer_than_the_position_table_is_refused() -> None:
    long = torch.zeros(1, 33, dtype=torch.int64)
    for model in (build(GENERATORS["transformer-learned"]).start, build(BERTS["bert"]).encode):
        with pytest.raises(InputError, match=r"source has 33 tokens and model.max_positions is 32: give at most 32"):
            model(long)


def test_a_target_that_grows_longer_than_the_position_table_is_refused() -> None:
    model = build(GENERATORS["gpt"])
    _, state = model.step(torch.zeros(1, 32, dtype=torch.int64), model.start(GOOD[:1, :0]))
    with pytest.raises(InputError, match=r"text has 33 tokens and model.max_positions is 32"):
        model.step(GOOD[:1, :1], state)


def test_sinusoidal_positions_have_no_limit() -> None:
    build(GENERATORS["transformer"]).start(torch.zeros(1, 600, dtype=torch.int64))


def test_a_bert_without_a_head_says_how_to_get_one() -> None:
    bert = build(BERTS["bert-bare"])
    with pytest.raises(ConfigError, match=r"no masked-token head: build it with model.mlm_head=true"):
        bert.logits(bert.encode(GOOD))
    with pytest.raises(ConfigError, match=r"no pooler: build it with model.pooler=true"):
        bert.pool(bert.encode(GOOD))


@pytest.mark.parametrize("name", READERS)
def test_padding_before_the_text_is_refused(name: str) -> None:
    mask = torch.tensor([[True] * 5, [False, True, True, True, True]])
    with pytest.raises(InputError, match="hides tokens before real ones; padding must stand at the end of a row"):
        build(GENERATORS[name]).start(GOOD, mask)


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("rows", [1, 3, 4])
def test_a_step_with_another_number_of_rows_than_the_state_is_refused(name: str, rows: int) -> None:
    model = build(GENERATORS[name])
    with pytest.raises(InputError, match=f"there are {rows} rows of tokens and 2 hypotheses in the state: `reorder`"):
        model.step(torch.zeros(rows, 1, dtype=torch.int64), model.start(GOOD))


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("capacity", [-1, 1.5])
def test_a_capacity_that_is_not_a_number_of_tokens_is_refused(name: str, capacity: float) -> None:
    with pytest.raises(InputError, match="must be a whole number of tokens, or 0"):
        build(GENERATORS[name]).start(GOOD, capacity=capacity)


@pytest.mark.parametrize("name", ["transformer", "gpt"])
def test_more_tokens_than_the_capacity_are_refused(name: str) -> None:
    model = build(GENERATORS[name])
    state = model.start(GOOD[:, :0] if name == "gpt" else GOOD, capacity=3)
    with torch.no_grad(), pytest.raises(InputError, match="the text has 4 tokens and the cache has a capacity of 3"):
        model.step(GOOD[:, :4], state)


@pytest.mark.parametrize("name", GENERATORS)
def test_empty_batches_give_empty_logits(name: str) -> None:
    model = build(GENERATORS[name]).eval()
    logits, _ = model.step(GOOD[:0, :2], model.start(GOOD[:0]))
    assert logits.shape == (0, 2, GENERATORS[name].target_vocabulary_size)


def test_unknown_token_types_are_refused() -> None:
    bert = build(BERTS["bert"])
    with pytest.raises(InputError, match="types holds 2; this bert has types 0 to 1"):
        bert.encode(GOOD, torch.full_like(GOOD, 2))
    with pytest.raises(InputError, match=r"types must be whole numbers of the shape of the tokens, \(2, 5\)"):
        bert.encode(GOOD, GOOD[:, :3])


def test_build_refuses_other_types() -> None:
    with pytest.raises(ConfigError, match=r"build takes a ModelConfig, such as preset\('gpt2'\).model, not a Config"):
        build(Config())
