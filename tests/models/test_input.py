"""Bad input to a model gets one clear line naming what is wrong and what would be right."""

from __future__ import annotations

import pytest
import torch

from regard import ConfigError, InputError
from regard.models import build
from tests.models.families import BERTS, GENERATORS

GOOD = torch.randint(0, 40, (2, 5))
READERS = ["transformer", "gpt", "rnn-additive-input-gru"]


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("source", [GOOD.float(), GOOD[0], GOOD + 50, GOOD - 50])
def test_a_source_without_valid_token_ids_is_refused(name: str, source: torch.Tensor) -> None:
    with pytest.raises(InputError, match=r"source is .*; it must be \(batch, tokens\) of token ids as int64, 0 to 49"):
        build(GENERATORS[name]).start(source)


@pytest.mark.parametrize("name", READERS)
def test_a_target_without_valid_token_ids_is_refused(name: str) -> None:
    model = build(GENERATORS[name])
    with pytest.raises(InputError, match=r"target is float32 of shape \(2, 5\); it must be"):
        model.step(GOOD.float(), model.start(GOOD))


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(
    "mask",
    [
        torch.ones(2, 5),
        torch.ones(2, 4, dtype=torch.bool),
        torch.tensor([[True] * 5, [False, True, True, True, True]]),  # padding before the text
    ],
)
def test_a_mask_of_another_kind_or_shape_or_order_is_refused(name: str, mask: torch.Tensor) -> None:
    message = r"the mask of source must be bool of shape \(2, 5\), True for tokens and False for padding at the end"
    with pytest.raises(InputError, match=message):
        build(GENERATORS[name]).start(GOOD, mask)


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
