"""Counting: formula and built model agree to the last parameter, operations with torch's own counter."""

from __future__ import annotations

import json
import struct

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

import regard
from regard.config import PRESETS, ConfigError, ModelConfig, preset
from regard.counting import Scale, count, duration, memory, scale, stored, work
from regard.errors import FolderError
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


def built(config: ModelConfig) -> dict[str, int]:
    return {name: parameter.numel() for name, parameter in build(config, "meta").named_parameters()}


def agrees(config: ModelConfig) -> None:
    """Every part of the formula against the parameters that stand under its names."""
    counted, parameters = count(config), built(config)
    assert counted.total == sum(parameters.values())
    for part in counted.tree:
        assert part.total == sum(n for name, n in parameters.items() if name.startswith(part.where)), part.name


@pytest.mark.parametrize(("name", "total"), TOTALS.items())
def test_a_preset_has_its_published_number_of_parameters(name: str, total: int) -> None:
    assert regard.count(name).total == total


@pytest.mark.parametrize("name", PRESETS)
def test_the_formula_of_a_preset_is_the_built_model_part_by_part(name: str) -> None:
    agrees(preset(name).model)


@pytest.mark.parametrize("name", ALL)
def test_the_formula_of_every_kind_is_the_built_model_part_by_part(name: str) -> None:
    agrees(ALL[name])


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


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(configs())
def test_the_formula_of_any_config_is_the_built_model_part_by_part(config: ModelConfig) -> None:
    agrees(config)


def test_bert_base_by_part_is_as_published() -> None:
    counted = count("bert-base")
    assert counted.parts == {"embeddings": 23_837_184, "layers": 85_054_464, "pooler": 590_592}
    assert counted.tree[1].each == 7_087_872
    assert counted.tree[1].times == 12


def test_bert_base_with_its_head_is_said_and_right() -> None:
    assert "with the tied masked-token head: 110,104,890" in count("bert-base").remarks
    with_head = preset("bert-base").with_values(["model.mlm_head=true"])
    assert count(with_head).total == 110_104_890


def test_the_wrong_count_is_explained() -> None:
    remark = next(remark for remark in count("bert-base").remarks if "109,786,368" in remark)
    assert count("bert-base").total == 109_786_368 - 12 * 3 * (12 * 768 - 768)
    assert "304,128" in remark


def test_parts_of_the_tree_add_up() -> None:
    def check(part: dict) -> None:
        if "parts" in part:
            inner = sum(child["total"] for child in part["parts"])
            assert part["total"] == inner * part.get("times", 1), part["name"]
            for child in part["parts"]:
                check(child)

    for name in PRESETS:
        for part in count(name).as_dict()["tree"]:
            check(part)


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
def test_the_operations_are_those_torch_counts(name: str) -> None:
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
                model.pool(encoded)
        elif config.family == "gpt":
            model.step(target, model.start(target[:, :0]), {})
        else:
            record = {}  # explicit attention: its products are counted one by one
            model.step(target, model.start(source, record=record), record)
    assert counter.get_total_flops() == work(config, 7, 5).forward - uncounted(config, 7, 5)


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
    import dataclasses

    config = dataclasses.replace(
        ALL[name], size=64, feed_forward_size=256, encoder_layers=3, decoder_layers=3, max_positions=64
    )
    measured = saved_bytes(config, 5, 20, 16, precision == "bf16")
    estimate = memory(config, count(config).total, 5, 20, 16, precision).activations
    assert estimate == pytest.approx(measured, rel=0.25)


def test_training_memory_is_sixteen_bytes_a_parameter_and_the_activations() -> None:
    needed = memory(ModelConfig(), 1000, 1, 8, 8, "fp32")
    assert needed.weights + needed.gradients + needed.optimizer == 16 * 1000
    assert needed.training == 16_000 + needed.activations


