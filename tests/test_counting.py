"""Counting: parameters are those of the built model, FLOPs those of torch's own counter."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

import regard
from regard.config import ConfigError, ModelConfig
from regard.counting import Part, count, count_flops, estimate_memory
from regard.devices import supports_bf16
from regard.models import build
from tests.models.families import ALL, GENERATORS

TOTALS = {
    "bert-base": 109_482_240,
    "bert-large": 335_141_888,
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "transformer-base": 63_082_496,
    "transformer-big": 214_245_376,
}


def check_parts(parts: Iterable[Part]) -> None:
    """The parts of a part add up to it, and a formula gives its number of parameters."""
    for part in parts:
        if part.parts:
            assert part.single == sum(inner.total for inner in part.parts), part.name
            check_parts(part.parts)
        elif part.single:
            assert eval(part.formula.replace("×", "*").replace(",", "")) == part.single, part


@pytest.mark.parametrize(("name", "total"), TOTALS.items())
def test_a_preset_has_its_published_number_of_parameters(name: str, total: int) -> None:
    assert regard.count(name).total == total


@st.composite
def configs(draw: st.DrawFn) -> ModelConfig:
    """Any config that is sound."""
    heads, groups = draw(st.sampled_from([(1, 0), (2, 1), (4, 2), (6, 3), (4, 0)]))
    family = draw(st.sampled_from(["rnn", "transformer", "bert", "gpt"]))
    values = {
        "family": family,
        "heads": heads,
        "key_value_heads": groups,
        "size": heads * draw(st.sampled_from([2, 4, 6])),
        "vocabulary": draw(st.integers(1, 50)),
        "feed_forward_size": draw(st.integers(1, 40)),
        "encoder_layers": draw(st.integers(1, 3)),
        "decoder_layers": draw(st.integers(1, 3)),
        "max_positions": draw(st.integers(1, 20)),
        "token_types": draw(st.integers(1, 3)),
    }
    for name, choices in {
        "positions": ["sinusoidal", "learned"],
        "norm": ["layer", "rms"],
        "norm_placement": ["post", "pre"],
        "activation": ["relu", "swiglu"],
        "tie_embeddings": ["all", "target", "none"],
        "cell": ["gru", "lstm"],
        "feed": ["input", "output"],
        "score": ["additive", "general", "cosine", "scaled_dot"],
    }.items():
        values[name] = draw(st.sampled_from(choices))
    for name in ("embedding_norm", "bias", "output_bias", "pooler", "mlm_head", "bidirectional", "scale_embeddings"):
        values[name] = draw(st.booleans())
    if family == "rnn" and values["score"] in ("additive", "general"):
        values |= {"embedding": draw(st.integers(1, 9)), "encoder_size": draw(st.integers(1, 9))}
    if family == "rnn":
        values["size"] *= 2  # readable both ways
    if values["tie_embeddings"] != "all":
        values["target_vocabulary"] = draw(st.integers(0, 30))
    return ModelConfig(**values)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(configs())
def test_the_parts_of_any_config_add_up_to_the_parameters_of_the_model(config: ModelConfig) -> None:
    counted = count(config)
    assert sum(counted.parts.values()) == counted.total == sum(p.numel() for p in build(config).parameters())
    check_parts(counted.tree)


def test_counting_allocates_nothing_and_leaves_the_random_state_alone() -> None:
    before = torch.get_rng_state()
    sizes = ["model.size=12288", "model.heads=96", "model.feed_forward_size=49152", "model.decoder_layers=96"]
    assert count("gpt2-xl", values=[*sizes, "model.max_positions=2048"]).total == 174_604_259_328  # the shape of GPT-3
    assert torch.equal(torch.get_rng_state(), before)


def test_bert_base_by_part_is_as_published() -> None:
    counted = count("bert-base")
    assert counted.parts == {"embeddings": 23_837_184, "layers": 85_054_464, "pooler": 590_592}
    assert counted.tree[1].single == 7_087_872
    assert counted.tree[1].times == 12


def test_bert_base_with_its_head_is_right() -> None:
    assert count("bert-base", values=["model.mlm_head=true"]).total == 110_104_890


def test_a_tied_output_matrix_is_counted_once() -> None:
    assert count("gpt2").parts["output"] == 0
    assert count("gpt2", values=["model.tie_embeddings=none"]).parts["output"] == 50257 * 768


def test_a_count_prints_converts_and_shows_itself() -> None:
    counted = count("bert-base", hardware="h200")
    assert "12 × 7,087,872" in str(counted)
    assert f"at {counted.time.utilisation:.0%} of the peak of 1 × h200" in str(counted)
    assert counted.to_dict()["parameters"]["parts"]["pooler"] == 590_592
    assert "<table>" in counted._repr_html_()


def uncounted(config: ModelConfig, source: int, target: int) -> int:
    """The products with the vector v of an additive score, which torch leaves out."""
    if config.score_name != "additive":
        return 0
    if config.family == "rnn":
        return 2 * config.size * source * target
    reads, writes = config.encoder_layers, config.decoder_layers
    pairs = {
        "bert": reads * target**2,
        "gpt": writes * target**2,
        "transformer": reads * source**2 + writes * (target**2 + target * source),
    }
    return 2 * config.size * pairs[config.family]


@pytest.mark.parametrize("name", ALL)
def test_flops_are_those_torch_counts(name: str) -> None:
    config = ALL[name]
    model = build(config).eval()
    source, target = torch.zeros(1, 7, dtype=torch.int64), torch.zeros(1, 5, dtype=torch.int64)
    model.double()  # in float32 a fused LSTM may run, one operation that torch does not count
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        if config.family == "bert":
            encoded = model.encode(target, record={})
            if model.head is not None:
                model.logits(encoded)
            if model.pooler is not None:
                model.pooler(encoded[:, 0])
        elif config.family == "gpt":
            model.step(target, model.start(target[:, :0]), {})
        else:
            record = {}  # explicit attention: its products are counted one by one
            model.step(target, model.start(source, record=record), record)
    assert counter.get_total_flops() == count_flops(config, 7, 5).forward - uncounted(config, 7, 5)


def saved_bytes(config: ModelConfig, batch: int, source: int, target: int, bf16: bool) -> int:
    """What autograd keeps of one forward pass, every storage once, the weights aside."""
    model = build(config).train()
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, torch.Tensor] = {}

    def pack(x: torch.Tensor) -> torch.Tensor:
        if x.untyped_storage().data_ptr() not in weights:
            kept[x.untyped_storage().data_ptr()] = x
        return x

    narrow = torch.autocast("cpu", torch.bfloat16, enabled=bf16)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x), narrow:
        tokens = torch.zeros(batch, target, dtype=torch.int64)
        if config.family == "bert":
            logits = model.logits(model.encode(tokens))
        else:
            begun = model.start(torch.zeros(batch, 0 if config.family == "gpt" else source, dtype=torch.int64))
            logits, _ = model.step(tokens, begun)
        loss = F.cross_entropy(logits.float().flatten(0, 1), tokens.flatten())
    if bf16:  # the weights' narrow copies are not activations, and the logits are still held
        for parameter in model.parameters():
            kept = {
                key: x
                for key, x in kept.items()
                if x.dtype != torch.bfloat16 or x.shape not in (parameter.shape, parameter.shape[::-1])
            }
        kept[logits.untyped_storage().data_ptr()] = logits
    size = sum(x.untyped_storage().nbytes() for x in kept.values())
    assert loss.isfinite()
    return size


@pytest.mark.parametrize(
    "name",
    ["transformer", "transformer-pre", "gpt", "gpt-llama", "bert", "rnn-additive-input-gru", "rnn-none-output-gru",
     "rnn-dot-output-gru", "rnn-additive-output-gru"],
)  # fmt: skip
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_activation_estimate_is_within_a_quarter_of_what_autograd_keeps(name: str, precision: str) -> None:
    if precision == "bf16" and not supports_bf16("cpu"):
        pytest.skip("without bf16 instructions other kernels run, which keep other tensors")
    config = dataclasses.replace(
        ALL[name], size=64, feed_forward_size=256, encoder_layers=3, decoder_layers=3, max_positions=64
    )
    measured = saved_bytes(config, 5, 20, 16, precision == "bf16")
    estimate = estimate_memory(config, count(config).total, 5, 20, 16, precision).activations
    assert estimate == pytest.approx(measured, rel=0.25)


def test_training_memory_is_sixteen_bytes_a_parameter_and_the_activations() -> None:
    needed = estimate_memory(ModelConfig(), 1000, 1, 8, 8, "fp32")
    assert needed.weights + needed.gradients + needed.optimizer == 16 * 1000
    assert needed.training == 16_000 + needed.activations


@pytest.mark.parametrize("name", ["transformer-grouped", "gpt", "gpt-llama"])
def test_the_cache_grows_by_the_estimated_bytes(name: str) -> None:
    model, config = build(GENERATORS[name]).eval(), GENERATORS[name]

    def held(target: int) -> int:
        _, state = model.step(torch.zeros(1, target, dtype=torch.int64), model.start(torch.zeros(1, 3).long()))
        return sum(x.numel() * 4 for cache in state.past.layers for x in cache)

    assert held(5) - held(4) == estimate_memory(config, 1, 1, 3, 3, "fp32").cache_per_token


def test_time_is_that_of_matrix_products_and_of_moving_activations() -> None:
    counted = count("gpt2", hardware="h200", tokens=10**9, batch=4, devices=8, price=2.0)
    products = counted.flops.training / 1024 / (0.73 * 989e12)
    moving = 8.3 * counted.memory.activations / (4 * 1024) / 4.8e12
    assert counted.time.seconds == pytest.approx(10**9 * (products + moving) / 8)
    assert counted.time.utilisation == pytest.approx(0.73 * products / (products + moving))
    assert counted.time.cost == pytest.approx(counted.time.device_hours * 2)


def test_the_cpu_of_this_machine_is_measured() -> None:
    counted = count("transformer-base", hardware="cpu")
    assert counted.memory.precision == "fp32"
    assert "measured with" in str(counted)
    assert counted.time.tokens_per_second == pytest.approx(1e9 / counted.time.seconds)
    assert 0 < counted.time.utilisation < 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hardware": "h20"}, "There is no hardware h20. Did you mean h200?"),
        ({"precision": "fp8"}, "There is no precision fp8"),
        ({"precision": "bf16", "hardware": "cpu"}, "hardware cpu is measured in fp32"),
        ({"tokens": math.inf}, r"tokens \(inf\) must be from 1 to 1e\+30"),
        ({"tokens": 0}, r"tokens \(0\) must be from 1 to 1e\+30"),
        ({"price": math.inf}, r"price \(inf\) must be from 0 to 1e\+09"),
        ({"devices": 0}, r"devices \(0\) must be from 1 to 1e\+06"),
        ({"batch": "x"}, r"batch \(x\) must be from 1 to 1e\+09"),
        ({"target": -3}, r"target \(-3\) must be from 1 to 1e\+06"),
        ({"source": 0}, r"source \(0\) must be from 1 to 1e\+06"),
        ({"price": 2.0, "hardware": None}, "price needs hardware, to know how fast a device is"),
        ({"target": 2000}, r"a sentence of 2000 tokens is longer than model.max_positions \(1024\)"),
        ({"values": ["model.size=96000000000000"]}, "model.size .* must be from 1 to 10,000,000"),
        ({"values": ["model.decoder_layers=1000000"]}, "model.decoder_layers .* must be from 1 to 1,000"),
    ],
)
def test_a_wrong_option_is_one_clear_error(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        count("gpt2", **{"hardware": "h200", **options})
