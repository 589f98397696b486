"""Words are aligned by attention, two directions are symmetrized, and both are compared with gold alignments."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest
import torch

from regard.config import Config
from regard.errors import FolderError, InputError
from regard.inspection.alignment import (
    METHODS,
    AlignmentSettings,
    attention_weights,
    best_links,
    count_matches,
    cross_attention,
    error_rates,
    extract_alignment,
    extract_links,
    symmetrize,
)
from regard.inspection.trace import Trace
from regard.text.alignments import Gold, Link
from tests.inspection.traces import made

ONE = AlignmentSettings(method="one")


def aligned(trace: Trace, settings: AlignmentSettings) -> list[Link]:
    return extract_links(attention_weights(trace, [settings])[0], settings.method)


def test_each_target_word_is_aligned_to_the_source_word_with_the_most_attention() -> None:
    weights = [[0.1, 0.7, 0.1, 0.1], [0.6, 0.1, 0.1, 0.2], [0.0, 0.1, 0.1, 0.8], [0.0, 0.0, 0.0, 1.0]]
    trace = made("a b c", "x y z", weights)
    assert aligned(trace, ONE) == [(0, 1), (1, 0), (1, 2)]  # never to the end, however much it is looked at


def test_a_source_word_is_aligned_to_the_target_word_that_attends_to_it_most() -> None:
    trace = made("to the house", "aux maisons", [[0.5, 0.4, 0.1, 0.0], [0.0, 0.1, 0.9, 0.0], [0.0, 0.0, 0.0, 1.0]])
    assert aligned(trace, ONE) == [(0, 0), (2, 1)]
    assert extract_alignment(trace) == [(0, 0), (1, 0), (2, 1)]


def test_with_shift_a_word_is_aligned_by_the_step_that_takes_it_as_input() -> None:
    trace = made("a b", "x y", [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    assert aligned(trace, AlignmentSettings(shift=True)) == [(0, 0), (1, 1)]


def test_the_attention_of_the_subwords_of_a_word_is_averaged() -> None:
    trace = made("a b", "x", [[0.9, 0.1, 0.0], [0.0, 0.8, 0.2], [0.0, 0.0, 1.0]], pieces=2)
    torch.testing.assert_close(cross_attention(trace)[0], torch.tensor([0.45, 0.45, 0.1]))


ON_A, ON_B = [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]], [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]


def test_the_last_layer_but_one_of_a_deep_decoder_is_taken_and_another_on_request() -> None:
    trace = made("a b", "x", ON_B, ON_A, ON_B)
    assert aligned(trace, ONE) == [(0, 0)]
    assert aligned(trace, AlignmentSettings(layer=0, method="one")) == [(1, 0)]
    assert aligned(trace, AlignmentSettings(layer="mean", method="one")) == [(1, 0)]
    with pytest.raises(InputError, match="no decoder layer 3: it has layers 0 to 2"):
        aligned(trace, AlignmentSettings(layer=3))
    with pytest.raises(InputError, match="no head 1: it has heads 0 to 0"):
        aligned(trace, AlignmentSettings(head=1))


def test_of_two_layers_the_mean_is_taken() -> None:
    torch.testing.assert_close(cross_attention(made("a b", "x", ON_A, ON_B))[0], torch.tensor([0.5, 0.5, 0.0]))


def test_without_attention_there_is_nothing_to_align() -> None:
    with pytest.raises(InputError, match="has no attention 'cross'"):
        extract_alignment(made("a b", "x"))


def test_an_empty_translation_has_no_alignment() -> None:
    assert extract_alignment(made("a b", "", [[0.5, 0.5, 0.0]])) == []


def test_a_word_without_attention_is_not_aligned() -> None:
    weights = torch.tensor([[0.0, 0.0], [0.0, 0.3]])
    assert best_links(weights, -1) == best_links(weights, -2) == [(1, 1)]


# Readings in folders.


def test_settings_are_read_back_from_their_folder(tmp_path: Path) -> None:
    settings = AlignmentSettings(layer=3, head=2, shift=True, method="union")
    settings.save(tmp_path)
    assert AlignmentSettings.load(tmp_path, Config()) == settings


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"layer": -1}', '{"head": "all"}', '{"method": "grow', '{"method": "x"}', '{"x": 1}'],
)
def test_damaged_settings_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "alignment.json").write_text(text)
    with pytest.raises(FolderError, match=r"alignment\.json is damaged"):
        AlignmentSettings.load(tmp_path, Config())


def test_an_unknown_method_names_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"no method unoin\. Did you mean union"):
        AlignmentSettings(method="unoin")


def test_the_default_of_a_guided_model_is_the_guided_head(tmp_path: Path) -> None:
    config = Config.read({"model": {"decoder_layers": 6}, "train": {"guided_alignment": 0.05}})
    assert AlignmentSettings.load(tmp_path, config) == AlignmentSettings(layer=4, head=0)
    assert AlignmentSettings.load(tmp_path, Config()) == AlignmentSettings()


# Two directions.

FORWARD = [(0, 0), (1, 1), (3, 2), (3, 3), (5, 4)]
BACKWARD = [(0, 0), (1, 1), (2, 1), (3, 3), (4, 3), (6, 5)]
#                 target 0  1  2  3  4  5
# source 0               B
# source 1                  B
# source 2                  b               F and B: both; f: forward only; b: backward only
# source 3                     f  B
# source 4                        b
# source 5                           f      a neighbour of 4-3 across a corner
# source 6                              b   a neighbour of 5-4 across a corner


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("one", FORWARD),
        ("intersection", [(0, 0), (1, 1), (3, 3)]),
        ("union", sorted({*FORWARD, *BACKWARD})),
        ("grow", [(0, 0), (1, 1), (2, 1), (3, 2), (3, 3), (4, 3)]),
        ("grow-diag", sorted({*FORWARD, *BACKWARD})),
    ],
)
def test_directions_are_symmetrized_as_worked_out_by_hand(method: str, expected: list[Link]) -> None:
    assert symmetrize(FORWARD, BACKWARD, method) == expected


def test_final_aligns_one_free_word_and_final_and_two_free_words() -> None:
    forward = [(0, 0), (0, 2), (5, 4)]  # 0-2 links target word 2, far from 0-0; 5-4 two words
    backward = [(0, 0), (3, 0)]  # 3-0 links source word 3
    assert symmetrize(forward, backward, "grow-diag") == [(0, 0)]
    assert symmetrize(forward, backward, "grow-diag-final") == [(0, 0), (0, 2), (3, 0), (5, 4)]
    assert symmetrize(forward, backward, "grow-diag-final-and") == [(0, 0), (5, 4)]


def by_the_book(forward: set[Link], backward: set[Link], size: int, method: str) -> set[Link]:
    """Koehn's pseudo-code over the whole matrix, in symal's order: by target, then source, until nothing is added."""
    found, union = forward & backward, forward | backward
    steps = [(-1, 0), (0, -1), (1, 0), (0, 1)]  # (target, source)
    steps += [(-1, -1), (-1, 1), (1, -1), (1, 1)] if "diag" in method else []

    def has_target(target: int) -> bool:
        return any(link[1] == target for link in found)

    def has_source(source: int) -> bool:
        return any(link[0] == source for link in found)

    changed = True
    while changed:
        changed = False
        for target, source in itertools.product(range(size), range(size)):
            for down, right in steps if (source, target) in found else []:
                new = source + right, target + down
                if new in union and not (has_source(new[0]) and has_target(new[1])):
                    found.add(new)
                    changed = True
    for direction in (forward, backward) if "final" in method else ():
        for source, target in sorted(direction, key=lambda link: link[::-1]):
            free = [not has_source(source), not has_target(target)]
            if all(free) if method.endswith("and") else any(free):
                found.add((source, target))
    return found


@pytest.mark.parametrize("method", [name for name in METHODS if name.startswith("grow")])
def test_growing_equals_a_plain_walk_over_the_matrix(method: str) -> None:
    chance = random.Random(3)
    for _ in range(200):
        size = chance.randint(1, 7)
        forward = {(chance.randrange(size), target) for target in range(size)}
        backward = {(source, chance.randrange(size)) for source in range(size)}
        assert symmetrize(forward, backward, method) == sorted(by_the_book(forward, backward, size, method))


# Against gold.

GOLD = Gold(frozenset({(0, 0), (1, 1)}), frozenset({(0, 0), (1, 1), (2, 1), (2, 2)}))


def test_the_error_rate_is_that_of_och_and_ney() -> None:
    found = count_matches([[(0, 0), (2, 1), (1, 2)]], [GOLD])
    assert found == {"predicted": 3, "sure": 2, "in_sure": 1, "in_possible": 2}
    assert error_rates(found) == pytest.approx({"aer": 1 - 3 / 5, "precision": 2 / 3, "recall": 1 / 2})
    assert error_rates(count_matches([GOLD.sure], [GOLD]))["aer"] == 0


def test_the_error_rate_without_sure_links_is_zero() -> None:
    assert error_rates(count_matches([[]], [Gold(frozenset(), frozenset())]))["aer"] == 0
    assert error_rates(count_matches([[]], [GOLD])) == {"aer": 1.0, "precision": 1.0, "recall": 0.0}
