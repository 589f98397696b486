"""An encoder-decoder warm-started from two berts: what was copied, tied, new, and that it is the same encoder."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from regard import ConfigError
from regard.config import ModelConfig
from regard.models import build
from regard.models.warm_start import warm_config, warm_weights

BERT = ModelConfig(
    family="bert",
    vocabulary=40,
    size=16,
    heads=4,
    feed_forward_size=32,
    encoder_layers=2,
    max_positions=12,
    activation="gelu",
)


def start(model: torch.nn.Module, *weights: dict[str, torch.Tensor]) -> tuple[set[str], set[str]]:
    """Copy the weights of two berts; the names of tensors that are new, and of those that are not used."""
    tensors, origins = warm_weights(*weights)
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for name in parameters.keys() & origins.keys():
            parameters[name].copy_(tensors[origins[name]])
    return parameters.keys() - origins.keys(), tensors.keys() - {origins.get(name) for name in parameters}


def warmed(decoder: ModelConfig = BERT):
    berts = [build(BERT).eval(), build(decoder).eval()]
    with torch.no_grad():
        for parameter in [parameter for bert in berts for parameter in bert.parameters()]:
            parameter.add_(0.1 * torch.randn_like(parameter))
    model = build(warm_config(BERT, decoder)).eval()
    start(model, *(bert.state_dict() for bert in berts))
    return model, *berts


def test_the_encoder_gives_the_output_of_the_bert() -> None:
    model, bert, _ = warmed()
    source, mask = torch.randint(0, 40, (2, 6)), torch.arange(6) < torch.tensor([[6], [4]])
    record: dict[str, torch.Tensor] = {}
    model.start(source, mask, record)
    torch.testing.assert_close(record["encoder.output"][mask], bert.encode(source, mask=mask)[mask])


def test_the_decoder_without_cross_attention_is_the_other_bert_made_causal() -> None:
    model, _, bert = warmed()
    for block in model.decoder.blocks:
        torch.nn.init.zeros_(block.cross.out_proj.weight)
        block.cross_norm = torch.nn.Identity()
    target = torch.randint(0, 40, (2, 4))
    record: dict[str, torch.Tensor] = {}
    model.step(target, model.start(torch.randint(0, 40, (2, 6))), record)
    for block in bert.encoder.blocks:  # the same bert, made to see only what is before
        ask = block.attention.forward
        block.attention.forward = lambda *a, ask=ask, **k: ask(*a, **{**k, "causal": True})
    torch.testing.assert_close(record["decoder.output"], bert.encode(target))


@pytest.mark.parametrize("tie", ["all", "target", "none"])
def test_only_the_cross_attention_is_new(tie: str) -> None:
    bert = build(BERT).state_dict()
    new, unused = start(build(dataclasses.replace(warm_config(BERT, BERT), tie_embeddings=tie)), bert, bert)
    assert new
    assert all(".cross" in name for name in new)
    heads = {name for name in unused if name.split(": ")[1].startswith(("pooler.", "head."))}
    assert "encoder: head.bias" in heads
    assert "decoder: head.bias" not in heads
    assert all(name.startswith("decoder: source.") and tie == "all" for name in unused - heads)


def test_two_vocabularies_stay_separate() -> None:
    decoder = dataclasses.replace(BERT, vocabulary=55)
    model, _, _ = warmed(decoder=decoder)
    logits, _ = model.step(torch.tensor([[54]]), model.start(torch.tensor([[39]])))
    assert logits.shape[-1] == 55


def test_berts_of_different_sizes_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"differ in model.size \(16 and 32\)"):
        warm_config(BERT, dataclasses.replace(BERT, size=32))


def test_a_gpt_is_not_a_bert() -> None:
    with pytest.raises(ConfigError, match=r"takes two bert models, and one is model.family = gpt"):
        warm_config(BERT, ModelConfig(family="gpt"))


def test_a_smaller_stack_takes_the_first_layers_of_a_bert() -> None:
    bert = build(BERT).state_dict()
    new, unused = start(build(dataclasses.replace(warm_config(BERT, BERT), decoder_layers=1)), bert, bert)
    assert all(".cross" in name for name in new)
    assert "decoder: encoder.blocks.1.attention.in_proj.weight" in unused


def test_berts_with_rms_norms_work_too() -> None:
    shape = dataclasses.replace(BERT, norm="rms")
    bert = build(shape).state_dict()
    new, _ = start(build(warm_config(shape, shape)), bert, bert)
    assert all(".cross" in name for name in new)
