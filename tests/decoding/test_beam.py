"""Beam search: what it finds, in which order, and when it may stop."""

from __future__ import annotations

import importlib

import pytest
import torch

from regard.decoding import Tree, beam, greedy
from regard.errors import InputError
from tests.decoding.small import END, NAMES, PLAIN, Batch, best, exhaustive, slow_beam
from tests.models.families import GENERATORS

all_families = pytest.mark.parametrize("name", NAMES)
PENALTIES = [0.0, 0.6, 1.0, 2.0]


@pytest.mark.parametrize("name", ["transformer", "gpt", "rnn-additive-input-lstm"])
def test_a_wide_beam_equals_exhaustive_search(name: str) -> None:
    batch = Batch(name, vocabulary=5, lengths=(3, 1))
    sentences = [exhaustive(batch, row, 4) for row in range(2)]
    constraints = batch.constraints(max_length=4)
    for length_penalty in PENALTIES:
        options = {**PLAIN, "length_penalty": length_penalty}
        found = beam(batch.model, *batch.data, constraints=constraints, beams=31, results=6, **options)
        for row, hypotheses in enumerate(found):
            scored = [(log / (len(tokens) + 1) ** length_penalty, tokens) for log, tokens in sentences[row]]
            expected = sorted(scored, reverse=True)[:6]
            assert [h.tokens for h in hypotheses] == [tokens for _, tokens in expected]
            assert [h.score for h in hypotheses] == pytest.approx([score for score, _ in expected], abs=1e-6)


def check_slow(name: str, length_penalty: float, early_stopping: str) -> None:
    batch = Batch(name, vocabulary=6)
    options = {**PLAIN, "length_penalty": length_penalty, "early_stopping": early_stopping}
    for row, hypotheses in enumerate(
        beam(batch.model, *batch.data, constraints=batch.constraints(), beams=4, results=4, **options)
    ):
        assert [h.tokens for h in hypotheses] == slow_beam(batch, row, 6, 4, length_penalty, early_stopping)


@pytest.mark.parametrize("length_penalty", [0.0, 1.0])
@all_families
def test_a_beam_finds_what_a_slow_one_finds(name: str, length_penalty: float) -> None:
    check_slow(name, length_penalty, "shrink")


@pytest.mark.parametrize("early_stopping", ["yes", "no", "never"])
@pytest.mark.parametrize("length_penalty", [0.0, 1.0])
def test_a_beam_that_stays_full_finds_what_a_slow_one_finds(length_penalty: float, early_stopping: str) -> None:
    for name in ("transformer", "rnn-dot-output-gru"):
        check_slow(name, length_penalty, early_stopping)


@pytest.mark.parametrize("length_penalty", [0.0, 1.0])
@pytest.mark.parametrize("name", GENERATORS)
def test_a_beam_of_one_is_greedy_search(name: str, length_penalty: float) -> None:
    batch = Batch(name)
    options = {**PLAIN, "length_penalty": length_penalty}
    found = beam(batch.model, *batch.data, constraints=batch.constraints(), beams=1, results=1, **options)
    expected = greedy(batch.model, *batch.data, constraints=batch.constraints(), length_penalty=length_penalty)
    assert best(found) == [h.tokens for h in expected]
    assert [h[0].score for h in found] == pytest.approx([h.score for h in expected], abs=1e-6)


