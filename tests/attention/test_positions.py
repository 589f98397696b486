"""Positions: sinusoids by the formula, tables with an end, rotations that know only distance."""

from __future__ import annotations

import math

import pytest
import torch

from regard.attention.positions import rotary, rotate, sinusoidal


def test_sinusoids_follow_the_papers_formula() -> None:
    table = sinusoidal(torch.arange(50), 12)
    for position, i in [(0, 0), (1, 0), (7, 2), (49, 5)]:
        angle = position / 10000 ** (2 * i / 12)
        assert table[position, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-5)
        assert table[position, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-5)


def test_halves_are_the_same_numbers_in_another_order() -> None:
    whole, halves = sinusoidal(torch.arange(9), 6), sinusoidal(torch.arange(9), 6, halves=True)
    assert torch.equal(halves, torch.cat([whole[:, 0::2], whole[:, 1::2]], dim=-1))


def test_an_odd_size_is_allowed() -> None:
    assert sinusoidal(torch.arange(4), 5).shape == (4, 5)


def test_products_of_rotated_vectors_depend_only_on_their_distance() -> None:
    query, key = torch.randn(2, 1, 1, 1, 8)
    products = []
    for start in (0, 5, 100):
        turn_query, turn_key = (rotary(torch.tensor([[p]]), 8, 10000.0) for p in (start + 3, start))
        products.append((rotate(query, turn_query) * rotate(key, turn_key)).sum())
    torch.testing.assert_close(torch.stack(products), products[0].expand(3), rtol=1e-4, atol=1e-4)


def test_rotation_keeps_the_length_of_a_vector() -> None:
    x = torch.randn(2, 3, 7, 8)
    turned = rotate(x, rotary(torch.arange(7)[None], 8, 10000.0))
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))
