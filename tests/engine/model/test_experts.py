"""Experts in host memory: the same results, within a budget of device memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from clover_engine.checkpoint.quantize import quantize
from clover_engine.checkpoint.weights import load_model, save_model
from clover_engine.errors import CheckpointError
from clover_engine.model import Cache, Clover, CloverConfig
from clover_engine.model.experts import ExpertCache, HostExperts
from clover_engine.model.quant import Quantization

pytestmark = pytest.mark.usefixtures("one_thread")
CONFIG = CloverConfig(
    vocab_size=40,
    hidden_size=32,
    layer_types=("linear_attention", "full_attention"),
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=16,
    linear_num_key_heads=1,
    linear_num_value_heads=2,
    linear_key_head_dim=16,
    linear_value_head_dim=16,
    num_experts=8,
    num_experts_per_tok=2,
    moe_intermediate_size=16,
    shared_expert_intermediate_size=16,
    mask_embedding=True,
)
EXPERT = 3 * 16 * 32 * 4
"""Bytes of one expert in float32."""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory, lively: Callable[..., None]) -> Path:
    torch.manual_seed(0)
    model = Clover(CONFIG).eval()
    lively(model, by=0.2)
    folder = tmp_path_factory.mktemp("mixture")
    save_model(model, folder)
    (folder / "tokenizer.json").write_text("{}")
    return folder


def run(model: Clover) -> torch.Tensor:
    """Logits of a prefill, of single tokens, and of a block."""
    ids = torch.arange(24)[None] * 11 % 40
    cache, found = Cache(CONFIG), []
    with torch.inference_mode():
        found.append(model(ids[:, :20], cache=cache)[0][0])
        found += [model(ids[:, i : i + 1], cache=cache)[0][0] for i in range(20, 24)]
        found.append(model(None, torch.full((1, 1, 5), -1), cache)[1][0, 0])
        return model.head(torch.cat(found))


def expert_cache(model: Clover) -> ExpertCache:
    """The one that all layers share."""
    caches = {m.cache for m in model.modules() if isinstance(m, HostExperts)}
    assert len(caches) == 1
    return caches.pop()


@pytest.mark.parametrize("experts", [1, 2, 5, 16])
def test_the_results_do_not_depend_on_the_budget(experts: int, checkpoint: Path) -> None:
    plain, budget = load_model(checkpoint), experts * EXPERT
    model = load_model(checkpoint, expert_budget_bytes=budget)
    assert model.parameter_count() == plain.parameter_count()
    use = expert_cache(model).use
    for _ in range(2):  # the second time, another set of experts is at hand
        assert torch.equal(run(model), run(plain))
        assert use.resident_bytes <= use.peak_bytes <= budget
    assert use.copied_bytes == use.misses * EXPERT
    assert use.resident_bytes == (use.misses - use.evicted) * EXPERT
    assert (use.evicted == 0) == (experts == 16)
    assert use.hits > 0 or experts < 5


def test_more_memory_means_fewer_copies(checkpoint: Path) -> None:
    copied = []
    for experts in (1, 4, 8, 16):
        model = load_model(checkpoint, expert_budget_bytes=experts * EXPERT)
        run(model)
        copied.append(expert_cache(model).use.copied_bytes)
    assert copied == sorted(copied, reverse=True) and copied[-1] <= 16 * EXPERT < copied[0]


def test_least_recently_used_experts_leave_first(checkpoint: Path) -> None:
    model = load_model(checkpoint, expert_budget_bytes=2 * EXPERT)
    layer = next(m for m in model.modules() if isinstance(m, HostExperts))
    cache = layer.cache
    for expert in (0, 1, 0, 2):
        cache.get(layer, expert)
    assert [cache.holds(layer, expert) for expert in (0, 1, 2)] == [True, False, True]
    assert layer.order([0, 1, 2]) == [0, 2, 1]
    assert (cache.use.hits, cache.use.misses, cache.use.evicted) == (1, 3, 1)


@pytest.mark.parametrize("how", [Quantization(8), Quantization(4, 32, symmetric=False)])
def test_quantised_experts_wait_in_host_memory_too(
    how: Quantization, checkpoint: Path, tmp_path: Path
) -> None:
    quantize(checkpoint, tmp_path / "q", how)
    model = load_model(tmp_path / "q", expert_budget_bytes=EXPERT)
    assert torch.equal(run(model), run(load_model(tmp_path / "q")))
    use = expert_cache(model).use
    assert use.peak_bytes <= EXPERT and use.evicted > 0
    assert use.copied_bytes / use.misses < EXPERT / (3 if how.bits == 8 else 5)


def test_experts_stay_in_the_checkpoints_file(checkpoint: Path) -> None:
    """Their pages are read when they are used: no second copy in memory."""
    model = load_model(checkpoint, expert_budget_bytes=EXPERT)
    maps = Path("/proc/self/maps")
    if not maps.is_file():
        pytest.skip("the system does not list mapped files")
    assert str(checkpoint / "model.safetensors") in maps.read_text()
    del model
    plain = load_model(checkpoint)
    own = {p.untyped_storage().nbytes() == p.nbytes for p in plain.parameters()}
    assert own == {True}


def test_a_budget_below_one_expert_is_refused(checkpoint: Path) -> None:
    with pytest.raises(CheckpointError, match=f"takes {EXPERT} bytes.*at least one"):
        load_model(checkpoint, expert_budget_bytes=EXPERT - 1)
