"""What holds on a CPU holds on a GPU: run where there is one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from regard import InputError, attend
from regard.attention import scores
from regard.memory import free_memory
from regard.models import build
from regard.models.rnn import RecurrentLayer
from regard.text.batching import collate
from regard.training.distributed import Runtime
from regard.training.events import Event, ProblemEvent, UpdateEvent
from regard.training.gradients import autocast
from regard.training.losses import batch_loss
from tests.models.families import BERTS, GENERATORS, reorder
from tests.training.runs import (
    compare_saves,
    copy_late,
    make_config,
    make_training,
    no_validation,
    write_corpus,
)

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
MASK = torch.arange(7) < torch.tensor([[7], [4], [1]])
torch.backends.cudnn.allow_tf32 = False  # a recurrent kernel would round its products to ten bits
BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "math": SDPBackend.MATH,
    "any": None,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("score", ["dot", "scaled_dot", "cosine", "additive", "general", "learned_cosine"])
@pytest.mark.parametrize("visible", ["all", "mask", "causal"])
def test_fused_equals_explicit(dtype: torch.dtype, score: str, visible: str) -> None:
    made = {"learned_cosine": "cosine"}.get(score, score)
    module = scores.make_score(made, 64, 64) if score in ("additive", "general", "learned_cosine") else score
    if isinstance(module, torch.nn.Module):
        module.to("cuda", dtype)
    query, key, value = torch.randn(3, 2, 4, 33, 64, device="cuda", dtype=dtype) * 0.5
    mask = torch.rand(2, 1, 33, 33, device="cuda") > 0.3 if visible == "mask" else None
    explicit, _ = attend(query, key, value, module, mask, causal=visible == "causal")
    fused, _ = attend(query, key, value, module, mask, weights=False, causal=visible == "causal")
    close = {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 5e-2, "atol": 5e-2}
    torch.testing.assert_close(fused, explicit, **close)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_query_that_may_see_nothing_gathers_zeros_on_every_kernel(backend: str, dtype: torch.dtype) -> None:
    tensors = [torch.randn(2, 4, 16, 64, device="cuda", dtype=dtype, requires_grad=True) for _ in range(3)]
    mask = torch.ones(2, 1, 16, 16, dtype=torch.bool, device="cuda")
    mask[0, 0, 2] = False
    kernels = list(filter(None, BACKENDS.values())) if BACKENDS[backend] is None else [BACKENDS[backend]]
    try:
        with sdpa_kernel(kernels):
            context, _ = attend(*tensors, mask=mask, weights=False)
    except InputError as error:
        pytest.skip(f"{backend} does not take this: {str(error).splitlines()[0]}")
    assert (context[0, :, 2] == 0).all()
    context.float().square().sum().backward()
    assert all(x.grad.isfinite().all() for x in tensors)


@pytest.mark.parametrize("capacity", [0, 16])
@pytest.mark.parametrize("name", GENERATORS)
def test_a_model_says_on_a_gpu_what_it_says_on_a_cpu(name: str, capacity: int) -> None:
    config = GENERATORS[name]
    model = build(config).eval()
    source, target = torch.randint(0, 50, (3, 7)), torch.randint(0, config.target_vocabulary_size, (3, 6))
    expected, _ = model.step(target, model.start(source, MASK))
    model.cuda()
    rows = torch.arange(3, device="cuda")
    state = model.start(source.cuda(), MASK.cuda(), capacity=capacity)
    logits = []
    for part in target.cuda().split((1, 2, 3), dim=1):
        step, state = model.step(part, reorder(state, rows))
        logits.append(step)
    torch.testing.assert_close(torch.cat(logits, dim=1).cpu(), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", BERTS)
def test_a_bert_says_on_a_gpu_what_it_says_on_a_cpu(name: str) -> None:
    model = build(BERTS[name]).eval()
    source = torch.randint(0, 50, (3, 7))
    expected = model.encode(source, mask=MASK)
    got = model.cuda().encode(source.cuda(), mask=MASK.cuda())
    torch.testing.assert_close(got.cpu()[MASK], expected[MASK], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", GENERATORS)
def test_a_model_writes_on_without_being_reordered(name: str) -> None:
    model = build(GENERATORS[name]).cuda().eval()
    source, target = torch.randint(0, 40, (3, 7)).cuda(), torch.randint(0, 40, (3, 6)).cuda()
    whole, _ = model.step(target, model.start(source))
    _, state = model.step(target[:, :2], model.start(source))
    torch.testing.assert_close(model.step(target[:, 2:], state)[0], whole[:, 2:], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_a_step_in_one_kernel_is_the_step_and_so_are_its_gradients(cell: str) -> None:
    layer, found = RecurrentLayer(cell, 8, 16), {}
    gates, hidden = torch.randn(5, 16 * (3 if cell == "gru" else 4)), torch.randn(2, 5, 16)[: 1 if cell == "gru" else 2]
    for device in ("cpu", "cuda"):
        layer = layer.to(device)
        leaves = [tensor.to(device).requires_grad_() for tensor in (gates, *hidden)]
        after = layer.step(leaves[0], tuple(leaves[1:]))
        wanted = [*leaves, *(each for name, each in layer.named_parameters() if "ih_l0" not in name or "bias" in name)]
        given = torch.autograd.grad(sum((each * each.cos()).sum() for each in after), wanted)
        found[device] = [each.cpu() for each in (*after, *given)]
    for here, there in zip(found["cpu"], found["cuda"], strict=True):
        torch.testing.assert_close(here, there, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", GENERATORS)
def test_a_training_pass_in_bf16_gives_finite_gradients(name: str) -> None:
    config = GENERATORS[name]
    model = build(config).cuda().train()
    source, target = torch.randint(0, 50, (3, 7)).cuda(), torch.randint(0, 40, (3, 6)).cuda()
    with torch.autocast("cuda", torch.bfloat16):
        logits, _ = model.step(target, model.start(source if "gpt" not in name else source[:, :0]))
    torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), target.flatten()).backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("family", ["transformer", "rnn-input", "rnn-output", "gpt"])
def test_updates_of_cuda_graphs_equal_eager_ones(family: str, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path)
    found = {}
    for shapes in (0, 2):
        config = make_config(family, updates=12, batch_shapes=2, precision="fp32").with_values(["model.dropout=0"])
        training = make_training(tmp_path / str(shapes), corpus, config, Runtime(torch.device("cuda"), 0, 1))
        training.gradients.uses_graphs = bool(shapes)
        events = [training.step() for _ in range(12)]
        assert bool(training.gradients._graphs) is bool(shapes)
        found[shapes] = [event.loss for event in events if event]
    assert found[2] == pytest.approx(found[0], rel=1e-4)


@pytest.mark.filterwarnings("default")  # torch.compile raises warnings about torch itself
def test_packed_updates_of_a_cuda_graph_equal_eager_and_compiled_ones(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path)
    found = []
    for graphs, compile_model in ((True, "no"), (False, "no"), (True, "yes")):
        config = make_config("transformer", updates=12, packed=True, precision="bf16", compile=compile_model)
        config = config.with_values(["model.dropout=0"])
        folder = tmp_path / f"{graphs}-{compile_model}"
        training = make_training(folder, corpus, config, Runtime(torch.device("cuda"), 0, 1))
        training.gradients.uses_graphs = graphs
        found.append([event.loss for event in (training.step() for _ in range(12)) if event])
        assert len(training.gradients._graphs) == graphs
    assert found[1] == pytest.approx(found[0], rel=1e-2)
    assert found[2] == pytest.approx(found[0], rel=1e-2)


@pytest.mark.parametrize(("precision", "close"), [("fp32", 1e-4), ("bf16", 1e-2)])
@pytest.mark.parametrize("heads", [1, 2])
def test_packed_and_padded_losses_are_equal_on_a_gpu(heads: int, precision: str, close: float, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path)
    config = make_config("transformer", packed=True, precision=precision)
    config = config.with_values(["model.dropout=0", "model.size=48", f"model.heads={heads}"])
    training = make_training(tmp_path / "run", corpus, config, Runtime(torch.device("cuda"), 0, 1))
    batch = next(training.batches)
    padded = collate(training.data.train[0], batch.examples, shape=None).map_tensors(Tensor.cuda)
    with autocast(training.config.train, torch.device("cuda")):
        losses = [batch_loss(training.model, each, training.config.train)[0].item() for each in (batch, padded)]
    assert losses[0] == pytest.approx(losses[1], rel=close)


@pytest.mark.parametrize("shapes", [0, 2])
def test_a_full_gpu_takes_its_batches_in_parts_and_learns_the_same(shapes: int, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path, lines=3000)
    wide = ["model.dropout=0", "model.size=512", "model.feed_forward_size=2048", "model.heads=8"]
    config = make_config("transformer", updates=6, batch_tokens=16000, batch_shapes=shapes, precision="fp32")
    config = config.with_values(wide)

    def run(folder: str) -> tuple[list[float], int]:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        training = make_training(tmp_path / folder, corpus, config, Runtime(torch.device("cuda"), 0, 1))
        losses: list[float] = []
        training.run(no_validation, lambda event: losses.append(event.loss) if isinstance(event, UpdateEvent) else None)
        return losses, training.progress.split

    whole, parts = run("whole")
    assert parts == 1
    most = torch.cuda.max_memory_reserved()
    free_memory()
    held = torch.empty(torch.cuda.mem_get_info()[0] - int(0.6 * most), dtype=torch.uint8, device="cuda")
    found, parts = run("full")
    del held
    free_memory()
    assert 1 < parts < 16
    assert found == pytest.approx(whole, rel=1e-2)


@pytest.mark.parametrize("shapes", [0, 2])
def test_a_checkpoint_has_what_was_there_when_it_was_saved_though_the_gpu_goes_on(
    shapes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_late(monkeypatch)
    config = make_config("transformer", updates=8, save_every=1, keep_checkpoints=9, ema_decay=0.9, batch_shapes=shapes)
    compare_saves(make_training(tmp_path, write_corpus(tmp_path), config, Runtime(torch.device("cuda"), 0, 1)))


@pytest.mark.parametrize("shapes", [0, 2])
def test_a_run_goes_back_to_its_start_on_a_gpu_too(shapes: int, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path)
    config = make_config("transformer", save_every=100, batch_shapes=shapes, precision="fp32", ema_decay=0.9)
    config = config.with_values(["model.dropout=0"])

    def run(folder: str, *, fails: bool) -> list[float]:
        training = make_training(tmp_path / folder, corpus, config, Runtime(torch.device("cuda"), 0, 1))
        if not fails:
            training.progress.lr_scale, training.progress.skipped = 0.5, 5
        losses: list[float] = []

        def observe(event: Event) -> None:
            if isinstance(event, UpdateEvent):
                losses.append(event.loss)
                if fails and event.update == 2 and not training.progress.skipped:
                    next(training.model.parameters()).data.fill_(torch.nan)
            if isinstance(event, ProblemEvent) and event.kind == "rollback":
                losses.clear()

        training.run(no_validation, observe)
        assert training.progress.skipped == 5
        return losses

    assert run("fell", fails=True) == pytest.approx(run("slower", fails=False), rel=1e-4)
