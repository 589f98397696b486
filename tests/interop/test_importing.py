"""Imported models compute what the originals do, and what cannot be imported is refused by name."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import regard
from regard.config import Config, ModelConfig
from regard.corpora.builtin.corpus import sentences
from regard.errors import ConfigError, FolderError
from regard.evaluation.importing import import_model
from regard.evaluation.perplexity import measure
from regard.interop.exporting import export
from regard.models import build
from regard.models.folder import load_model, save_model
from regard.text.tokenizer import Tokenizers, train
from tests.interop.published import BERT, MODELS, byte_level, publish

pytestmark = pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
SEEDS = range(6)


@pytest.fixture(scope="module")
def marian(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A published Marian model, to be copied."""
    folder = tmp_path_factory.mktemp("published") / "opus"
    publish("marian", 0, folder)
    return folder


def changed(folder: Path, where: Path, **settings: object) -> Path:
    """A copy of a published folder with other settings."""
    shutil.copytree(folder, where)
    values = json.loads((where / "config.json").read_text())
    (where / "config.json").write_text(json.dumps(values | settings))
    return where


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", MODELS)
def test_import_and_export_keep_logits_and_greedy_output_and_a_round_trip_every_bit(
    kind: str, seed: int, tmp_path: Path
) -> None:
    publish(kind, seed, tmp_path / "theirs")
    imported = import_model(tmp_path / "theirs", tmp_path / "ours", sentences=3)
    assert imported.verification.reason == ""
    assert imported.verification.greedy in (3, None)
    assert imported.verification.beam in (3, None)
    exported = export(tmp_path / "ours", tmp_path / "exported", sentences=3)
    assert exported.verification.greedy in (3, None)
    assert exported.verification.beam in (3, None)
    model_class = getattr(transformers, exported.what)
    _, info = model_class.from_pretrained(tmp_path / "exported", output_loading_info=True)
    assert not any(info.values()), info
    import_model(tmp_path / "exported", tmp_path / "again", sentences=0)
    for name in ("model.safetensors", "config.json", "tokenizer.json"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "ours" / name).read_bytes(), name


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"norm_placement": "pre", "activation": "gelu"},
        {"tie_embeddings": "target", "target_vocabulary": 340, "encoder_layers": 1},
        {"family": "bert", "activation": "gelu"},
        {"family": "gpt", "positions": "learned", "norm_placement": "pre", "scale_embeddings": False},
        {
            "family": "gpt", "positions": "rotary", "norm": "rms", "norm_placement": "pre", "activation": "swiglu",
            "bias": False, "scale_embeddings": False, "key_value_heads": 2,
        },
    ],
    ids=str,
)  # fmt: skip
def test_a_model_trained_here_is_exported(options: dict[str, Any], tmp_path: Path) -> None:
    tokenizer = train(["The old house is red.", "la vieille maison"], kind="bpe", vocabulary=300)
    shape = {"vocabulary": tokenizer.size, "size": 16, "heads": 4, "feed_forward_size": 24, "encoder_layers": 2}
    config = Config(model=ModelConfig(**{**shape, "decoder_layers": 2, "max_positions": 64, **options}))
    model = build(config.model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    save_model(tmp_path / "ours", model, config, Tokenizers(tokenizer, tokenizer).files(), force=False)
    exported = export(tmp_path / "ours", tmp_path / "theirs", sentences=3)
    assert exported.verification.greedy in (3, None)
    auto = transformers.AutoTokenizer.from_pretrained(tmp_path / "theirs")
    assert tokenizer.encode("The old house") == auto("The old house", add_special_tokens=False)["input_ids"]


def test_a_model_that_no_architecture_computes_is_not_exported(tmp_path: Path) -> None:
    tokenizer = train(["The old house is red."], kind="bpe", vocabulary=300)
    config = Config(model=ModelConfig(vocabulary=tokenizer.size, size=16, heads=4, score="additive"))
    files = Tokenizers(tokenizer, tokenizer).files()
    save_model(tmp_path / "ours", build(config.model), config, files, force=False)
    with pytest.raises(ConfigError, match=r"marian comes closest and needs model\.score = auto"):
        export(tmp_path / "ours", tmp_path / "theirs")
    assert not (tmp_path / "theirs").exists()


def test_an_imported_translator_translates(marian: Path, tmp_path: Path) -> None:
    import_model(marian, tmp_path / "ours", sentences=2)
    model = regard.load(tmp_path / "ours")
    result = model.translate(["The old house is red.", ""], trace=True)
    assert result[0].text
    assert result[0].trace.attention["cross"].shape[-1] == len(result[0].trace.source.ids)


def test_the_target_language_is_the_first_token_of_every_translation(tmp_path: Path) -> None:
    theirs = publish("m2m100", 0, tmp_path / "theirs")
    import_model(tmp_path / "theirs", tmp_path / "ours", sentences=0)
    model = regard.load(tmp_path / "ours")
    text = "The old house is red."
    encode, code = model.tokenizers.source.encode, model.tokenizers.source.token_id
    source = encode(f"__en__ {text}")
    assert source == [code("__en__"), *encode(text)]
    special = model.tokenizers.target.special
    result = model.translate([text], tag="__en__", to="__fr__", beams=1, trace=True, align=True)[0]
    expected = theirs.generate(
        torch.tensor([[*source, special.end]]), forced_bos_token_id=code("__fr__"), num_beams=1, do_sample=False,
        max_new_tokens=len(result.trace.target.ids), suppress_tokens=list(special.never_generated),
    )[0].tolist()  # fmt: skip
    assert result.trace.target.ids[0] == code("__fr__")
    assert result.trace.target.ids[:-1] == expected[1 : len(result.trace.target.ids)]
    assert "__fr__" not in result.text
    words = len(text.split()), len(result.text.split())
    assert all(0 <= source < words[0] and 0 <= target < words[1] for source, target in result.alignment)
    with pytest.raises(ConfigError, match="no language or token __xx__"):
        model.translate([text], to="__xx__")


def test_the_first_token_of_a_bart_comes_from_its_settings(tmp_path: Path) -> None:
    publish("bart", 0, tmp_path / "theirs")
    folder = changed(tmp_path / "theirs", tmp_path / "bart", forced_bos_token_id=0)
    import_model(folder, tmp_path / "ours", sentences=0)
    model = regard.load(tmp_path / "ours")
    assert model.config.decode.first_token == "<s>"
    assert "<s>" not in model.translate(["The old house."])[0].text


@pytest.mark.parametrize("early_stopping", [True, False, "never"])
@pytest.mark.parametrize("seed", range(3))
def test_a_beam_search_finds_what_that_of_transformers_finds(
    seed: int, early_stopping: bool | str, tmp_path: Path
) -> None:
    publish("m2m100", seed, tmp_path / "theirs")  # often unsure when to end
    settings = json.loads((tmp_path / "theirs" / "generation_config.json").read_text())
    (tmp_path / "theirs" / "generation_config.json").write_text(
        json.dumps(settings | {"early_stopping": early_stopping})
    )
    imported = import_model(tmp_path / "theirs", tmp_path / "ours", sentences=10)
    assert imported.verification.beam == 10
    export(tmp_path / "ours", tmp_path / "again", sentences=0)
    exported = json.loads((tmp_path / "again" / "generation_config.json").read_text())
    assert exported["early_stopping"] == early_stopping


def test_the_card_has_the_licence_the_origin_and_the_verification(marian: Path, tmp_path: Path) -> None:
    folder = changed(marian, tmp_path / "opus-mt-en-fr")
    (folder / "README.md").write_text("---\nlicense: cc-by-4.0\ntags:\n- x\n---\n# The original\nIt translates.\n")
    import_model(folder, tmp_path / "ours", sentences=2)
    card = (tmp_path / "ours" / "card.md").read_text()
    assert "imported from `opus-mt-en-fr`" in card
    assert "cc-by-4.0" in card
    assert "2 of 2 greedy outputs are identical" in card
    assert "It translates." in card


@pytest.mark.parametrize("sharded", [True, False])
def test_weights_in_pytorch_files_are_read(sharded: bool, marian: Path, tmp_path: Path) -> None:
    folder = changed(marian, tmp_path / "theirs")
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    if sharded:
        names = sorted(tensors)
        parts = {"a.bin": names[::2], "b.bin": names[1::2]}
        for file, part in parts.items():
            torch.save({name: tensors[name] for name in part}, folder / file)
        table = {name: file for file, part in parts.items() for name in part}
        (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": table}))
    else:
        torch.save(tensors, folder / "pytorch_model.bin")
    import_model(marian, tmp_path / "one", sentences=0)
    import_model(folder, tmp_path / "two", sentences=0)
    assert (tmp_path / "one" / "model.safetensors").read_bytes() == (
        tmp_path / "two" / "model.safetensors"
    ).read_bytes()


def test_a_pytorch_file_that_holds_code_is_refused(marian: Path, tmp_path: Path) -> None:
    folder = changed(marian, tmp_path / "theirs")
    (folder / "model.safetensors").unlink()
    torch.save({"a": torch.nn.Linear(2, 2)}, folder / "pytorch_model.bin")
    with pytest.raises(FolderError, match="holds more than weights"):
        import_model(folder, tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


def test_an_index_cannot_name_a_file_outside_the_folder(marian: Path, tmp_path: Path) -> None:
    folder = changed(marian, tmp_path / "theirs")
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "../opus/model.safetensors"}}))
    with pytest.raises(FolderError, match="not a file of its folder"):
        import_model(folder, tmp_path / "ours")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_weights_stay_as_they_are(dtype: torch.dtype, marian: Path, tmp_path: Path) -> None:
    folder = changed(marian, tmp_path / "theirs")
    tensors = {name: tensor.to(dtype) for name, tensor in load_file(folder / "model.safetensors").items()}
    save_file(tensors, folder / "model.safetensors")
    import_model(folder, tmp_path / "ours", sentences=2)
    model, _ = load_model(tmp_path / "ours")
    assert next(model.parameters()).dtype == dtype


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model_type": "marain"}, "model_type = marain is not supported. Did you mean marian"),
        ({"model_type": None, "architectures": None}, "model_type = None is not supported"),
        ({"activation_function": "mish"}, "activation_function = mish is not supported: Regard supports gelu"),
        ({"decoder_attention_heads": 1}, "decoder_attention_heads = 1 is not supported"),
        ({"sparse_attention": True}, "sparse_attention is not a setting of a marian that Regard knows"),
        ({"is_decoder": True}, "is_decoder = True is not supported in a marian, only False"),
        ({"encoder_layers": 7}, "has no tensor model.encoder.layers"),
        ({"encoder_ffn_dim": 7, "decoder_ffn_dim": 7}, r"fc1.weight has the shape .*config.json implies \(7, \d+\)"),
        ({"d_model": 33}, "must be a multiple of model.heads"),
    ],
    ids=str,
)  # fmt: skip
def test_what_cannot_be_imported_is_named(
    settings: dict[str, object], message: str, marian: Path, tmp_path: Path
) -> None:
    folder = changed(marian, tmp_path / "theirs", **settings)
    with pytest.raises(FolderError, match=message):
        import_model(folder, tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


@pytest.mark.parametrize("change", ["extra", "missing"])
def test_an_extra_or_missing_tensor_is_named(change: str, marian: Path, tmp_path: Path) -> None:
    folder = changed(marian, tmp_path / "theirs")
    tensors = load_file(folder / "model.safetensors")
    if change == "extra":
        tensors["model.decoder.adapter.weight"] = torch.zeros(2)
    else:
        del tensors["model.decoder.layers.0.fc1.bias"]
    save_file(tensors, folder / "model.safetensors")
    name = "model.decoder.adapter.weight" if change == "extra" else "model.decoder.layers.0.fc1.bias"
    with pytest.raises(FolderError, match=name):
        import_model(folder, tmp_path / "ours")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("config.json", "[" * 9999, "nested too deep"),
        ("config.json", '{"model_type": "marian", "d_model": ' + "9" * 400 + "}", "whole number of 400 digits"),
        ("config.json", '{"model_type": "marian", "d_model": "16"}', "must be a whole number"),
        ("config.json", '{"model_type": "llama", "rope_parameters": "x"}', "a setting has a value of the wrong type"),
        ("config.json", '{"model_type": "marian", "tie_word_embeddings": "no"}', "must be true or false"),
        ("generation_config.json", "3", "not a table of settings"),
        ("generation_config.json", '{"num_beams": "five"}', "decode.beams"),
        ("generation_config.json", '{"forced_bos_token_id": -3}', "forced_bos_token_id = -3 is not the id of a token"),
        ("tokenizer_config.json", "", "is damaged"),
        ("vocab.json", '{"</s>": 0, "<unk>": 0}', "must be 0 to 1"),
        ("source.spm", "", "it has no tokens"),
        ("tokenizer.json", '{"model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}}', "tokenizer of .* damaged"),
        ("model.safetensors", "", "damaged or truncated"),
        ("model.safetensors.index.json", '{"weight_map": {"a": "x\\ny"}}', r"names 'x\\ny', which is missing"),
    ],
)  # fmt: skip
def test_a_damaged_file_is_one_line_and_leaves_nothing(
    name: str, text: str, message: str, marian: Path, tmp_path: Path
) -> None:
    folder = changed(marian, tmp_path / "theirs")
    if name == "tokenizer.json":
        (folder / "source.spm").unlink()
    (folder / name).write_text(text)
    with pytest.raises(FolderError, match=message) as raised:
        import_model(folder, tmp_path / "ours", sentences=0)
    assert "\n" not in str(raised.value)
    assert [path.name for path in tmp_path.iterdir()] == ["theirs"]


