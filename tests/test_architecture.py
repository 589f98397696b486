"""The architecture, as rules: who may import whom, what is public, which options there are."""

from __future__ import annotations

import ast
import dataclasses
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from regard.config import Config

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "regard"
FILES = sorted(PACKAGE.rglob("*.py"))

# A module imports only from lower ranks, and inside its own folder. docs/design.md draws this.
RANKS = {
    "errors": -2, "folders": -1,
    "config": 0, "devices": 0, "kernels": 0, "memory": 0, "results": 0,
    "attention": 1, "text": 1,
    "models": 2, "documents": 2, "corpora": 2,
    "counting": 3, "decoding": 3,
    "inspection": 4, "interop": 4,
    "translation": 5, "preflight": 5,
    "evaluation": 6,
    "server": 7, "training": 7,
    "stories": 8,
    "cli": 9, "__main__": 10,
}  # fmt: skip

# Heavy libraries, and the only places that import them. torch may be imported at the top by what is made of tensors.
HEAVY = {
    "torch": {"kernels", "attention", "models", "interop", "decoding", "inspection", "training", "translation",
              "text/batching.py", "evaluation", "stories", "memory", "devices", "server"},
    "triton": {"kernels"},
    "tokenizers": {"text/tokenizer.py", "interop/hf_tokenizer.py"},
    "pyarrow": {"text/files.py"},
    "matplotlib": {"inspection"},
    "rich": {"cli"},
    "typer": {"cli"},
    "fastapi": {"server"},
    "uvicorn": {"server/run.py"},
    "ray": {"translation/cluster.py"},
    "ctranslate2": {"interop/ctranslate2.py"},
    "onnx": {"interop/onnx.py"},
    "onnxruntime": {"interop/onnx.py"},
    "sacrebleu": {"evaluation", "interop/verification.py"},
    "transformers": {"interop/verification.py"},
    "huggingface_hub": {"interop/importing.py"},
    "safetensors": {"models/folder.py", "training", "inspection", "interop"},
}  # fmt: skip

# What reads or writes pickles: a pickle is code, and nothing that comes in may be.
PICKLING = re.compile(
    r"\b(pickle|cloudpickle|dill|joblib|shelve|multiprocessing|ProcessPoolExecutor|allow_pickle)\b"
    r"|^torch\.(load|save)$|(broadcast|gather|scatter|send|recv)_object"
)

OWN_PROCESSES = {"text/preparation.py"}  # a process pool pickles what passes between our own processes, and no file


