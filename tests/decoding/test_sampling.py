"""Sampling draws with the model's probabilities, and the same again for the same seed."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from regard.decoding import Constraints, greedy, sample
from regard.decoding.sampling import draw, restrict
from tests.decoding.small import END, FREE, NAMES, Batch

OPEN: dict[str, Any] = {
    "temperature": 1.0, "top_k": 0, "top_p": 1.0, "length_penalty": 1.0, "samples": 2, "seed": 1,
}  # fmt: skip
all_families = pytest.mark.parametrize("name", NAMES)


def test_samples_have_the_models_probabilities() -> None:
    batch = Batch("rnn-dot-output-gru", vocabulary=5, shake=0.3, lengths=(3,))
    drawn = sample(
        batch.model, *batch.data, constraints=batch.constraints(max_length=1, forbidden=()), **{**OPEN, "samples": 4000}
    )[0]
    source, first, _ = batch.rows(0)
    logits = batch.model.step(first[:, None], batch.model.start(source))[0][0, 0]
    expected = logits.softmax(-1) * 4000
    counts = torch.zeros(5, dtype=torch.float64)
    for hypothesis in drawn:
        counts[[*hypothesis.tokens, END][0]] += 1
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    assert chi_square < 18.5  # four degrees of freedom: one seed in a thousand lies above


@all_families
def test_the_same_seed_draws_the_same_and_another_does_not(name: str) -> None:
    batch = Batch(name)
    once, again, other = (
        sample(batch.model, *batch.data, constraints=batch.constraints(), **{**OPEN, "seed": seed})
        for seed in (1, 1, 2)
    )
    assert once == again
    assert [h.tokens for row in once for h in row] != [h.tokens for row in other for h in row]


@all_families
def test_a_sample_does_not_depend_on_the_batch(name: str) -> None:
    batch = Batch(name)
    together = sample(batch.model, *batch.data, constraints=batch.constraints(), **OPEN)
    order = [3, 1, 0, 2]
    mixed = sample(batch.model, *batch.rows(*order), constraints=batch.constraints(), **OPEN)
    for row, place in enumerate(order):
        constraints = Constraints(max_lengths=[6], **FREE)
        (alone,) = sample(batch.model, *batch.rows(place), constraints=constraints, **{**OPEN, "samples": 1})
        assert [h.tokens for h in mixed[row]] == [h.tokens for h in together[place]]
        assert alone[0].tokens == together[place][0].tokens


def test_a_sample_depends_on_the_sentence_not_its_place() -> None:
    batch = Batch("transformer", lengths=(4, 4, 4))
    for parameter in batch.model.parameters():  # so that only chance decides
        parameter.zero_()
    batch.source[2] = batch.source[0]
    one, other, same = sample(batch.model, *batch.data, constraints=batch.constraints(min_length=6), **OPEN)
    assert one == same
    assert one != other


def test_the_samples_of_a_sentence_differ() -> None:
    batch = Batch("transformer")
    for hypotheses in sample(
        batch.model, *batch.data, constraints=batch.constraints(min_length=6), **{**OPEN, "samples": 8}
    ):
        assert len({tuple(h.tokens) for h in hypotheses}) > 1


@pytest.mark.parametrize("cold", [{"temperature": 0.0}, {"temperature": 1e-6}, {"top_k": 1}, {"top_p": 0.0}])
@all_families
def test_without_freedom_sampling_is_greedy(name: str, cold: dict[str, Any]) -> None:
    batch = Batch(name)
    expected = [h.tokens for h in greedy(batch.model, *batch.data, constraints=batch.constraints(), length_penalty=1.0)]
    for hypotheses, tokens in zip(
        sample(batch.model, *batch.data, constraints=batch.constraints(), **OPEN | cold), expected, strict=True
    ):
        assert [h.tokens for h in hypotheses] == [tokens] * 2


@all_families
def test_a_samples_log_probability_is_the_models_whatever_the_temperature(name: str) -> None:
    batch = Batch(name)
    hot = {**OPEN, "temperature": 3.0, "top_k": 5}
    for row, hypotheses in enumerate(sample(batch.model, *batch.data, constraints=batch.constraints(), **hot)):
        for found in hypotheses:
            assert found.log_probability == pytest.approx(batch.log_probability(row, found.tokens), abs=1e-6)


@pytest.mark.parametrize(
    ("restriction", "left"),
    [
        ({}, [0, 1, 2, 3, 4]),
        ({"top_k": 2}, [1, 3]),
        ({"top_k": 9}, [0, 1, 2, 3, 4]),
        ({"top_p": 0.4}, [1]),
        ({"top_p": 0.41}, [1, 3]),
        ({"top_p": 0.85}, [0, 1, 3]),
        ({"top_k": 2, "top_p": 0.6}, [1, 3]),
        ({"top_k": 2, "top_p": 0.55}, [1]),
    ],
)
def test_restrictions_keep_exactly_these_tokens(restriction: dict[str, Any], left: list[int]) -> None:
    # The shares of a restriction are of what the one before it left.
    probabilities = torch.tensor([[0.2, 0.4, 0.04, 0.3, 0.06]], dtype=torch.float64)
    options = {"top_k": 0, "top_p": 1.0} | restriction
    restricted = restrict(probabilities.log() - 1e-9 * torch.arange(5), **options)
    assert restricted[0].isfinite().nonzero().flatten().tolist() == left


def test_impossible_tokens_are_never_drawn() -> None:
    scores = torch.tensor([[-torch.inf, 0.0, -torch.inf, 1.0, -torch.inf]]).expand(4, -1)
    chances = torch.tensor([0.0, 0.2, 0.9, 1 - 2**-53], dtype=torch.float64)
    assert draw(scores, chances).tolist() == [1, 1, 3, 3]


def test_an_empty_batch_gives_nothing() -> None:
    batch = Batch("transformer")
    constraints = Constraints(max_lengths=[], **FREE)
    assert sample(batch.model, batch.source[:0], batch.first[:0], batch.mask[:0], constraints=constraints, **OPEN) == []
