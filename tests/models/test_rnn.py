"""The recurrent family, against the equations of its papers written out one step at a time."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from regard.config import ModelConfig
from regard.models import build
from regard.models.rnn import RecurrentLayer


def small(**changes: object) -> nn.Module:
    config = ModelConfig(
        **{
            "family": "rnn",
            "vocabulary": 20,
            "size": 6,
            "embedding": 5,
            "encoder_size": 4,
            "output_size": 3,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "tie_embeddings": "none",
            **changes,
        }
    )
    model = build(config).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def cell(layer: RecurrentLayer, x: Tensor, s: Tensor) -> Tensor:
    """torch's GRU for one sentence, from its documentation."""
    w, u, b, c = layer.rnn.all_weights[0]
    (wr, wz, wn), (ur, uz, un), (br, bz, bn), (cr, cz, cn) = (p.chunk(3) for p in (w, u, b, c))
    r = torch.sigmoid(wr @ x + br + ur @ s + cr)
    z = torch.sigmoid(wz @ x + bz + uz @ s + cz)
    n = torch.tanh(wn @ x + bn + r * (un @ s + cn))
    return (1 - z) * n + z * s


def annotations(model: nn.Module, source: list[int]) -> tuple[list[Tensor], Tensor, Tensor]:
    """h_j = [onward; backward], and the two last states."""
    layer, embedded = model.encoder[0], [model.source.weight[token] for token in source]
    onward, backward = [torch.zeros(4).double()], [torch.zeros(4).double()]
    for x in embedded:
        onward.append(cell(layer.left_to_right, x, onward[-1]))
    for x in reversed(embedded):
        backward.append(cell(layer.right_to_left, x, backward[-1]))
    h = [torch.cat([f, b]) for f, b in zip(onward[1:], reversed(backward[1:]), strict=True)]
    return h, onward[-1], backward[-1]


SOURCE, TARGET = [3, 7, 1, 9], [2, 5, 8]


def test_feed_input_is_bahdanaus_decoder() -> None:
    model = small(score="additive", feed="input")
    h, _, first_backward = annotations(model, SOURCE)
    s = torch.tanh(model.bridge.weight @ first_backward + model.bridge.bias)
    expected = []
    for token in TARGET:
        y = model.target.weight[token]
        query = model.query_proj.weight @ s
        e = torch.stack([
            model.score.v @ torch.tanh(query + model.key_proj.weight @ hj + model.score.b) for hj in h
        ])  # fmt: skip
        c = sum(a * hj for a, hj in zip(e.softmax(0), h, strict=True))
        t = model.deep_output.weight @ torch.cat([s, y, c]) + model.deep_output.bias  # U s(i-1) + V E y(i-1) + C c(i)
        maxout = torch.stack([torch.maximum(t[2 * j], t[2 * j + 1]) for j in range(3)])
        expected.append(model.output.weight @ maxout + model.output_bias)
        s = cell(model.decoder[0], torch.cat([y, c]), s)
    logits, _ = model.step(torch.tensor([TARGET]), model.start(torch.tensor([SOURCE])))
    torch.testing.assert_close(logits[0], torch.stack(expected))


def test_feed_output_is_z_of_context_and_state_through_two_layers() -> None:
    model = small(score="general", feed="output")
    h, _, first_backward = annotations(model, SOURCE)
    s = torch.tanh(model.bridge.weight @ first_backward + model.bridge.bias)
    expected = []
    for token in TARGET:
        s = cell(model.decoder[0], model.target.weight[token], s)
        e = torch.stack([s @ model.score.weight @ hj for hj in h])
        c = sum(a * hj for a, hj in zip(e.softmax(0), h, strict=True))
        z = torch.cat([c, s])
        expected.append(
            model.output.weight @ (model.deep_output.weight @ z + model.deep_output.bias) + model.output_bias
        )
    logits, _ = model.step(torch.tensor([TARGET]), model.start(torch.tensor([SOURCE])))
    torch.testing.assert_close(logits[0], torch.stack(expected))


def test_without_attention_one_fixed_vector_is_the_context_of_every_step() -> None:
    model = small(score="none", feed="input")
    _, last, first_backward = annotations(model, SOURCE)
    c = torch.cat([last, first_backward])
    s = torch.tanh(model.bridge.weight @ c + model.bridge.bias)
    expected = []
    for token in TARGET:
        y = model.target.weight[token]
        t = model.deep_output.weight @ torch.cat([s, y, c]) + model.deep_output.bias
        maxout = t.unflatten(0, (3, 2)).amax(-1)
        expected.append(model.output.weight @ maxout + model.output_bias)
        s = cell(model.decoder[0], torch.cat([y, c]), s)
    logits, _ = model.step(torch.tensor([TARGET]), model.start(torch.tensor([SOURCE])))
    torch.testing.assert_close(logits[0], torch.stack(expected))


@pytest.mark.parametrize(
    ("score", "feed"), [("none", "input"), ("none", "output"), ("additive", "output"), ("general", "output")]
)
def test_teacher_forcing_is_one_fused_call_per_layer_and_one_attention(
    score: str, feed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from regard.models import rnn

    model = small(score=score, feed=feed, decoder_layers=2)
    state = model.start(torch.tensor([SOURCE]))
    calls: list[str] = []
    for layer in model.decoder:
        layer.rnn.register_forward_hook(lambda *_: calls.append("rnn"))
    attend = rnn.attend_unchecked
    monkeypatch.setattr(rnn, "attend_unchecked", lambda *a: (calls.append("attend"), attend(*a))[1])
    monkeypatch.setattr(RecurrentLayer, "step", lambda *_: pytest.fail("one step at a time"))
    model.step(torch.tensor([TARGET]), state)
    assert calls == ["rnn", "rnn"] + ([] if score == "none" else ["attend"])


def test_a_dot_score_has_no_projections() -> None:
    model = small(score="dot", encoder_size=3, size=6)
    assert model.query_proj is None
    assert model.key_proj is None
    assert [name for name, _ in model.named_parameters() if "score" in name] == []
