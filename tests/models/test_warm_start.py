"""An encoder-decoder warm-started from two berts: what was copied, tied, new, and that it is the same encoder."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from regard import ConfigError
from regard.config import ModelConfig
from regard.models import build
from regard.models.warm_start import warm_config, warm_start

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


def warmed(tie: str = "target", decoder: ModelConfig = BERT):
    encoder_model, decoder_model = build(BERT).eval(), build(decoder).eval()
    with torch.no_grad():
        for parameter in [*encoder_model.parameters(), *decoder_model.parameters()]:
            parameter.add_(0.1 * torch.randn_like(parameter))
    model = build(warm_config(BERT, decoder, tie_embeddings=tie)).eval()
    report = warm_start(model, encoder_model.state_dict(), decoder_model.state_dict())
    return model, report, encoder_model, decoder_model


def test_the_encoder_gives_the_output_of_the_bert() -> None:
    model, _, bert, _ = warmed()
    source, mask = torch.randint(0, 40, (2, 6)), torch.arange(6) < torch.tensor([[6], [4]])
    record: dict[str, torch.Tensor] = {}
    model.start(source, mask, record)
    torch.testing.assert_close(record["encoder.output"][mask], bert.encode(source, mask=mask)[mask])


def test_the_decoder_without_cross_attention_is_the_other_bert_made_causal() -> None:
    model, _, _, bert = warmed()
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
def test_every_tensor_is_either_copied_or_tied_or_new(tie: str) -> None:
    model, report, _, _ = warmed(tie)
    names = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    groups = [set(report.copied), set(report.tied) & names, set(report.new)]
    assert set.union(*groups) == names
    assert sum(map(len, groups)) == len(names)


def test_only_the_cross_attention_is_new() -> None:
    _, report, _, _ = warmed()
    assert report.new
    assert all(".cross" in name for name in report.new)
    assert report.tied == {"output.weight": "target.token.weight"}


def test_unused_tensors_are_reported() -> None:
    _, report, _, _ = warmed()
    assert {name.split(": ")[1].split(".")[0] for name in report.unused} == {"pooler", "head"}
    assert "encoder: head.bias" in report.unused
    assert "decoder: head.bias" not in report.unused


def test_two_vocabularies_stay_separate() -> None:
    decoder = dataclasses.replace(BERT, vocabulary=55)
    model, _, _, _ = warmed(decoder=decoder)
    logits, _ = model.step(torch.tensor([[54]]), model.start(torch.tensor([[39]])))
    assert logits.shape[-1] == 55


def test_berts_of_different_sizes_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"differ in model.size \(16 and 32\)"):
        warm_config(BERT, dataclasses.replace(BERT, size=32))


def test_a_gpt_is_not_a_bert() -> None:
    with pytest.raises(ConfigError, match=r"takes two bert models, and one is model.family = gpt"):
        warm_config(BERT, ModelConfig(family="gpt"))


def test_a_smaller_stack_takes_the_first_layers_of_a_bert() -> None:
    bert = build(BERT)
    model = build(dataclasses.replace(warm_config(BERT, BERT), decoder_layers=1))
    report = warm_start(model, bert.state_dict(), bert.state_dict())
    assert all(".cross" in name for name in report.new)
    assert "decoder: encoder.blocks.1.attention.in_proj.weight" in report.unused


def test_berts_with_rms_norms_work_too() -> None:
    shape = dataclasses.replace(BERT, norm="rms")
    bert, model = build(shape), build(warm_config(shape, shape))
    report = warm_start(model, bert.state_dict(), bert.state_dict())
    assert all(".cross" in name for name in report.new)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("positions", "rotary", r"a warm start needs model\.positions = learned"),
        ("embedding_norm", False, r"a warm start needs model\.embedding_norm = true"),
        ("scale_embeddings", True, r"a warm start needs model\.scale_embeddings = false"),
        ("output_bias", False, r"a warm start needs model\.output_bias = true"),
        ("norm", "rms", r"does not use the encoder's source\.norm\.bias"),
        ("norm_placement", "pre", r"the encoder's weights lack encoder\.norm\.weight"),
        ("bias", False, r"does not use the encoder's encoder\.blocks\.0\.attention\.in_proj\.bias"),
        ("score", "general", r"the encoder's weights lack encoder\.blocks\.0\.attention\.score"),
        (
            "size",
            8,
            r"source\.token\.weight has shape \(40, 8\) and the encoder's source\.token\.weight has \(40, 16\)",
        ),
        ("encoder_layers", 3, r"the encoder's weights lack encoder\.blocks\.2\."),
    ],
)
def test_a_model_of_another_shape_is_refused(field: str, value: object, message: str) -> None:
    weights = build(BERT).state_dict()
    model = build(dataclasses.replace(warm_config(BERT, BERT), **{field: value}))
    with pytest.raises(
        ConfigError, match=f"{message}.*: pass the weights of two berts, and a model built from warm_config"
    ):
        warm_start(model, weights, weights)


def test_weights_with_other_names_are_refused() -> None:
    model = build(warm_config(BERT, BERT))
    with pytest.raises(ConfigError, match=r"the encoder's weights lack source.token.weight"):
        warm_start(model, {"bert.embeddings.word_embeddings.weight": torch.zeros(40, 16)}, {})