@pytest.mark.parametrize("results", [1, 3])
@pytest.mark.parametrize("length_penalty", PENALTIES)
def test_stopping_early_never_changes_the_result(
    length_penalty: float, results: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module("regard.decoding.beam")
    settled, stops = module._cannot_improve, []

    def watched(*given: object) -> torch.Tensor:
        stops.append(settled(*given))
        return stops[-1]

    options = {"beams": 4, "results": results, **PLAIN, "length_penalty": length_penalty}
    for seed in range(6):
        torch.manual_seed(seed)
        batch = Batch("rnn-dot-output-gru", vocabulary=7)
        monkeypatch.setattr(module, "_cannot_improve", watched)
        early = beam(batch.model, *batch.data, constraints=batch.constraints(max_length=8), **options)
        monkeypatch.setattr(
            module, "_cannot_improve", lambda state, *_: torch.zeros(len(state.totals), dtype=torch.bool)
        )
        late = beam(batch.model, *batch.data, constraints=batch.constraints(max_length=8), **options)
        assert early == late
    assert any(stop.any() for stop in stops)


def test_a_search_stops_when_nothing_can_win(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = Batch("rnn-none-input-gru")
    with torch.no_grad():
        batch.model.output_bias[END] = 30.0
    steps = []
    step = batch.model.step
    monkeypatch.setattr(batch.model, "step", lambda *given: (steps.append(1), step(*given))[1])
    beam(batch.model, *batch.data, constraints=batch.constraints(max_length=100), beams=4, results=1, **PLAIN)
    assert len(steps) == 1


@all_families
def test_hypotheses_are_different_and_the_best_comes_first(name: str) -> None:
    batch = Batch(name)
    for hypotheses in beam(batch.model, *batch.data, constraints=batch.constraints(), beams=5, results=5, **PLAIN):
        assert len({tuple(h.tokens) for h in hypotheses}) == 5
        assert [h.score for h in hypotheses] == sorted((h.score for h in hypotheses), reverse=True)


@all_families
def test_every_hypothesis_of_a_list_has_the_models_log_probability(name: str) -> None:
    batch = Batch(name)
    for row, hypotheses in enumerate(
        beam(batch.model, *batch.data, constraints=batch.constraints(), beams=4, results=4, **PLAIN)
    ):
        for found in hypotheses:
            assert found.log_probability == pytest.approx(batch.log_probability(row, found.tokens), abs=1e-6)
            assert found.score == pytest.approx(found.log_probability / (len(found.tokens) + 1), abs=1e-6)
            assert sum(found.log_probabilities) == pytest.approx(found.log_probability)


def test_a_coverage_penalty_adds_the_logarithm_of_attention_at_most_one() -> None:
    batch = Batch("transformer")
    options = {**PLAIN, "coverage_penalty": 0.3}
    found = beam(batch.model, *batch.data, constraints=batch.constraints(), beams=3, results=3, **options)
    for row, hypotheses in enumerate(found):
        for hypothesis in hypotheses:
            source, first, _ = batch.rows(row)
            record: dict[str, torch.Tensor] = {}
            target = torch.cat([first, torch.tensor(hypothesis.tokens, dtype=torch.int64)])[None]
            batch.model.step(target, batch.model.start(source), record)
            layers = torch.stack([record[f"decoder.{i}.cross"] for i in range(2)])
            coverage = layers.mean((0, 2)).sum(1).clamp(max=1).log().sum()
            expected = hypothesis.log_probability / (len(hypothesis.tokens) + 1) + 0.3 * float(coverage)
            assert hypothesis.score == pytest.approx(expected, abs=1e-5)


def test_a_wide_beam_with_a_coverage_penalty_still_finds_the_best() -> None:
    batch = Batch("transformer", vocabulary=5, lengths=(3, 1))
    options = {**PLAIN, "coverage_penalty": 0.5}
    narrow = beam(batch.model, *batch.data, constraints=batch.constraints(max_length=4), beams=31, results=1, **options)
    everything = beam(
        batch.model, *batch.data, constraints=batch.constraints(max_length=4), beams=31, results=31, **options
    )
    assert best(narrow) == best(everything)


def test_coverage_of_a_model_without_attention_is_refused() -> None:
    batch = Batch("rnn-none-input-gru")
    with pytest.raises(InputError, match="coverage penalty needs cross-attention"):
        beam(
            batch.model,
            *batch.data,
            constraints=batch.constraints(),
            beams=2,
            results=1,
            **{**PLAIN, "coverage_penalty": 0.1},
        )


@pytest.mark.parametrize("early_stopping", ["shrink", "yes"])
def test_a_tree_leads_to_every_hypothesis(early_stopping: str) -> None:
    batch = Batch("transformer")
    trees: list[Tree] = []
    options = {**PLAIN, "early_stopping": early_stopping}
    found = beam(batch.model, *batch.data, constraints=batch.constraints(), beams=3, results=3, trees=trees, **options)
    assert len(trees) == len(found)
    for tree, hypotheses in zip(trees, found, strict=True):
        paths = {}
        for depth, branches in enumerate(tree):
            for i, branch in enumerate(branches):
                before = [] if depth == 0 else paths[depth - 1, branch.parent]
                paths[depth, i] = [*before, branch.token]
                if branch.kept and branch.token == END:
                    paths["ended", tuple(before)] = branch.log_probability
        for hypothesis in hypotheses:
            assert paths["ended", tuple(hypothesis.tokens)] == pytest.approx(hypothesis.log_probability)
        assert any(not branch.kept for branches in tree for branch in branches)


def test_a_tree_changes_no_result() -> None:
    batch = Batch("gpt")
    plain, with_trees = (
        beam(batch.model, *batch.data, constraints=batch.constraints(), beams=3, results=3, trees=trees, **PLAIN)
        for trees in (None, [])
    )
    for hypotheses, expected in zip(with_trees, plain, strict=True):
        assert [hypothesis.tokens for hypothesis in hypotheses] == [hypothesis.tokens for hypothesis in expected]
        assert [hypothesis.score for hypothesis in hypotheses] == pytest.approx([x.score for x in expected])
