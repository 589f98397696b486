"""The same weights give the same logits, hidden states and attentions as independent implementations."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
import transformers
from torch import Tensor, nn

from regard.config import ModelConfig
from regard.interop import names
from regard.interop.names import Row
from regard.interop.weights import Source, to_ours
from regard.models import build

CLOSE = {"rtol": 1e-5, "atol": 1e-5}
VOCABULARY = 97
SHAPE = {"vocabulary": VOCABULARY, "size": 32, "heads": 4, "feed_forward_size": 64}
MASK = torch.arange(7) < torch.tensor([[7], [4], [2]])


def tokens(rows: int = 3, length: int = 7) -> Tensor:
    return torch.randint(3, VOCABULARY, (rows, length))


def shaken(model: nn.Module) -> nn.Module:
    """Every parameter away from its starting value, so that none can be missed: biases are not zero, norms not one."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


def ours(config: ModelConfig, rows: Iterable[Row], theirs: nn.Module) -> nn.Module:
    model = build(config)
    shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    tensors = to_ours(rows, Source(theirs.state_dict(), "", Path("theirs")), shapes, config)
    missing, unexpected = model.load_state_dict({name: x.make() for name, x in tensors.items()}, strict=False)
    assert not unexpected
    assert all(name.startswith("target.") for name in missing)  # the second name of a tied table
    return model.eval()


def same(record: dict[str, Tensor], stack: str, hidden: tuple[Tensor, ...], layers: int) -> None:
    """Hidden states as `transformers` lists them: the embeddings, then each layer, the last one after a final norm."""
    torch.testing.assert_close(record[f"{stack}.embedding"], hidden[0], **CLOSE)
    for i in range(layers - 1):
        torch.testing.assert_close(record[f"{stack}.{i}.hidden"], hidden[i + 1], **CLOSE)
    torch.testing.assert_close(record[f"{stack}.output"], hidden[-1], **CLOSE)


def same_weights(record: dict[str, Tensor], names: str, attentions: tuple[Tensor, ...]) -> None:
    assert attentions
    for i, attention in enumerate(attentions):
        torch.testing.assert_close(record[names.format(i)], attention, **CLOSE)


def test_bert_with_its_masked_head_equals_transformers() -> None:
    theirs = shaken(
        transformers.BertForPreTraining(
            transformers.BertConfig(
                vocab_size=VOCABULARY, hidden_size=32, num_attention_heads=4, num_hidden_layers=3, intermediate_size=64,
                max_position_embeddings=16, attn_implementation="eager",
            )
        )
    )  # fmt: skip
    config = ModelConfig(
        **SHAPE, family="bert", encoder_layers=3, max_positions=16, activation="gelu", norm_epsilon=1e-12
    )
    model = ours(config, names.bert(config), theirs)
    source, types = tokens(), torch.randint(0, 2, (3, 7))
    record: dict[str, Tensor] = {}
    encoded = model.encode(source, types, MASK, record)
    expected = theirs(
        source, attention_mask=MASK.long(), token_type_ids=types, output_hidden_states=True, output_attentions=True
    )
    same(record, "encoder", expected.hidden_states, 3)
    same_weights(record, "encoder.{}.self", expected.attentions)
    torch.testing.assert_close(model.logits(encoded), expected.prediction_logits, **CLOSE)
    pooled = theirs.bert(source, attention_mask=MASK.long(), token_type_ids=types).pooler_output
    torch.testing.assert_close(torch.tanh(model.pooler(encoded[:, 0])), pooled, **CLOSE)


def test_gpt_equals_transformers_gpt2() -> None:
    theirs = shaken(
        transformers.GPT2LMHeadModel(
            transformers.GPT2Config(
                vocab_size=VOCABULARY, n_embd=32, n_head=4, n_layer=3, n_inner=64, n_positions=16,
                attn_implementation="eager", bos_token_id=1, eos_token_id=2,
            )
        )
    )  # fmt: skip
    config = ModelConfig(
        **SHAPE, family="gpt", decoder_layers=3, max_positions=16, positions="learned", norm_placement="pre",
        activation="gelu_tanh", scale_embeddings=False,
    )  # fmt: skip
    model = ours(config, names.gpt2(config), theirs)
    text = tokens()
    record: dict[str, Tensor] = {}
    logits, _ = model.step(text, model.start(text[:, :0]), record)
    expected = theirs(text, output_hidden_states=True, output_attentions=True)
    torch.testing.assert_close(logits, expected.logits, **CLOSE)
    same(record, "decoder", expected.hidden_states, 3)
    same_weights(record, "decoder.{}.self", expected.attentions)