@pytest.mark.parametrize("name", ["transformer-grouped", "gpt", "gpt-llama"])
def test_the_cache_grows_by_what_is_said(name: str) -> None:
    model, config = build(GENERATORS[name]).eval(), GENERATORS[name]

    def held(target: int) -> int:
        _, state = model.step(torch.zeros(1, target, dtype=torch.int64), model.start(torch.zeros(1, 3).long()))
        return sum(x.numel() * 4 for cache in state.past.layers for x in cache)

    assert held(5) - held(4) == memory(config, 1, 1, 3, 3, "fp32").cache_per_token


def test_time_is_operations_over_rate() -> None:
    done = work(preset("gpt2").model, 0, 1024)
    took = duration(done, hardware="h200", tokens=10**9, utilisation=0.5, precision="bf16", devices=8, price=2.0)
    assert took.seconds == pytest.approx(10**9 * done.training / 1024 / (989e12 * 0.5 * 8))
    assert took.as_dict()["cost"] == pytest.approx(took.device_hours * 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hardware": "h20"}, "There is no hardware h20. Did you mean h200?"),
        ({"tokens": float("inf")}, r"tokens \(inf\) must be from 1 to 1e30"),
        ({"price": float("inf")}, r"price \(inf\) must be at least 0"),
        ({"utilisation": 1.5}, r"utilisation \(1.5\) must be above 0 and at most 1"),
        ({"tokens": 0}, r"tokens \(0\) must be from 1 to 1e30"),
    ],
)
def test_time_refuses_what_makes_no_sense(change: dict[str, object], message: str) -> None:
    asked = {"hardware": "h200", "tokens": 1, "utilisation": 0.5, "precision": "bf16", "devices": 1, "price": 0.0}
    with pytest.raises(ConfigError, match=message):
        duration(work(ModelConfig(), 1, 1), **{**asked, **change})


def scaled(name: str, devices: int, *, sharded: bool, batch: int = 64, link: float = 50.0) -> Scale:
    shape = preset(name).model
    counted, done = count(shape), work(shape, 32, 32)
    needed = memory(shape, counted.total, batch, 32, 32, "bf16")
    how = {"hardware": "h200", "precision": "bf16", "utilisation": 0.5, "batch": batch, "link": link}
    return scale(counted, done, needed, devices=devices, sharded=sharded, **how)


def test_an_update_on_many_devices_is_computed_by_all_and_sends_the_gradients_round() -> None:
    one, many = (scaled("transformer-base", devices, sharded=False) for devices in (1, 8))
    assert one.communication == 0
    assert many.compute == pytest.approx(one.compute / 8)
    assert many.communication == pytest.approx(2 * 4 * 63_082_496 * 7 / 8 / 50e9)


def test_divided_weights_send_half_as_much_again_and_leave_more_memory() -> None:
    whole, divided = (scaled("transformer-big", 64, sharded=sharded) for sharded in (False, True))
    assert divided.communication == pytest.approx(1.5 * whole.communication)
    assert divided.memory < whole.memory / 2


def test_more_devices_than_sentences_compute_no_faster() -> None:
    assert scaled("gpt2", 512, sharded=False).compute == scaled("gpt2", 64, sharded=False).compute


@pytest.mark.parametrize(("devices", "link", "message"), [(0, 1.0, r"gpus \(0\)"), (8, 0.0, r"link \(0.0\)")])
def test_many_devices_refuse_what_makes_no_sense(devices: int, link: float, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        scaled("gpt2", devices, sharded=False, link=link)


def test_the_parameters_of_a_folder_are_read_off_the_header(tmp_path) -> None:
    header = json.dumps({"a": {"shape": [3, 4]}, "b": {"shape": [5]}, "__metadata__": {}}).encode()
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    assert stored(tmp_path) == 17


@pytest.mark.parametrize("content", [b"", b"1234567", b"\xff" * 8, struct.pack("<Q", 4) + b"null", b"\x02" + b"\0" * 7])
def test_a_damaged_header_is_an_error_and_not_a_traceback(tmp_path, content: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(FolderError, match="is damaged"):
        stored(tmp_path)
