"""The loss: torch's own, summed, with the same gradient."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from regard.training.cross_entropy import IGNORED, cross_entropy


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.6])
@pytest.mark.parametrize("padded", [False, True])
def test_loss_and_gradient_are_torchs_own(smoothing: float, padded: bool) -> None:
    logits = torch.randn(4, 5, 11, requires_grad=True)
    labels = torch.randint(1, 11, (4, 5))
    if padded:
        labels[1, 3:] = IGNORED
    expected = F.cross_entropy(
        logits.flatten(0, 1), labels.flatten(), reduction="sum", label_smoothing=smoothing, ignore_index=IGNORED
    )
    loss, _ = cross_entropy(logits, labels, smoothing)
    torch.testing.assert_close(loss, expected)
    (wanted,) = torch.autograd.grad(expected / 7, logits)
    (got,) = torch.autograd.grad(loss / 7, logits)
    torch.testing.assert_close(got, wanted)


def test_without_gradients_the_loss_is_the_same() -> None:
    logits, labels = torch.randn(3, 11), torch.tensor([1, IGNORED, 10])
    with torch.no_grad():
        without = cross_entropy(logits, labels, 0.1)
    torch.testing.assert_close(without, cross_entropy(logits.requires_grad_(), labels, 0.1))


@pytest.mark.parametrize("learning", [False, True])
def test_the_loss_without_smoothing_comes_beside_it_and_nothing_learns_from_it(learning: bool) -> None:
    logits, labels = torch.randn(3, 11, requires_grad=learning), torch.tensor([1, IGNORED, 10])
    with torch.set_grad_enabled(learning):
        _, plain = cross_entropy(logits, labels, 0.3)
    expected = F.cross_entropy(logits, labels, reduction="sum", ignore_index=IGNORED)
    torch.testing.assert_close(plain, expected.detach())
    assert not plain.requires_grad


def test_the_gradient_is_the_slope_of_the_loss() -> None:
    logits = torch.randn(3, 5, requires_grad=True)
    labels = torch.tensor([1, IGNORED, 4])
    with torch.no_grad():
        small = 1e-2
        numeric = torch.zeros_like(logits)
        for i in range(3):
            for j in range(5):
                nudge = torch.zeros_like(logits)
                nudge[i, j] = small
                up, down = (cross_entropy(logits.double() + s * nudge, labels, 0.2)[0] for s in (1, -1))
                numeric[i, j] = (up - down) / (2 * small)
    (got,) = torch.autograd.grad(cross_entropy(logits, labels, 0.2)[0], logits)
    torch.testing.assert_close(got, numeric, rtol=1e-3, atol=1e-3)
