"""Greedy search, and what holds for the hypotheses of every search."""

from __future__ import annotations

import pytest
import torch

from regard.decoding import Constraints, beam, greedy
from regard.errors import RunError
from tests.decoding.small import BEGIN, END, FREE, NAMES, PLAIN, Batch, best, search
from tests.models.families import GENERATORS

all_families = pytest.mark.parametrize("name", NAMES)
every_generator = pytest.mark.parametrize("name", GENERATORS)
both_searches = pytest.mark.parametrize("beams", [1, 3])
CLOSE = 1e-9


@every_generator
def test_greedy_takes_the_most_probable_token_every_time(name: str) -> None:
    batch = Batch(name)
    found = greedy(batch.model, *batch.data, constraints=batch.constraints(), length_penalty=1.0)
    for row, hypothesis in enumerate(found):
        source, first, _ = batch.rows(row)
        target = torch.cat([first, torch.tensor(hypothesis.tokens, dtype=torch.int64)])[None]
        logits = batch.model.step(target, batch.model.start(source))[0][0]
        logits[:, :2] = -torch.inf
        expected = logits.argmax(-1).tolist()
        assert hypothesis.tokens == expected[: len(hypothesis.tokens)]
        assert not hypothesis.finished or expected[-1] == END


@both_searches
@every_generator
def test_a_log_probability_is_the_teacher_forced_one(name: str, beams: int) -> None:
    batch = Batch(name)
    for row, hypothesis in enumerate(search(batch, batch.data, batch.constraints(), beams)):
        assert hypothesis.log_probability == pytest.approx(batch.log_probability(row, hypothesis.tokens), abs=1e-6)


