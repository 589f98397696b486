"""Constraints hold in every search."""

from __future__ import annotations

import pytest
import torch

from regard.decoding import Constraints, Hypothesis, beam, greedy, sample
from tests.decoding.small import END, FREE, NAMES, PLAIN, Batch

all_families = pytest.mark.parametrize("name", NAMES)


def every_search(batch: Batch, constraints: Constraints) -> list[tuple[int, Hypothesis]]:
    """All hypotheses that greedy search, beams, groups and sampling find, each with its sentence."""
    model, data = batch.model, batch.data
    options = {"temperature": 2.0, "top_k": 0, "top_p": 1.0, "length_penalty": 1.0, "seed": 1}
    found = [
        [[h] for h in greedy(model, *data, constraints=constraints, length_penalty=1.0)],
        beam(model, *data, constraints=constraints, beams=4, results=4, **PLAIN),
        sample(model, *data, constraints=constraints, samples=3, **options),
    ]
    return [(row, h) for search in found for row, hypotheses in enumerate(search) for h in hypotheses]


@all_families
def test_forbidden_tokens_are_never_generated(name: str) -> None:
    batch = Batch(name)
    for _, hypothesis in every_search(batch, batch.constraints(forbidden=(0, 1, 5, 6, 7))):
        assert not {0, 1, 2, 5, 6, 7} & set(hypothesis.tokens)


@all_families
def test_lengths_stay_between_the_minimum_and_the_maximum(name: str) -> None:
    batch = Batch(name)
    constraints = Constraints(max_lengths=[3, 6, 4, 9], **{**FREE, "min_length": 3})
    for row, hypothesis in every_search(batch, constraints):
        assert 3 <= len(hypothesis.tokens) <= [3, 6, 4, 9][row]


@pytest.mark.parametrize("size", [1, 2, 3])
@all_families
def test_no_ngram_occurs_twice(name: str, size: int) -> None:
    batch = Batch(name, vocabulary=6)
    for _, hypothesis in every_search(batch, batch.constraints(max_length=12, min_length=3, no_repeat_ngram=size)):
        tokens = hypothesis.tokens
        runs = [tuple(tokens[i : i + size]) for i in range(len(tokens) - size + 1)]
        assert len(runs) == len(set(runs))


def test_no_repeat_ngram_forbids_only_repetitions() -> None:
    constraints = Constraints(max_lengths=[9], **{**FREE, "forbidden": (), "no_repeat_ngram": 2})
    scores = torch.zeros(1, 8)
    constraints.apply(scores, torch.tensor([[4, 5, 6, 4, 7, 4]]), [0])
    assert (scores[0] == -torch.inf).nonzero().flatten().tolist() == [5, 7]


def test_a_sentence_may_end_where_everything_is_forbidden() -> None:
    batch = Batch("transformer", vocabulary=5)  # two words
    for _, hypothesis in every_search(batch, batch.constraints(max_length=9, min_length=9, no_repeat_ngram=1)):
        assert len(hypothesis.tokens) == 2


PREFIXES = [[5, 6, 5], [], [7], [4, 4]]


@all_families
def test_every_hypothesis_begins_with_its_prefix(name: str) -> None:
    batch = Batch(name)
    for row, hypothesis in every_search(batch, batch.constraints(prefixes=PREFIXES)):
        assert hypothesis.tokens[: len(PREFIXES[row])] == PREFIXES[row]


@all_families
def test_after_a_prefix_the_search_continues_from_there(name: str) -> None:
    batch = Batch(name)
    found = greedy(batch.model, *batch.data, constraints=batch.constraints(prefixes=PREFIXES), length_penalty=1.0)
    for row, (prefix, hypothesis) in enumerate(zip(PREFIXES, found, strict=True)):
        source, first, _ = batch.rows(row)
        state, tokens = batch.model.start(source), [int(first), *prefix]
        written = list(prefix)
        while len(written) < 6:
            logits, state = batch.model.step(torch.tensor([tokens]), state)
            logits[..., :2] = -torch.inf
            tokens = [int(logits[0, -1].argmax())]
            if tokens == [END]:
                break
            written += tokens
        assert hypothesis.tokens == written


def test_a_greedy_output_as_prefix_changes_nothing() -> None:
    batch = Batch("transformer")
    free = greedy(batch.model, *batch.data, constraints=batch.constraints(), length_penalty=1.0)
    forced = batch.constraints(prefixes=[h.tokens[:3] for h in free])
    for one, other in zip(free, greedy(batch.model, *batch.data, constraints=forced, length_penalty=1.0), strict=True):
        assert one.tokens == other.tokens
        assert one.score == pytest.approx(other.score)


def test_a_prefix_takes_precedence_over_other_constraints() -> None:
    batch = Batch("transformer")
    prefixes = [[0, 1, 4, 4, 4, 4, 4, 4, 4]] * 4
    constraints = Constraints(max_lengths=[2] * 4, **{**FREE, "no_repeat_ngram": 1}, prefixes=prefixes)
    for _, hypothesis in every_search(batch, constraints):
        assert hypothesis.tokens == prefixes[0]
        assert hypothesis.log_probability > -torch.inf
