"""Rules: what may come next, in every search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.decoding import Edges, Form, Hypothesis, Rules, Terms, Want, Written, beam, greedy, make_rules, sample
from regard.errors import InputError
from tests.decoding.small import END, FREE, NAMES, PLAIN, Batch

all_families = pytest.mark.parametrize("name", NAMES)


def every_search(batch: Batch, rules: Rules) -> list[tuple[int, Hypothesis]]:
    """All hypotheses that greedy search, beams, groups and sampling find, each with its sentence."""
    model, data = batch.model, batch.data
    options = {"temperature": 2.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "length_penalty": 1.0, "seed": 1}
    found = [
        [[h] for h in greedy(model, *data, rules=rules, length_penalty=1.0)],
        beam(model, *data, rules=rules, beams=4, results=4, **PLAIN),
        beam(model, *data, rules=rules, beams=3, results=3, **{**PLAIN, "diversity": 0.5}),
        sample(model, *data, rules=rules, samples=3, **options),
    ]
    return [(row, h) for search in found for row, hypotheses in enumerate(search) for h in hypotheses]


@all_families
def test_forbidden_tokens_never_come(name: str) -> None:
    batch = Batch(name)
    for _, hypothesis in every_search(batch, batch.rules(forbidden=(0, 1, 5, 6, 7))):
        assert not {0, 1, 2, 5, 6, 7} & set(hypothesis.tokens)


@all_families
def test_lengths_stay_between_the_shortest_and_the_longest(name: str) -> None:
    batch = Batch(name)
    rules = make_rules(longest=[3, 6, 4, 9], **{**FREE, "shortest": 3})
    for row, hypothesis in every_search(batch, rules):
        assert 3 <= len(hypothesis.tokens) <= [3, 6, 4, 9][row]


@pytest.mark.parametrize("size", [1, 2, 3])
@all_families
def test_no_run_of_tokens_comes_twice(name: str, size: int) -> None:
    batch = Batch(name, vocabulary=6)
    for _, hypothesis in every_search(batch, batch.rules(longest=12, shortest=3, no_repeat=size)):
        tokens = hypothesis.tokens
        runs = [tuple(tokens[i : i + size]) for i in range(len(tokens) - size + 1)]
        assert len(runs) == len(set(runs))


def test_only_repetitions_are_forbidden_by_no_repeat() -> None:
    rules = make_rules(longest=[9], **{**FREE, "forbidden": (), "no_repeat": 2})
    scores = torch.zeros(1, 8)
    rules.apply(scores, Written(torch.tensor([[4, 5, 6, 4, 7, 4]]), [0], None), rules.start(1, scores.device))
    assert (scores[0] == -torch.inf).nonzero().flatten().tolist() == [5, 7]


def test_where_everything_is_forbidden_a_sentence_may_end() -> None:
    batch = Batch("transformer", vocabulary=5)  # two words
    for _, hypothesis in every_search(batch, batch.rules(longest=9, shortest=9, no_repeat=1)):
        assert len(hypothesis.tokens) == 2


PREFIXES = [[5, 6, 5], [], [7], [4, 4]]


@all_families
def test_a_prefix_begins_every_hypothesis(name: str) -> None:
    batch = Batch(name)
    for row, hypothesis in every_search(batch, batch.rules(prefixes=PREFIXES)):
        assert hypothesis.tokens[: len(PREFIXES[row])] == PREFIXES[row]


@all_families
def test_after_a_prefix_the_search_continues_as_from_there(name: str) -> None:
    batch = Batch(name)
    found = greedy(batch.model, *batch.data, rules=batch.rules(prefixes=PREFIXES), length_penalty=1.0)
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


def test_what_greedy_found_as_a_prefix_changes_nothing() -> None:
    batch = Batch("transformer")
    free = greedy(batch.model, *batch.data, rules=batch.rules(), length_penalty=1.0)
    forced = batch.rules(prefixes=[h.tokens[:3] for h in free])
    for one, other in zip(free, greedy(batch.model, *batch.data, rules=forced, length_penalty=1.0), strict=True):
        assert one.tokens == other.tokens
        assert one.score == pytest.approx(other.score)


def test_a_prefix_wins_over_every_other_rule() -> None:
    batch = Batch("transformer")
    prefixes = [[0, 1, 4, 4, 4, 4, 4, 4, 4]] * 4
    rules = make_rules(longest=[2] * 4, **{**FREE, "no_repeat": 1}, prefixes=prefixes)
    for _, hypothesis in every_search(batch, rules):
        assert hypothesis.tokens == prefixes[0]
        assert hypothesis.log_probability > -torch.inf


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"prefixes": [[4]]}, "there are 1 prefixes for 4 sentences"),
        ({"prefixes": [[4, END]] * 4}, "a prefix holds 2, the token that ends a sentence"),
    ],
)
def test_unsound_prefixes_are_refused(values: dict[str, Any], message: str) -> None:
    batch = Batch("transformer")
    with pytest.raises(InputError, match=message):
        greedy(batch.model, *batch.data, rules=batch.rules(**values), length_penalty=1.0)


def test_there_is_a_longest_length_for_every_sentence() -> None:
    batch = Batch("transformer")
    with pytest.raises(InputError, match="there are 3 longest lengths for 4 sentences"):
        greedy(batch.model, *batch.data, rules=make_rules(longest=[5] * 3, **FREE), length_penalty=1.0)


@dataclass(frozen=True)
class AtMost:
    """A rule with a state: one token comes at most so many times in a hypothesis."""

    token: int
    times: int
    watches = False

    def start(self, sentences: int, device: torch.device) -> Any:
        return (torch.zeros(sentences, dtype=torch.int64, device=device),)

    def apply(self, scores: Tensor, written: Written, state: Any) -> Any:
        (count,) = state
        if written.tokens.shape[1]:
            count = count + (written.tokens[:, -1] == self.token)
        scores[:, self.token] = scores[:, self.token].masked_fill(count >= self.times, -torch.inf)
        assert torch.equal(count, (written.tokens == self.token).sum(1))  # it went with its hypothesis
        return (count,)


@all_families
def test_the_state_of_a_rule_goes_with_its_hypothesis(name: str) -> None:
    batch = Batch(name, vocabulary=6)
    rules = batch.rules(longest=8, shortest=6, more=[AtMost(3, 2)])
    for _, hypothesis in every_search(batch, rules):
        assert hypothesis.tokens.count(3) <= 2


class Watching:
    """A rule that forbids nothing and looks at what the model looks at."""

    watches = True

    def __init__(self) -> None:
        self.seen: list[Tensor | None] = []

    def start(self, sentences: int, device: torch.device) -> Any:
        return ()

    def apply(self, scores: Tensor, written: Written, state: Any) -> Any:
        assert len(scores) == len(written.tokens)
        self.seen.append(written.attention)
        return ()


@pytest.mark.parametrize("name", ["transformer", "rnn-additive-input-lstm", "rnn-dot-output-gru"])
def test_a_rule_that_watches_sees_attention_and_changes_nothing(name: str) -> None:
    batch, rule = Batch(name), Watching()
    watched = beam(batch.model, *batch.data, rules=batch.rules(more=[rule]), beams=3, results=3, **PLAIN)
    free = beam(batch.model, *batch.data, rules=batch.rules(), beams=3, results=3, **PLAIN)
    assert [[h.tokens for h in row] for row in watched] == [[h.tokens for h in row] for row in free]
    for attention in rule.seen:
        assert attention is not None
        torch.testing.assert_close(attention.sum(1), torch.ones(len(attention)))


# Terms.

NO_EDGES = Edges(frozenset(), frozenset())
WANTED = [
    [Want((Form((5, 6, 7), None),), (0,), frozenset())],
    [],
    [Want((Form((8,), None), Form((9, 9), None)), (0,), frozenset()), Want((Form((4, 10), None),), (0,), frozenset())],
    [Want((Form((11, 3), None),), (1, 2), frozenset({5, 6}))] * 2,
]


def terms(**values: Any) -> Terms:
    given: dict[str, Any] = {"wants": WANTED, "edges": NO_EDGES, "end": END, "longest": [9] * 4, "bonus": 4.0}
    return Terms(**{**given, "hard": True, "watches": False, **values})


def times(tokens: list[int], run: tuple[int, ...]) -> int:
    return sum(tuple(tokens[i : i + len(run)]) == run for i in range(len(tokens)))


def has_all(tokens: list[int], wants: list[Want]) -> bool:
    return all(sum(times(tokens, form.tokens) for form in want.forms) >= wants.count(want) for want in wants)


@all_families
def test_hard_terms_are_in_every_hypothesis_of_their_sentence(name: str) -> None:
    batch = Batch(name)
    for row, hypothesis in every_search(batch, batch.rules(longest=9, more=[terms()])):
        assert has_all(hypothesis.tokens, WANTED[row])


@pytest.mark.parametrize("name", ["transformer", "rnn-additive-input-lstm"])
def test_hard_terms_come_where_attention_is_watched_too(name: str) -> None:
    batch = Batch(name)
    for row, hypothesis in every_search(batch, batch.rules(longest=9, more=[terms(watches=True)])):
        assert has_all(hypothesis.tokens, WANTED[row])


def test_a_sentence_too_short_for_its_terms_ends_all_the_same() -> None:
    batch = Batch("transformer")
    for _, hypothesis in every_search(batch, batch.rules(longest=2, more=[terms(longest=[2] * 4)])):
        assert len(hypothesis.tokens) <= 2


def test_terms_that_other_rules_forbid_are_left_out() -> None:
    batch = Batch("transformer")
    rules = batch.rules(longest=9, forbidden=(0, 1, 5, 8, 9, 4, 11), more=[terms()])
    for _, hypothesis in every_search(batch, rules):
        assert not {5, 8, 9, 4, 11} & set(hypothesis.tokens)


def test_a_sentence_without_terms_is_searched_as_ever() -> None:
    batch = Batch("transformer")
    free = beam(batch.model, *batch.data, rules=batch.rules(), beams=3, results=3, **PLAIN)
    ruled = beam(batch.model, *batch.data, rules=batch.rules(more=[terms()]), beams=3, results=3, **PLAIN)
    assert [h.tokens for h in free[1]] == [h.tokens for h in ruled[1]]


def asked_once(rule: Terms, tokens: list[int], attention: list[float] | None = None) -> Tensor:
    """What a rule makes of equal probabilities for the first sentence."""
    scores = torch.full((1, 12), 1 / 12).log()
    seen = None if attention is None else torch.tensor([attention])
    written = Written(torch.tensor([tokens], dtype=torch.int64).view(1, -1), [0], seen)
    rule.apply(scores, written, rule.start(1, scores.device))
    return scores.exp()[0]


def test_a_soft_term_is_more_probable_and_all_is_still_one() -> None:
    found = asked_once(terms(hard=False), [])
    assert found.argmax() == 5
    assert float(found.sum()) == pytest.approx(1.0)


def test_a_soft_term_that_was_begun_is_continued() -> None:
    assert asked_once(terms(hard=False), [4, 5, 6]).topk(2).indices.tolist() == [7, 5]


def test_a_soft_term_is_not_asked_for_twice() -> None:
    assert asked_once(terms(hard=False), [5, 6, 7]).tolist() == pytest.approx([1 / 12] * 12)


@pytest.mark.parametrize(("attention", "probability"), [([0.0, 1.0], 1 / 12), ([1.0, 0.0], 0.83)])
def test_attention_says_where_a_soft_term_is_favoured(attention: list[float], probability: float) -> None:
    found = asked_once(terms(hard=False, watches=True), [], attention)
    assert float(found[5]) == pytest.approx(probability, abs=0.01)


def test_a_hard_term_comes_instead_of_the_models_own_word() -> None:
    wants = [[Want((Form((5, 6), None),), (0,), frozenset({3}))]]
    scores = torch.tensor([[0.0] * 12])
    scores[0, 3] = 9.0
    rule, scores = terms(wants=wants), scores.log_softmax(1)
    (begun,) = rule.apply(scores, Written(torch.tensor([[4]]), [0], None), rule.start(1, scores.device))
    assert scores[0].exp().tolist() == [0.0] * 5 + [1.0] + [0.0] * 6
    assert begun.tolist() == [1]


def test_a_form_without_a_blank_begins_a_sentence_or_follows_what_joins() -> None:
    wants = [[Want((Form((5,), True), Form((6,), False)), (0,), frozenset())]]
    rule = terms(wants=wants, edges=Edges(frozenset({8}), frozenset()), hard=False)
    assert [int(asked_once(rule, tokens).argmax()) for tokens in ([], [8], [9])] == [5, 5, 6]


def test_a_hard_term_ends_its_word() -> None:
    rule = terms(edges=Edges(frozenset(), frozenset({9, 10})), wants=[[Want((Form((5,), None),), (0,), frozenset())]])
    scores = torch.zeros(1, 12).log_softmax(1)
    rule.apply(scores, Written(torch.tensor([[4, 5]]), [0], None), (torch.tensor([1]),))
    assert (scores[0] == -torch.inf).nonzero().flatten().tolist() == [9, 10]
