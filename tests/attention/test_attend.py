"""attend(): against slow references in float64, against torch, and by properties."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from regard import Additive, ConfigError, Cosine, General, InputError, attend
from regard.attention import scores
from regard.attention.masks import causal

SIZE = 8
NAMES = ["dot", "scaled_dot", "cosine", "additive", "general", "learned_cosine"]
PRODUCTS = [name for name in NAMES if name != "additive"]


def make(name: str, size: int = SIZE) -> str | nn.Module:
    learned = {"additive": lambda: Additive(size), "general": lambda: General(size), "learned_cosine": Cosine}
    if name not in learned:
        return name
    module = learned[name]()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return module


def inputs(queries: int = 4, keys: int = 5, size: int = SIZE, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    return [torch.randn(2, 3, n, size, dtype=dtype) for n in (queries, keys, keys)]


def slow_score(name: str, module: str | nn.Module, q: list[float], k: list[float]) -> float:
    """One score from its formula, one number at a time."""
    dot = sum(a * b for a, b in zip(q, k, strict=True))
    norms = math.sqrt(sum(a * a for a in q)) * math.sqrt(sum(b * b for b in k))
    if name == "dot":
        return dot
    if name == "scaled_dot":
        return dot / math.sqrt(len(q))
    if name == "cosine":
        return dot / norms / 0.1
    if name == "learned_cosine":
        return dot / norms / math.exp(module.log_temperature.item())
    if name == "additive":
        v, b = module.v.tolist(), module.b.tolist()
        return sum(v[i] * math.tanh(q[i] + k[i] + b[i]) for i in range(len(q)))
    weight = module.weight.tolist()
    return sum(q[i] * weight[i][j] * k[j] for i in range(len(q)) for j in range(len(k)))


@pytest.mark.parametrize("name", NAMES)
def test_every_score_equals_its_formula_written_out_in_float64(name: str) -> None:
    module = make(name)
    if isinstance(module, nn.Module):
        module.double()
    query, key, value = inputs(dtype=torch.float64)
    context, weights = attend(query, key, value, module)
    for b, h, q in [(0, 0, 0), (1, 2, 3), (0, 1, 2)]:
        exponentials = [math.exp(slow_score(name, module, query[b, h, q].tolist(), k.tolist())) for k in key[b, h]]
        expected = [e / sum(exponentials) for e in exponentials]
        torch.testing.assert_close(weights[b, h, q], torch.tensor(expected, dtype=torch.float64))
        gathered = sum(w * v for w, v in zip(expected, value[b, h], strict=True))
        torch.testing.assert_close(context[b, h, q], gathered)


@pytest.mark.parametrize("name", NAMES)
def test_the_gradient_of_every_score_is_right(name: str) -> None:
    module = make(name, 3)
    if isinstance(module, nn.Module):
        module.double()
    mask = torch.tensor([[True, True, False], [True, False, True]])
    tensors = [torch.randn(1, 2, n, 3, dtype=torch.float64, requires_grad=True) for n in (2, 3, 3)]
    parameters = list(module.parameters()) if isinstance(module, nn.Module) else []
    assert torch.autograd.gradcheck(lambda *t: attend(*t[:3], module, mask), (*tensors, *parameters))


def test_scaled_dot_equals_torchs_own() -> None:
    query, key, value = inputs()
    mask = torch.rand(2, 1, 4, 5) > 0.3
    mask[..., 0] = True
    expected = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    torch.testing.assert_close(attend(query, key, value, mask=mask)[0], expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("visible", ["all", "mask", "causal", "both"])
@pytest.mark.parametrize("name", NAMES)
def test_the_fused_path_gives_the_same_context_and_no_weights(name: str, visible: str, dtype: torch.dtype) -> None:
    module = make(name)
    if isinstance(module, nn.Module):
        module.to(dtype)
    query, key, value = inputs(5, 5, dtype=dtype)
    mask = torch.rand(2, 1, 5, 5) > 0.4 if visible in ("mask", "both") else None
    explicit, _ = attend(query, key, value, module, mask, causal=visible in ("causal", "both"))
    fused, weights = attend(query, key, value, module, mask, weights=False, causal=visible in ("causal", "both"))
    assert weights is None
    close = {"rtol": 1e-5, "atol": 1e-6} if dtype == torch.float32 else {"rtol": 3e-2, "atol": 3e-2}
    torch.testing.assert_close(fused, explicit, **close)


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_product_score_never_forms_the_weights_on_the_fused_path(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from regard.attention import core

    monkeypatch.setattr(core, "_softmax", lambda *_: pytest.fail("the weights were formed"))
    attend(*inputs(), make(name), weights=False)


shapes = st.tuples(st.integers(1, 3), st.integers(1, 2), st.integers(1, 5), st.integers(1, 6))


def drawn(shape: tuple[int, int, int, int], seed: int, scale: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    batch, heads, queries, keys = shape
    query, key, value = (scale * torch.randn(batch, heads, n, SIZE, generator=generator) for n in (queries, keys, keys))
    mask = torch.rand(batch, 1, queries, keys, generator=generator) > 0.5
    return query, key, value, mask


cases = given(
    shape=shapes, seed=st.integers(0, 2**31), scale=st.sampled_from([0.0, 0.1, 1.0, 30.0]), name=st.sampled_from(NAMES)
)
quick = settings(max_examples=60, deadline=None)


@quick
@cases
def test_weights_sum_to_one_where_a_key_is_visible(
    shape: tuple[int, int, int, int], seed: int, scale: float, name: str
) -> None:
    query, key, value, mask = drawn(shape, seed, scale)
    _, weights = attend(query, key, value, make(name), mask)
    torch.testing.assert_close(weights.sum(-1), mask.any(-1).expand(weights.shape[:-1]).float())


@quick
@cases
def test_hidden_keys_get_no_weight(shape: tuple[int, int, int, int], seed: int, scale: float, name: str) -> None:
    query, key, value, mask = drawn(shape, seed, scale)
    _, weights = attend(query, key, value, make(name), mask)
    assert (weights[~mask.expand_as(weights)] == 0).all()


@quick
@cases
def test_the_order_of_keys_does_not_matter(
    shape: tuple[int, int, int, int], seed: int, scale: float, name: str
) -> None:
    query, key, value, mask = drawn(shape, seed, scale)
    score = make(name)
    shuffled = torch.randperm(key.shape[-2], generator=torch.Generator().manual_seed(seed))
    expected, weights = attend(query, key, value, score, mask)
    context, moved = attend(query, key[..., shuffled, :], value[..., shuffled, :], score, mask[..., shuffled])
    torch.testing.assert_close(context, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(moved, weights[..., shuffled], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("weights", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_a_query_without_visible_keys_gets_zeros_with_finite_gradients(name: str, weights: bool) -> None:
    tensors = [x.requires_grad_() for x in inputs()]
    mask = torch.ones(2, 1, 4, 5, dtype=torch.bool)
    mask[0, 0, 2] = False
    context, _ = attend(*tensors, make(name), mask, weights)
    assert (context[0, :, 2] == 0).all()
    context.square().sum().backward()
    assert all(x.grad.isfinite().all() for x in tensors)


def test_causal_aligns_the_last_query_with_the_last_key() -> None:
    query, key, value = inputs(2, 5)
    _, weights = attend(query, key, value, causal=True)
    assert (weights[..., 0, 4] == 0).all()
    assert (weights[..., 1, 4] > 0).all()
    torch.testing.assert_close(attend(query, key, value, causal=True, weights=False)[0], weights @ value)
    torch.testing.assert_close(attend(query, key, value, mask=causal(2, 5))[1], weights)


def test_dropout_applies_to_the_weights_used_and_not_to_those_returned() -> None:
    query, key, value = inputs()
    context, weights = attend(query, key, value, dropout=0.5)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3, 4))
    assert not torch.allclose(context, weights @ value)


def test_an_additive_score_in_parts_is_the_same_with_the_same_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    score, (query, key, _) = Additive(SIZE), inputs(7, 5)
    learned = [query.requires_grad_(), key.requires_grad_(), score.v, score.b]
    at_once = score(query, key)
    expected = torch.autograd.grad(at_once.square().sum(), learned)
    monkeypatch.setattr(scores, "MAX_ADDITIVE_NUMBERS", 500)
    in_turn = score(query, key)
    torch.testing.assert_close(in_turn, at_once)
    for got, wanted in zip(torch.autograd.grad(in_turn.square().sum(), learned), expected, strict=True):
        torch.testing.assert_close(got, wanted)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("score", ["cosine", "learned_cosine"])
def test_the_cosine_of_a_zero_vector_is_zero_and_not_a_nan(score: str, dtype: torch.dtype) -> None:
    _, key, value = inputs(dtype=dtype)
    made = make(score)
    if isinstance(made, nn.Module):
        made.to(dtype)
    _, weights = attend(torch.zeros(2, 3, 4, SIZE, dtype=dtype), key, value, made)
    torch.testing.assert_close(weights, torch.full_like(weights, 1 / 5), rtol=1e-2, atol=1e-2)


def test_large_numbers_in_float16_are_scaled_before_they_overflow() -> None:
    query = torch.full((1, 1, 1, 64), 60.0, dtype=torch.float16)
    _, weights = attend(query, query, query)
    assert weights.item() == 1


@pytest.mark.parametrize("weights", [True, False])
def test_a_mask_of_keys_alone_serves_all_queries(weights: bool) -> None:
    query, key, value = inputs()
    mask = torch.tensor([True, True, False, True, False])
    context, _ = attend(query, key, value, mask=mask, weights=weights)
    torch.testing.assert_close(context, attend(query, key[..., mask, :], value[..., mask, :])[0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"score": "scaled_dott"}, "There is no score scaled_dott. Did you mean scaled_dot?"),
        ({"score": "additive"}, "score = additive has parameters: pass regard.Additive\\(size\\)"),
        ({"score": Additive(3)}, r"query float32 \(2, 3, 4, 8\), .*size of tensor a \(8\) must match .* b \(3\)"),
        ({"score": General(3)}, "attend cannot use query float32"),
        ({"score": None}, "'NoneType' object is not callable"),
        ({"score": Additive(8).double()}, "attend cannot use query float32"),
        ({"key": torch.zeros(2, 3, 5, 8, dtype=torch.int64)}, r"key int64 \(2, 3, 5, 8\)"),
        ({"value": torch.zeros(2, 3, 5, 8, dtype=torch.float64)}, r"value float64 \(2, 3, 5, 8\)"),
        ({"value": torch.zeros(2, 3, 4, 8)}, r"value float32 \(2, 3, 4, 8\): each key needs its value"),
        ({"key": torch.zeros(2, 3, 5, 7)}, r"key float32 \(2, 3, 5, 7\)"),
        ({"key": torch.zeros(3, 3, 5, 8)}, r"key float32 \(3, 3, 5, 8\)"),
        ({"mask": torch.ones(4, 5)}, "the mask must be bool, True where a key is visible"),
        ({"mask": torch.ones(3, 5, dtype=torch.bool)}, r"mask bool \(3, 5\)"),
        ({"mask": [True]}, "mask of type list"),
        ({"key": [1.0]}, "key of type list"),
        ({"dropout": 2.0}, "dropout probability has to be between 0 and 1"),
    ],
)
def test_bad_input_gets_one_clear_line(change: dict[str, object], message: str) -> None:
    query, key, value = inputs()
    with pytest.raises((ConfigError, InputError), match=message) as caught:
        attend(**{"query": query, "key": key, "value": value, **change})
    assert "\n" not in str(caught.value)


def test_cosine_of_keys_normalised_once_is_the_same() -> None:
    query, key, value = inputs()
    expected = attend(query, key, value, Cosine(), weights=False)[0]
    torch.testing.assert_close(
        attend(query, scores.unit(key), value, Cosine(unit_keys=True), weights=False)[0], expected
    )
