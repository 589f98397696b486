"""Words are linked by what attention rested on."""

from __future__ import annotations

import pytest
import torch

from regard.errors import InputError
from regard.explain.alignment import links, looks
from tests.explain.traces import made


def test_each_target_word_is_linked_to_the_source_word_it_looked_at_most() -> None:
    weights = [[0.1, 0.7, 0.1, 0.1], [0.6, 0.1, 0.1, 0.2], [0.0, 0.1, 0.1, 0.8], [0.0, 0.0, 0.0, 1.0]]
    trace = made("a b c", "x y z", weights)
    assert links(trace) == [(0, 1), (1, 0), (1, 2)]  # never to the end, however much it is looked at


def test_the_pieces_of_a_word_look_together() -> None:
    trace = made("a b", "x", [[0.9, 0.1, 0.0], [0.0, 0.8, 0.2], [0.0, 0.0, 1.0]], pieces=2)
    torch.testing.assert_close(looks(trace)[0], torch.tensor([0.45, 0.45, 0.1]))


def test_the_last_layer_but_one_of_a_deep_decoder_is_taken_and_another_on_request() -> None:
    one, two = [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]], [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    assert links(made("a b", "x", two, one, two)) == [(0, 0)]
    assert links(made("a b", "x", two, one)) == [(0, 0)]
    assert links(made("a b", "x", two, one), 0) == [(1, 0)]
    with pytest.raises(InputError, match="no decoder layer 2: it has layers 0 to 1"):
        links(made("a b", "x", two, one), 2)


def test_without_attention_there_is_nothing_to_align() -> None:
    with pytest.raises(InputError, match="does not look at a source"):
        links(made("a b", "x"))


def test_an_empty_translation_has_no_links() -> None:
    assert links(made("a b", "", [[0.5, 0.5, 0.0]])) == []