def part(path: Path) -> str:
    """The first name below the package: a folder or a file."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path, *, top_only: bool = False) -> Iterator[str]:
    """Every module a file imports, those under TYPE_CHECKING left out."""
    tree = ast.parse(path.read_text())
    nodes = tree.body if top_only else ast.walk(tree)
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in nodes:
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def ours(path: Path) -> set[str]:
    """The parts of the package a file imports."""
    return {name.split(".")[1] for name in imports(path) if name.startswith("regard.")} & set(RANKS)


@pytest.mark.parametrize(
    "path", [path for path in FILES if path.parent != PACKAGE or path.name != "__init__.py"], ids=str
)
def test_imports_point_down(path: Path) -> None:
    here = part(path)
    assert here in RANKS, f"{here} has no rank yet"
    assert not {name for name in ours(path) if name != here and RANKS[name] >= RANKS[here]}


def test_no_module_is_in_an_import_cycle() -> None:
    names = {path: "regard." + ".".join(path.relative_to(PACKAGE).with_suffix("").parts) for path in FILES}
    known = {name.removesuffix(".__init__") for name in names.values()}
    graph = {
        name.removesuffix(".__init__"): {
            module for module in imports(path) if module in known and module != name.removesuffix(".__init__")
        }
        for path, name in names.items()
    }
    while leaves := {name for name, needs in graph.items() if not needs & set(graph)}:
        graph = {name: needs for name, needs in graph.items() if name not in leaves}
    assert not graph


@pytest.mark.parametrize("path", FILES, ids=str)
def test_heavy_libraries_are_imported_only_where_they_belong(path: Path) -> None:
    here = path.relative_to(PACKAGE).as_posix()
    for name in imports(path):
        places = HEAVY.get(name.split(".")[0])
        if places is not None:
            assert any(here == place or here.startswith(f"{place}/") or part(path) == place for place in places), name


@pytest.mark.parametrize("path", FILES, ids=str)
def test_nothing_is_pickled(path: Path) -> None:
    if path.relative_to(PACKAGE).as_posix() in OWN_PROCESSES:
        return
    names, tree = set(imports(path)), ast.parse(path.read_text())
    weights_only = {  # calls that read tensors and nothing else
        id(node.func)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and any(ast.unparse(keyword) == "weights_only=True" for keyword in node.keywords)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and id(node) not in weights_only:
            names.add(ast.unparse(node))
        elif isinstance(node, ast.keyword) and node.arg:
            names.add(node.arg)
    assert not {name for name in names if PICKLING.search(name)}


def test_every_import_is_a_declared_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = project["dependencies"] + [d for extra in project["optional-dependencies"].values() for d in extra]
    known = {re.split(r"[<>=\[; ]", line)[0].replace("-", "_") for line in declared}
    for path in FILES:
        used = {name.split(".")[0] for name in imports(path)} - set(sys.stdlib_module_names) - {"regard"}
        assert used <= known, path


FIELDS = {
    "model": """family vocabulary target_vocabulary size embedding encoder_size output_size heads key_value_heads
        feed_forward_size encoder_layers decoder_layers max_positions positions rotary_base norm
        norm_placement norm_epsilon embedding_norm scale_embeddings activation bias output_bias
        tie_embeddings dropout attention_dropout token_types pooler mlm_head cell bidirectional score feed""",
    "text": """tokenizer vocabulary shared lowercase bpe_dropout bpe_dropout_variants tags max_length
        max_length_ratio cleaning held_out continuous context_length isolate_texts mask_probability""",
    "train": """updates minutes batch_tokens gradient_accumulation batch_shapes packed compile sharded learning_rate
        schedule warmup weight_decay beta2 max_grad_norm label_smoothing r_drop guided_alignment freeze
        lora_rank precision ema_decay validate_every save_every keep_checkpoints
        patience metric film seed""",
    "decode": """beams early_stopping first_token length_penalty coverage_penalty max_length_ratio max_length_extra
        min_length no_repeat_ngram temperature top_k top_p""",
}


def test_the_options_are_exactly_these_and_at_most_ninety() -> None:
    config = Config()
    found = {
        section.name: [field.name for field in dataclasses.fields(getattr(config, section.name))]
        for section in dataclasses.fields(config)
    }
    assert found == {section: names.split() for section, names in FIELDS.items()}
    assert sum(map(len, found.values())) <= 90


def test_every_option_is_explained_by_a_comment() -> None:
    text = (PACKAGE / "config.py").read_text()
    lines = text.splitlines()
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef) and node.name.endswith("Config") and node.name != "Config":
            for field in node.body:
                if isinstance(field, ast.AnnAssign):
                    line = lines[field.lineno - 1]
                    assert "  # " in line or lines[field.lineno - 2].lstrip().startswith("# "), line


@pytest.mark.parametrize("path", FILES, ids=str)
def test_nothing_is_too_big_to_hold_in_the_head(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= 700
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno - node.lineno < 100, node.name


@pytest.mark.parametrize("path", FILES, ids=str)
def test_a_file_begins_with_its_sentence(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text()))


@pytest.mark.parametrize("command", [["--help"], ["count", "--help"], ["train", "--help"]], ids=" ".join)
def test_torch_is_not_imported_where_it_is_not_needed(command: list[str]) -> None:
    program = (
        "import sys; sys.argv = ['regard', *sys.argv[1:]]\n"
        "from regard.cli.app import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program, *command], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


def test_the_file_tree_of_the_design_page_is_the_file_tree() -> None:
    page = (ROOT / "docs" / "design.md").read_text()
    block = page[page.index("src/regard/\n") :].split("```")[0]
    folder, listed = "", set()
    for line in block.splitlines()[1:]:
        name, *words = line.split()
        assert words, f"{name} has no words that say what it is"
        if name.endswith("/"):
            folder = name
        else:
            listed.add(folder + name if line.startswith("    ") else name)
    plain = {"__init__.py", "__main__.py"}  # every folder has one, and its sentence is in it
    assert listed == {path.relative_to(PACKAGE).as_posix() for path in FILES if path.name not in plain}
