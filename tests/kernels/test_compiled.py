"""The kernels can be made for the GPUs people have, also where there is none to run them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="there is no Triton on this system")

PROGRAM = """
import sys
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from regard.kernels import packed, short, single

WHOLE = {"sentences", "row_queries", "row_keys", "keys", "queries", "heads"}


def make(kernel, half, target, warps, given, **constants):
    kinds = {}
    for name in kernel.arg_names:
        if name in constants:
            kinds[name] = "constexpr"
        elif name == "scale":
            kinds[name] = "fp32"
        elif name in WHOLE or name.rpartition("_")[2] in ("row", "head", "token"):
            kinds[name] = "i32"
        else:
            kinds[name] = given.get(name, f"*{half}")
    source = ASTSource(fn=kernel, signature=kinds, constexprs=constants)
    found = triton.compile(source, target=target, options={"num_warps": warps, "num_stages": 1})
    assert found.asm["cubin"]
    assert found.metadata.shared < 100_000, (kernel, found.metadata.shared)


target = GPUTarget("cuda", int(sys.argv[1]), 32)
wide = {"weights": "*fp32", "v": "*fp32", "b": "*fp32", "to_v": "*fp32", "mask": "*i1"}
for additive in ({"ADDITIVE": True}, {"ADDITIVE": False, "v": None, "b": None}):
    shape = {"SIZE": 192, "WIDTH": 384, "TILE": 256, "BLOCK": single.BLOCK, **additive}
    make(single._forward, "fp32", target, 8, wide, MASKED=True, **shape)
    make(single._backward, "fp32", target, 8, wide, **shape)
shape = {"CAUSAL": True, "MASKED": True, "SIZE": 64, "TILE": 64}
for kernel in (short._forward, short._backward):
    make(kernel, "bf16", target, 4, wide, **shape)
packs = {"causal": "i1", "query_starts": "*i32", "key_starts": "*i32", "log_sum_exp": "*fp32"}
for kernel in (packed._forward, packed._backward):
    for tile, above, longest, warps in packed.LAUNCHES:
        shape = {"SIZE": 64, "WIDTH": 64, "TILE": tile, "ABOVE": above, "LONGEST": longest}
        make(kernel, "bf16", target, warps, packs, **shape)
"""


@pytest.mark.slow
@pytest.mark.parametrize("capability", [80, 90], ids=["A100", "H100"])
def test_the_kernels_compile_for(capability: int, tmp_path: Path) -> None:
    plain = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment = {**plain, "TRITON_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", PROGRAM, str(capability)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
