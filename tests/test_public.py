"""The public names of the package: each is there, and no import of a submodule replaces one."""

from __future__ import annotations

import subprocess
import sys

import pytest

import regard

VERBS = """align attend build check compare count evaluate explain export import_model load preset train""".split()  # noqa: SIM905


@pytest.mark.parametrize("name", regard.__all__)
def test_every_public_name_can_be_imported(name: str) -> None:
    assert getattr(regard, name).__name__ == name


def test_every_verb_is_callable_after_every_submodule_has_been_imported() -> None:
    program = (
        "import importlib, pkgutil, regard\n"
        "for module in pkgutil.walk_packages(regard.__path__, 'regard.'):\n"
        "    if not module.name.endswith('__main__'): importlib.import_module(module.name)\n"
        f"print([verb for verb in {VERBS} if not callable(getattr(regard, verb))])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_importing_regard_imports_neither_torch_nor_numpy() -> None:
    program = "import sys, regard; print([name for name in ('torch', 'numpy') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'regard' has no attribute 'trian'"):
        regard.trian  # noqa: B018