def test_parts_that_only_fit_together_are_refused(tmp_path: Path) -> None:
    publish("bert", 0, tmp_path / "theirs")
    tensors = load_file(tmp_path / "theirs" / "model.safetensors")
    query, key = (
        next(name for name in tensors if name.endswith(f"0.attention.self.{part}.bias")) for part in ("query", "key")
    )
    tensors[query], tensors[key] = tensors[query][:-2].clone(), torch.cat([tensors[key], torch.zeros(2)])
    save_file(tensors, tmp_path / "theirs" / "model.safetensors")
    with pytest.raises(FolderError, match=r"query\.bias has the shape"):
        import_model(tmp_path / "theirs", tmp_path / "ours")


def test_weights_of_two_types_become_the_wider(marian: Path, tmp_path: Path) -> None:
    folder = changed(marian, tmp_path / "theirs")
    tensors = load_file(folder / "model.safetensors")
    save_file({name: x if "norm" in name else x.half() for name, x in tensors.items()}, folder / "model.safetensors")
    import_model(folder, tmp_path / "ours", sentences=2)
    assert {parameter.dtype for parameter in load_model(tmp_path / "ours")[0].parameters()} == {torch.float32}


def test_a_model_that_differs_from_the_original_is_not_imported(
    marian: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from regard.errors import RunError
    from regard.interop import verification

    monkeypatch.setattr(verification, "TOLERANCE", 0.0)
    with pytest.raises(RunError, match=r"differs from .*nothing was written"):
        import_model(marian, tmp_path / "ours", sentences=2)
    assert not (tmp_path / "ours").exists()


def test_loading_a_hugging_face_folder_says_how_to_import_it(marian: Path) -> None:
    with pytest.raises(FolderError, match="Import it first: regard import"):
        regard.load(marian)


def test_a_name_of_the_hub_without_a_network_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    import huggingface_hub

    def offline(*_: object, **__: object) -> str:
        raise huggingface_hub.errors.LocalEntryNotFoundError("no network")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    with pytest.raises(FolderError, match="There is no folder a/b, and the hub could not be reached"):
        import_model("a/b", tmp_path / "ours")


def test_a_model_never_replaces_the_folder_it_is_read_from(marian: Path, tmp_path: Path) -> None:
    folder = changed(marian, tmp_path / "theirs")
    for out in (folder, tmp_path):
        with pytest.raises(FolderError, match="holds the model that is read"):
            import_model(folder, out, force=True, sentences=0)
    import_model(folder, tmp_path / "ours", sentences=0)
    with pytest.raises(FolderError, match="holds the model that is read"):
        export(tmp_path / "ours", tmp_path / "ours", force=True, sentences=0)
    assert (folder / "source.spm").exists()
    assert (tmp_path / "ours" / "model.safetensors").exists()


def test_force_replaces_an_earlier_export_and_no_other_files(marian: Path, tmp_path: Path) -> None:
    import_model(marian, tmp_path / "ours", sentences=0)
    for _ in range(2):
        export(tmp_path / "ours", tmp_path / "theirs", force=True, sentences=0)
    (tmp_path / "theirs" / "thesis.txt").write_text("years of work")
    with pytest.raises(FolderError, match=r"also holds thesis\.txt, which would be deleted"):
        export(tmp_path / "ours", tmp_path / "theirs", force=True, sentences=0)
    assert (tmp_path / "theirs" / "thesis.txt").exists()


def test_a_model_with_a_changed_tokenizer_is_not_exported(marian: Path, tmp_path: Path) -> None:
    import_model(marian, tmp_path / "ours", sentences=0)
    path = next(tmp_path.glob("ours/*tokenizer.json"))
    path.write_text(path.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    with pytest.raises(FolderError, match="is damaged"):
        export(tmp_path / "ours", tmp_path / "theirs", sentences=0)


CORPUS = list(sentences(60, seed=5))


def write_corpus(folder: Path) -> tuple[Path, Path]:
    folder.mkdir(exist_ok=True)
    sides = folder / "train.en", folder / "train.fr"
    for number, side in enumerate(sides):
        side.write_text("".join(f"{pair[number]}\n" for pair in CORPUS))
    return sides


def translation_loss(folder: Path) -> float:
    """The mean cross-entropy of the corpus."""
    (model,), sides = (loaded := regard.load(folder, "cpu")).models, loaded.tokenizers
    special, total, count = sides.target.special, 0.0, 0
    for pair in CORPUS:
        source = torch.tensor([[*sides.source.encode(pair.source), sides.source.special.end]])[:, -60:]
        target = torch.tensor([[special.start, *sides.target.encode(pair.target), special.end]])[:, :60]
        with torch.inference_mode():
            logits, _ = model.step(target[:, :-1], model.start(source))
        total += float(torch.nn.functional.cross_entropy(logits[0], target[0, 1:], reduction="sum"))
        count += target.shape[1] - 1
    return total / count


FEW = {"train.batch_tokens": 4000, "model.dropout": 0.0, "train.learning_rate": 0.01, "train.warmup": 1,
       "train.metric": "loss", "train.validate_every": 3, "text.held_out": 10}  # fmt: skip
HOW = [{}, {"train.freeze": "encoder.*"}, {"train.lora_rank": 2}]


@pytest.mark.parametrize("how", HOW, ids=str)
def test_training_from_an_imported_marian_lowers_the_loss(how: dict[str, Any], marian: Path, tmp_path: Path) -> None:
    import_model(marian, tmp_path / "ours", sentences=0)
    files = write_corpus(tmp_path / "corpus")
    run = regard.train(
        *files, out=tmp_path / "tuned", start_from=tmp_path / "ours", updates=6, device="cpu", config=FEW | how
    )
    assert translation_loss(tmp_path / "tuned") < translation_loss(tmp_path / "ours")
    assert run.model.tokenizers.source.special == regard.load(tmp_path / "ours").tokenizers.source.special


def test_an_imported_marian_gets_another_vocabulary(marian: Path, tmp_path: Path) -> None:
    import_model(marian, tmp_path / "ours", sentences=0)
    files = write_corpus(tmp_path / "corpus")
    run = regard.train(
        *files, out=tmp_path / "tuned", start_from=tmp_path / "ours", updates=6, device="cpu",
        config=FEW | {"text.vocabulary": 300, "text.shared": True},
    )  # fmt: skip
    losses = [entry["loss"] for entry in run.history if "loss" in entry]
    assert run.model.tokenizers.source.size == 300
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("how", [*HOW, {"text.vocabulary": 300}], ids=str)
def test_training_from_an_imported_bert_lowers_the_loss(how: dict[str, Any], tmp_path: Path) -> None:
    torch.manual_seed(0)
    (tmp_path / "theirs").mkdir()
    ids = byte_level(tmp_path / "theirs", BERT)
    shape = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    config = transformers.BertConfig(vocab_size=len(ids), max_position_embeddings=64, **shape)
    transformers.BertForMaskedLM(config).save_pretrained(tmp_path / "theirs")
    import_model(tmp_path / "theirs", tmp_path / "ours", sentences=0)
    text, _ = write_corpus(tmp_path / "corpus")
    run = regard.train(
        text,
        out=tmp_path / "tuned",
        start_from=tmp_path / "ours",
        updates=6,
        device="cpu",
        config=FEW | {"text.max_length": 60} | how,
    )
    if "text.vocabulary" in how:
        assert run.model.tokenizer.size == 300
        losses = [entry["loss"] for entry in run.history if "loss" in entry]
        assert losses[-1] < losses[0]
    else:
        assert measure(run.model, text).nats < measure(regard.load(tmp_path / "ours", "cpu"), text).nats
