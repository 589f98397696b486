"""Cross-entropy over a vocabulary: the kernels give what the formula gives, on a GPU or interpreted."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton", reason="there is no Triton on this system")

from regard.kernels.vocabulary import BLOCK, _losses, token_losses

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("vocabulary", [7, BLOCK, BLOCK + 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_losses_and_gradients_are_those_of_torch(vocabulary: int, smoothing: float, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    logits = (5 * torch.randn(4, vocabulary, device=DEVICE)).to(dtype).requires_grad_()
    labels = torch.tensor([3, -1, vocabulary - 1, 0], device=DEVICE)
    given = torch.tensor([0.5, 1.0, 2.0, 0.25], device=DEVICE)
    loss, plain = token_losses(logits, labels, smoothing)
    loss.backward(given)
    wide = logits.detach().double().requires_grad_()
    wanted = F.cross_entropy(wide, labels, ignore_index=-1, label_smoothing=smoothing, reduction="none")
    wanted.backward(given.double())
    torch.testing.assert_close(loss.double(), wanted, rtol=1e-5, atol=1e-5)
    alone = F.cross_entropy(wide, labels, ignore_index=-1, reduction="none")
    torch.testing.assert_close(plain.double(), alone, rtol=1e-5, atol=1e-5)
    close = 1e-5 if dtype == torch.float32 else 2e-3
    torch.testing.assert_close(logits.grad.double(), wide.grad, rtol=close, atol=close)


def test_large_logits_give_finite_losses() -> None:
    logits = torch.tensor([[0.0, 60000.0, -60000.0, 59000.0]], device=DEVICE)
    loss, _ = token_losses(logits, torch.tensor([1], device=DEVICE), 0.0)
    assert loss.item() == 0.0


def test_nan_logits_give_nan_losses() -> None:
    logits = torch.tensor([[0.0, float("nan"), 1.0]], device=DEVICE)
    loss, _ = token_losses(logits, torch.tensor([2], device=DEVICE), 0.1)
    assert loss.isnan().all()


def test_the_kernels_pass_torchs_operator_check() -> None:
    logits = torch.randn(3, 9, device=DEVICE, requires_grad=True)
    torch.library.opcheck(_losses, (logits, torch.tensor([1, 0, 8], device=DEVICE), 0.1))
