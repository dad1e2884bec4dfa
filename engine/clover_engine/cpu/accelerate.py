"""Turns the fast CPU path on (`fused.py`), beside the loading of a model, where it fits.

The first start on a machine compiles for some seconds, in the background and onto the disk
(`kernels.code_folder`); later ones take what is there. Until it is ready, and wherever it does not
fit or fails, the model runs as `clover.py` has it.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import threading

import torch
from torch import nn

from clover_engine.model.attention import Attention
from clover_engine.model.clover import Clover, Layer, Trunk
from clover_engine.model.conv import ShortConv
from clover_engine.model.deltanet import GatedDeltaNet, History
from clover_engine.model.layers import MLP, GatedRMSNorm, RMSNorm, Rotary

_KNOWN = {
    Attention, Clover, GatedDeltaNet, GatedRMSNorm, History, Layer, MLP, RMSNorm, Rotary, ShortConv,
    Trunk, nn.Embedding, nn.Identity, nn.Linear, nn.ModuleList,
}  # fmt: skip
_LOG = logging.getLogger(__name__)


def fits(model: Clover) -> bool:
    """Dense float32 layers on a CPU, nothing quantised, adapted or routed to experts."""
    plain = all(type(module) in _KNOWN and not module._forward_hooks for module in model.modules())
    return plain and all(
        p.dtype == torch.float32 and p.device.type == "cpu" for p in model.parameters()
    )


def accelerate(model: Clover, threads: int = 1) -> threading.Thread | None:
    """Starts preparing the fast path in a thread and returns that; None where there is none.

    CLOVER_FUSED=0 leaves it out. `threads`: cores that long prefills may use. The model's weights
    must not change afterwards.
    """
    wanted = os.environ.get("CLOVER_FUSED", "1") != "0"
    if not wanted or importlib.util.find_spec("numba") is None or not fits(model):
        return None
    thread = threading.Thread(target=_prepare, args=(model, threads), name="fused", daemon=True)
    thread.start()
    return thread


def _prepare(model: Clover, threads: int) -> None:
    try:
        from clover_engine.cpu.fused import Fused

        fused = Fused(model, threads)
        fused.warm()
    except Exception as error:  # numba's and LLVM's own, a full disk, …: all have the same answer
        _LOG.warning("the fast path is off (%s); decoding works, but slower", _text(error))
        return
    model.fused = fused


def _text(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