@both_searches
@pytest.mark.parametrize("name", ["transformer", "rnn-additive-input-lstm", "gpt"])
def test_in_single_precision_with_prepacked_weights_the_batch_changes_no_score(
    name: str, beams: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.attention.prepacked.MIN_WEIGHTS", 1)  # pack small matrices too
    monkeypatch.setattr("regard.attention.prepacked.USES_BEFORE_PACKING", 0)
    batch = Batch(name)
    batch.model.float()
    together = search(batch, batch.data, batch.constraints(), beams)
    for row in range(len(batch.source)):
        (alone,) = search(batch, batch.rows(row), Constraints(max_lengths=[6], **FREE), beams)
        assert alone.tokens == together[row].tokens
        assert alone.log_probabilities == pytest.approx(together[row].log_probabilities, abs=1e-5)
        assert alone.score == pytest.approx(together[row].score, abs=1e-5)


@both_searches
@all_families
def test_a_sentence_alone_gives_what_it_gives_in_a_batch_in_any_order(name: str, beams: int) -> None:
    batch = Batch(name)
    together = search(batch, batch.data, batch.constraints(), beams)
    order = [2, 0, 3, 1]
    mixed = search(batch, batch.rows(*order), batch.constraints(), beams)
    for row, place in enumerate(order):
        (alone,) = search(batch, batch.rows(place), Constraints(max_lengths=[6], **FREE), beams)
        for other in (mixed[row], alone):
            assert other.tokens == together[place].tokens
            assert other.score == pytest.approx(together[place].score, abs=CLOSE)


@both_searches
@all_families
def test_sentences_of_very_different_lengths_leave_the_batch_and_come_back_in_order(name: str, beams: int) -> None:
    batch = Batch(name)
    lengths = [9, 0, 3, 6]
    constraints = Constraints(max_lengths=lengths, **{**FREE, "min_length": 9})
    assert [len(h.tokens) for h in search(batch, batch.data, constraints, beams)] == lengths


@both_searches
def test_an_end_at_the_first_step_is_an_empty_sentence(beams: int) -> None:
    batch = Batch("rnn-none-input-gru")
    with torch.no_grad():
        batch.model.output_bias[END] = 50.0
    for hypothesis in search(batch, batch.data, batch.constraints(), beams):
        assert hypothesis.tokens == []
        assert hypothesis.finished


@both_searches
def test_a_sentence_that_reaches_the_maximum_length_is_not_finished(beams: int) -> None:
    batch = Batch("rnn-none-input-gru")
    with torch.no_grad():
        batch.model.output_bias[END] = -50.0
    for hypothesis in search(batch, batch.data, batch.constraints(max_length=4), beams):
        assert len(hypothesis.tokens) == 4
        assert len(hypothesis.log_probabilities) == 5
        assert not hypothesis.finished


@both_searches
def test_an_empty_batch_gives_nothing(beams: int) -> None:
    batch = Batch("transformer")
    empty = (batch.source[:0], batch.first[:0], batch.mask[:0])
    assert search(batch, empty, Constraints(max_lengths=[], **FREE), beams) == []


@both_searches
@pytest.mark.parametrize("name", ["gpt", "gpt-llama"])
def test_prompts_of_one_token_and_of_many_continue_as_if_alone(name: str, beams: int) -> None:
    batch = Batch(name, lengths=(5, 0, 2))
    constraints = batch.constraints()
    together = search(batch, batch.data, constraints, beams)
    for row in range(3):
        (alone,) = search(batch, batch.rows(row), Constraints(max_lengths=[6], **FREE), beams)
        assert alone.tokens == together[row].tokens


def test_no_mask_means_no_padding() -> None:
    batch = Batch("transformer", lengths=(4, 4))
    source, first, mask = batch.data
    with_mask = greedy(batch.model, source, first, mask, constraints=batch.constraints(), length_penalty=1.0)
    assert [h.tokens for h in with_mask] == [
        h.tokens for h in greedy(batch.model, source, first, constraints=batch.constraints(), length_penalty=1.0)
    ]


@all_families
def test_an_ensemble_of_a_model_with_itself_is_the_model(name: str) -> None:
    batch = Batch(name)
    one = beam(batch.model, *batch.data, constraints=batch.constraints(), beams=3, results=3, **PLAIN)
    two = beam([batch.model] * 2, *batch.data, constraints=batch.constraints(), beams=3, results=3, **PLAIN)
    assert [[h.tokens for h in row] for row in one] == [[h.tokens for h in row] for row in two]
    assert [h.score for row in two for h in row] == pytest.approx([h.score for row in one for h in row], abs=1e-6)


def test_an_ensembles_probability_is_the_mean_of_its_models() -> None:
    batch = Batch("transformer")
    other = Batch("rnn-dot-output-gru").model
    for row, found in enumerate(
        greedy([batch.model, other], *batch.data, constraints=batch.constraints(), length_penalty=1.0)
    ):
        expected = batch.log_probability(row, found.tokens, batch.model, other)
        assert found.log_probability == pytest.approx(expected, abs=1e-6)


def test_non_finite_logits_are_an_error() -> None:
    batch = Batch("transformer")
    with torch.no_grad():
        batch.model.decoder.blocks[0].attention.out_proj.weight.fill_(torch.nan)
    for beams in (1, 3):
        with pytest.raises(RunError, match="gives no probabilities for sentence 0"):
            search(batch, batch.data, batch.constraints(), beams)


def test_half_precision_is_searched_in_single() -> None:
    batch = Batch("transformer")
    batch.model.bfloat16()
    for found in greedy(batch.model, *batch.data, constraints=batch.constraints(), length_penalty=0.0):
        assert found.score == pytest.approx(sum(found.log_probabilities))
        assert any(step != torch.tensor(step).bfloat16().item() for step in found.log_probabilities)


def test_greedy_and_a_beam_of_one_begin_with_any_token() -> None:
    batch = Batch("transformer")
    first = torch.full_like(batch.first, BEGIN + 3)
    one = greedy(batch.model, batch.source, first, batch.mask, constraints=batch.constraints(), length_penalty=1.0)
    other = beam(
        batch.model, batch.source, first, batch.mask, constraints=batch.constraints(), beams=1, results=1, **PLAIN
    )
    assert [h.tokens for h in one] == best(other)