@pytest.mark.parametrize("tie", ["all", "none"])
def test_gpt_with_rotary_rms_swiglu_and_grouped_keys_equals_transformers_llama(tie: str) -> None:
    theirs = shaken(
        transformers.LlamaForCausalLM(
            transformers.LlamaConfig(
                vocab_size=VOCABULARY, hidden_size=32, num_attention_heads=4, num_key_value_heads=2,
                num_hidden_layers=3, intermediate_size=48, max_position_embeddings=64, rms_norm_eps=1e-6,
                attn_implementation="eager",
                tie_word_embeddings=tie == "all",
            )
        )
    )  # fmt: skip
    config = ModelConfig(
        **{**SHAPE, "feed_forward_size": 48},
        family="gpt",
        decoder_layers=3,
        key_value_heads=2,
        positions="rotary",
        norm="rms",
        norm_placement="pre",
        norm_epsilon=1e-6,
        activation="swiglu",
        bias=False,
        scale_embeddings=False,
        tie_embeddings=tie,
    )
    model = ours(config, names.llama(config), theirs)
    text = tokens()
    record: dict[str, Tensor] = {}
    logits, _ = model.step(text, model.start(text[:, :0]), record)
    expected = theirs(text, output_hidden_states=True, output_attentions=True)
    torch.testing.assert_close(logits, expected.logits, **CLOSE)
    same(record, "decoder", expected.hidden_states, 3)
    same_weights(record, "decoder.{}.self", expected.attentions)


def test_transformer_equals_transformers_marian() -> None:
    theirs = transformers.MarianMTModel(
        transformers.MarianConfig(
            vocab_size=VOCABULARY, d_model=32, encoder_attention_heads=4, decoder_attention_heads=4, encoder_layers=3,
            decoder_layers=2, encoder_ffn_dim=64, decoder_ffn_dim=64, max_position_embeddings=16, pad_token_id=0,
            eos_token_id=2, decoder_start_token_id=0, scale_embedding=True, activation_function="swish",
            attn_implementation="eager", forced_eos_token_id=None,
        )
    )  # fmt: skip
    positions = {name: value.clone() for name, value in theirs.state_dict().items() if "embed_positions" in name}
    shaken(theirs)
    theirs.load_state_dict(positions, strict=False)  # the sinusoids are parameters there, but not to be shaken
    theirs.final_logits_bias.normal_()
    config = ModelConfig(
        **SHAPE, encoder_layers=3, decoder_layers=2, positions="sinusoidal_halves", activation="silu", output_bias=True
    )
    model = ours(config, names.seq2seq(config), theirs)
    source, target = tokens(), tokens(length=5)
    record: dict[str, Tensor] = {}
    logits, _ = model.step(target, model.start(source, MASK, record), record)
    expected = theirs(
        source, attention_mask=MASK.long(), decoder_input_ids=target, output_hidden_states=True, output_attentions=True
    )
    torch.testing.assert_close(logits, expected.logits, **CLOSE)
    same(record, "encoder", expected.encoder_hidden_states, 3)
    same(record, "decoder", expected.decoder_hidden_states, 2)
    same_weights(record, "encoder.{}.self", expected.encoder_attentions)
    same_weights(record, "decoder.{}.self", expected.decoder_attentions)
    same_weights(record, "decoder.{}.cross", expected.cross_attentions)


def test_transformer_equals_transformers_bert_generation_with_cross_attention() -> None:
    shape = {
        "vocab_size": VOCABULARY, "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2,
        "intermediate_size": 64, "max_position_embeddings": 16, "attn_implementation": "eager",
    }  # fmt: skip
    encoder = transformers.BertGenerationEncoder(transformers.BertGenerationConfig(**shape))
    decoder = transformers.BertGenerationDecoder(
        transformers.BertGenerationConfig(**shape, is_decoder=True, add_cross_attention=True)
    )
    theirs = shaken(transformers.EncoderDecoderModel(encoder=encoder, decoder=decoder))
    config = ModelConfig(
        **SHAPE, encoder_layers=2, decoder_layers=2, max_positions=16, positions="learned", embedding_norm=True,
        scale_embeddings=False, activation="gelu", norm_epsilon=1e-12, tie_embeddings="target", output_bias=True,
    )  # fmt: skip
    model = ours(config, names.bert_generation(config), theirs)
    source, target = tokens(), tokens(length=5)
    record: dict[str, Tensor] = {}
    logits, _ = model.step(target, model.start(source, MASK, record), record)
    expected = theirs(
        source, attention_mask=MASK.long(), decoder_input_ids=target, output_hidden_states=True, output_attentions=True
    )
    torch.testing.assert_close(logits, expected.logits, **CLOSE)
    same(record, "encoder", expected.encoder_hidden_states, 2)
    same(record, "decoder", expected.decoder_hidden_states, 2)
    same_weights(record, "encoder.{}.self", expected.encoder_attentions)
    same_weights(record, "decoder.{}.self", expected.decoder_attentions)
    same_weights(record, "decoder.{}.cross", expected.cross_attentions)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")  # torch explains to itself why it is not in a hurry
