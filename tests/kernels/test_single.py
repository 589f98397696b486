"""Attention of one query a sentence: the kernels give what the formula gives, on a GPU or interpreted."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("triton", reason="there is no Triton on this system")

from regard import InputError
from regard.attention import core
from regard.attention.core import attend
from regard.attention.scores import Additive
from regard.kernels import single
from regard.kernels.single import _attend, applies, attend_single
from regard.models import build
from tests.models.families import GENERATORS

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def apart(one: Tensor, other: Tensor) -> float:
    return float((one.double() - other.double()).norm() / other.double().norm().clamp_min(1e-9))


@pytest.mark.parametrize("additive", [True, False], ids=["additive", "product"])
@pytest.mark.parametrize(
    ("keys", "size", "width", "masked"),
    [(1, 8, 8, False), (7, 20, 40, True), (16, 64, 64, False), (17, 65, 130, True), (40, 192, 96, True)],
)
def test_context_and_gradients_are_those_of_the_formula(
    keys: int, size: int, width: int, masked: bool, additive: bool
) -> None:
    torch.manual_seed(0)
    score = Additive(size).to(DEVICE)
    nn.init.normal_(score.b)
    leaves = [torch.randn(3, 1, *shape, device=DEVICE) for shape in ((1, size), (keys, size), (keys, width))]
    mask = None
    if masked:
        mask = torch.rand(3, 1, 1, keys, device=DEVICE) > 0.4
        mask[0] = False  # a sentence in which nothing may be seen
    given = torch.randn(3, 1, 1, width, device=DEVICE)

    def run(wide: bool) -> list[Tensor]:
        own = score.double() if wide else score.float()
        own.zero_grad()
        query, key, value = tensors = [(x.double() if wide else x.clone()).requires_grad_() for x in leaves]
        if not wide:
            context = attend_single(query, key, value, mask, 0.3, (own.v, own.b) if additive else None)
        else:
            context, _ = attend(query, key, value, own if additive else lambda q, k: 0.3 * q @ k.mT, mask)
        context.backward(given.to(context.dtype))
        found = [context.detach(), *(tensor.grad for tensor in tensors)]
        return found + ([own.v.grad.clone(), own.b.grad.clone()] if additive else [])

    for ours, wanted in zip(run(wide=False), run(wide=True), strict=True):
        assert apart(ours, wanted) < 1e-5


@pytest.mark.parametrize("additive", [True, False], ids=["additive", "product"])
def test_inputs_may_have_any_strides(additive: bool) -> None:
    turned = {
        "query": torch.randn(8, 3, device=DEVICE).t()[:, None, None],
        "key": torch.randn(5, 3, 8, device=DEVICE).transpose(0, 1)[:, None],  # as cuDNN leaves it
        "value": torch.randn(1, 1, 5, 12, device=DEVICE).expand(3, 1, 5, 12),
        "v": torch.randn(8, 2, device=DEVICE)[:, 0],
        "b": torch.randn(1, device=DEVICE).expand(8),
    }
    mask, given = (torch.rand(5, 3, device=DEVICE) > 0.3).t()[:, None, None], torch.ones((), device=DEVICE)

    def run(*tensors: Tensor) -> list[Tensor]:
        query, key, value, *weights = leaves = [tensor.detach().requires_grad_() for tensor in tensors]
        context = attend_single(query, key, value, mask, 0.3, tuple(weights) if additive else None)  # type: ignore[arg-type]
        return [context, *torch.autograd.grad(context, leaves[: 5 if additive else 3], given.expand_as(context))]

    straight = [tensor.contiguous() for tensor in turned.values()]
    for ours, wanted in zip(run(*turned.values()), run(*straight), strict=True):
        assert torch.equal(ours, wanted)


@pytest.mark.parametrize("score", ["additive", "dot", "general", "cosine"])
def test_an_rnn_has_the_same_gradients_with_the_kernel(score: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = build(replace(GENERATORS[f"rnn-{score}-input-gru"], dropout=0.0)).to(DEVICE)
    tokens = torch.arange(5, 17, device=DEVICE).view(3, 4)
    mask, found = torch.arange(4, device=DEVICE) < torch.tensor([[4], [3], [1]], device=DEVICE), []
    monkeypatch.setattr(core, "_has_kernels", lambda query: True)
    for ours in (False, True):
        monkeypatch.setattr(core, "single", single if ours else None)
        logits = model.step(tokens, model.start(tokens, mask))[0]
        learned = torch.autograd.grad((logits * logits.cos()).sum(), list(model.parameters()))
        found.append(torch.cat([logits.detach().flatten(), *(each.flatten() for each in learned)]))
    assert apart(found[1], found[0]) < 1e-4


def test_an_additive_score_of_another_size_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "_has_kernels", lambda query: True)
    monkeypatch.setattr(core, "single", single)
    query, key = torch.randn(2, 1, 1, 8, device=DEVICE), torch.randn(2, 1, 5, 8, device=DEVICE)
    with pytest.raises(InputError, match=r"attend cannot use query float32 \(2, 1, 1, 8\)"):
        attend(query, key, key, Additive(16).to(DEVICE), weights=False)


@pytest.mark.parametrize("additive", [True, False], ids=["additive", "product"])
def test_the_kernels_pass_torchs_operator_check(additive: bool) -> None:
    query, key, value = (torch.randn(*shape, device=DEVICE) for shape in ((2, 8), (2, 5, 8), (2, 5, 12)))
    v, b = (torch.randn(8, device=DEVICE) for _ in range(2))
    given = [query, key, value, *([v, b] if additive else [])]
    for tensor in given:
        tensor.requires_grad_()
    mask = torch.ones(2, 5, dtype=torch.bool, device=DEVICE)
    weights = (v, b) if additive else (None, None)
    torch.library.opcheck(_attend, (query, key, value, mask, *weights, 0.25), raise_exception=True)


def test_large_numbers_stay_finite() -> None:
    query, key = torch.full((1, 1, 1, 4), 300.0, device=DEVICE), torch.full((1, 1, 2, 4), -200.0, device=DEVICE)
    weights = (torch.ones(4, device=DEVICE), torch.zeros(4, device=DEVICE))
    for additive in (weights, None):
        query.requires_grad_()
        context = attend_single(query, key, torch.ones(1, 1, 2, 4, device=DEVICE), None, 1.0, additive)
        (gradient,) = torch.autograd.grad(context.sum(), query)
        assert context.tolist() == [[[[1.0] * 4]]]
        assert gradient.isfinite().all()


def test_values_may_have_a_lower_precision_than_keys() -> None:
    query, key = (torch.randn(2, 1, tokens, 8, device=DEVICE, requires_grad=True) for tokens in (1, 5))
    value = torch.randn(2, 1, 5, 8, device=DEVICE, dtype=torch.float16, requires_grad=True)
    context = attend_single(query, key, value, None, 1.0, None)
    context.backward(torch.ones_like(context))
    assert (context.dtype, query.grad.dtype, value.grad.dtype) == (torch.float16, torch.float32, torch.float16)


def test_an_empty_batch_has_an_empty_context() -> None:
    query, key = (torch.randn(0, 1, tokens, 8, device=DEVICE) for tokens in (1, 5))
    assert attend_single(query, key, key, None, 1.0, None).shape == (0, 1, 1, 8)


@pytest.mark.parametrize(
    ("query", "key", "mask"),
    [((2, 1, 3, 8), (2, 1, 5, 8), None), ((2, 2, 1, 8), (2, 2, 5, 8), None), ((2, 1, 1, 8), (1, 1, 5, 8), None),
     ((2, 1, 1, 8), (2, 1, 300, 8), None), ((2, 1, 1, 8), (2, 1, 5, 8), (1, 1, 1, 5))],
    ids=["queries", "heads", "one sentence for all", "long", "one mask for all"],
)  # fmt: skip
def test_unsuitable_inputs_are_declined(
    query: tuple[int, ...], key: tuple[int, ...], mask: tuple[int, ...] | None
) -> None:
    seen = None if mask is None else torch.ones(mask, dtype=torch.bool)
    assert not applies(torch.zeros(query), torch.zeros(key), torch.zeros(key), seen)
    assert applies(torch.zeros(2, 1, 1, 8), torch.zeros(2, 1, 5, 8), torch.zeros(2, 1, 5, 9), None)