@pytest.mark.parametrize("norm_placement", ["post", "pre"])
def test_the_papers_transformer_equals_nn_transformer(norm_placement: str) -> None:
    theirs = shaken(nn.Transformer(32, 4, 3, 2, 64, dropout=0.0, batch_first=True, norm_first=norm_placement == "pre"))
    if norm_placement == "post":  # torch adds a norm after the last layer, which the paper has not
        theirs.encoder.norm = theirs.decoder.norm = None
    config = ModelConfig(**SHAPE, encoder_layers=3, decoder_layers=2, norm_placement=norm_placement)
    model = build(config).eval()
    state = {}
    for side, layers in (("encoder", 3), ("decoder", 2)):
        for i in range(layers):
            theirs_layer, name = getattr(theirs, side).layers[i], f"{side}.blocks.{i}"
            parts = [("attention", "self_attn")] + ([("cross", "multihead_attn")] if side == "decoder" else [])
            for number, (part, kind) in enumerate(parts, 1):
                attention = getattr(theirs_layer, kind)
                state[f"{name}.{part}.in_proj.weight"] = attention.in_proj_weight
                state[f"{name}.{part}.in_proj.bias"] = attention.in_proj_bias
                state[f"{name}.{part}.out_proj.weight"] = attention.out_proj.weight
                state[f"{name}.{part}.out_proj.bias"] = attention.out_proj.bias
                state |= prefixed(f"{name}.{part}_norm", getattr(theirs_layer, f"norm{number}"))
            state |= prefixed(f"{name}.feed_forward.up_proj", theirs_layer.linear1)
            state |= prefixed(f"{name}.feed_forward.down_proj", theirs_layer.linear2)
            state |= prefixed(f"{name}.feed_forward_norm", getattr(theirs_layer, f"norm{len(parts) + 1}"))
        if norm_placement == "pre":
            state |= prefixed(f"{side}.norm", getattr(theirs, side).norm)
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected
    assert all("token" in name for name in missing)

    source, target = tokens(), tokens(length=5)
    record: dict[str, Tensor] = {}
    logits, _ = model.step(target, model.start(source, MASK, record), record)
    expected = theirs(
        record["encoder.embedding"],
        record["decoder.embedding"],
        tgt_mask=nn.Transformer.generate_square_subsequent_mask(5).isinf(),  # True: hidden, there
        src_key_padding_mask=~MASK,
        memory_key_padding_mask=~MASK,
    )
    torch.testing.assert_close(record["decoder.output"], expected, **CLOSE)
    torch.testing.assert_close(logits, expected @ model.source.token.weight.T, **CLOSE)


def prefixed(name: str, module: nn.Module) -> dict[str, Tensor]:
    return {f"{name}.{key}": value for key, value in module.state_dict().items()}


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_a_recurrent_encoder_equals_torchs_own_over_packed_sentences(cell: str) -> None:
    config = ModelConfig(family="rnn", vocabulary=VOCABULARY, size=32, encoder_layers=2, decoder_layers=1, cell=cell)
    model = build(config).eval()
    theirs = getattr(nn, cell.upper())(32, 16, 2, batch_first=True, bidirectional=True)
    for depth, layer in enumerate(model.encoder):
        for direction, suffix in ((layer.left_to_right, ""), (layer.right_to_left, "_reverse")):
            for name, value in direction.rnn.state_dict().items():
                theirs.state_dict()[f"{name[:-1]}{depth}{suffix}"].copy_(value)
    source = tokens()
    record: dict[str, Tensor] = {}
    model.start(source, MASK, record)
    packed = nn.utils.rnn.pack_padded_sequence(model.source(source), MASK.sum(1), batch_first=True)
    expected, _ = nn.utils.rnn.pad_packed_sequence(theirs(packed)[0], batch_first=True)
    torch.testing.assert_close(record["encoder.output"][MASK], expected[MASK], **CLOSE)


@pytest.mark.parametrize(("cell", "layers"), [("gru", 1), ("gru", 2), ("lstm", 1), ("lstm", 3)])
def test_one_step_of_a_layer_equals_torchs_cell(cell: str, layers: int) -> None:
    from regard.models.rnn import RecurrentLayer

    layer = RecurrentLayer(cell, 8 * layers, 16)
    theirs = getattr(nn, f"{cell.upper()}Cell")(8 * layers, 16)
    for name, value in layer.rnn.state_dict().items():
        theirs.state_dict()[name.removesuffix("_l0")].copy_(value)
    x = torch.randn(5, 8 * layers)
    hidden = tuple(torch.randn(2, 5, 16))[: 1 if cell == "gru" else 2]
    expected = theirs(x, hidden[0] if cell == "gru" else hidden)
    expected = (expected,) if cell == "gru" else expected
    gates = nn.functional.linear(x, layer.rnn.all_weights[0][0])
    for got, want in zip(layer.step(gates, hidden), expected, strict=True):
        torch.testing.assert_close(got, want, **CLOSE)
