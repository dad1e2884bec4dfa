"""What the model remembers of committed tokens: KV of attention layers, conv tail and state of GDN.

Clean rows append; block rows only read. `keep(n)` makes it as if only the first n of the last
pass's clean rows had been run; `snapshot`/`restore` go back to an earlier length. Rolling back
costs no forward pass: KV rows are cut off, and the GDN state is replayed from the stored
(k, v, g, β) of the last pass.
"""

from __future__ import annotations

import copy
import weakref
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from clover_engine.model.config import CloverConfig
from clover_engine.model.rule import delta_rule

REPLAY_ROWS = 64
"""Passes of up to this many clean rows can be partly undone with `keep`."""


class KVLayer:
    """Keys and values [batch, kv_heads, length, head_dim] in a buffer that doubles as it grows."""

    def __init__(self) -> None:
        self.k: Tensor | None = None
        self.v: Tensor | None = None
        self.length = 0

    def append(self, k: Tensor, v: Tensor) -> None:
        rows = k.shape[2]
        self._reserve(k, v, self.length + rows)
        assert self.k is not None and self.v is not None
        self.k[:, :, self.length : self.length + rows] = k
        self.v[:, :, self.length : self.length + rows] = v
        self.length += rows

    def room(self, like: Tensor, rows: int) -> tuple[Tensor, Tensor]:
        """The buffers [batch, kv_heads, capacity, head_dim] with room for `rows` more after
        `length`; the caller writes them there and adds to `length`. `like`: their kind of tensor.
        """
        self._reserve(like, like, self.length + rows)
        assert self.k is not None and self.v is not None
        return self.k, self.v

    def view(self) -> tuple[Tensor, Tensor]:
        assert self.k is not None and self.v is not None
        return self.k[:, :, : self.length], self.v[:, :, : self.length]

    def _reserve(self, k: Tensor, v: Tensor, need: int) -> None:
        if self.k is not None and self.v is not None and self.k.shape[2] >= need:
            return
        capacity = max(64, need, 2 * self.length)
        grown_k = k.new_empty(*k.shape[:2], capacity, k.shape[3])
        grown_v = v.new_empty(*v.shape[:2], capacity, v.shape[3])
        if self.k is not None and self.v is not None:
            grown_k[:, :, : self.length] = self.k[:, :, : self.length]
            grown_v[:, :, : self.length] = self.v[:, :, : self.length]
        self.k, self.v = grown_k, grown_v


@dataclass(slots=True)
class StateLayer:
    """GDN memory. `tail` [batch, K-1, channels] are the last convolution inputs, `state`
    [batch, value_heads, key_dim, value_dim] is float32; both are replaced, never written into."""

    tail: Tensor | None = None
    state: Tensor | None = None
    replay: dict[str, Any] = field(default_factory=dict)

    def advance(self, tail: Tensor, state: Tensor, replay: dict[str, Any]) -> None:
        self.tail, self.state, self.replay = tail, state, replay

    def keep(self, count: int) -> None:
        """Rewinds to `count` rows into the last pass."""
        r = self.replay
        inputs = r["inputs"]  # [batch, K-1 + rows, channels]
        width = inputs.shape[1] - r["rows"]
        self.tail = inputs[:, count : count + width]
        if count == 0:
            self.state = r["state"]
        elif count < r["rows"] and "rewind" in r:  # left by `fused.py`
            self.state = r["rewind"](count)
        elif count < r["rows"]:
            cut = {n: r[n][:, :, :count] for n in ("k", "v", "g", "beta")}
            _, self.state, _ = delta_rule(cut["k"], state=r["state"], chunk=16, **cut)
        self.replay = {}


@dataclass(eq=False)
class Snapshot:
    """A place to go back to; holds references, copies nothing."""

    length: int
    states: list[tuple[Tensor | None, Tensor | None]]
    valid: bool = True
    replayable: int = 0
    """So many of its last rows can be undone with `keep` after `restore`."""
    replays: list[dict[str, Any]] = field(default_factory=list)

    def forget_replay(self) -> None:
        """Frees what `keep` needs."""
        self.replayable, self.replays = 0, []


class Cache:
    """All layers' memory for one sequence (batch 1) or a batch of equally long ones."""

    def __init__(self, config: CloverConfig) -> None:
        self.layers: list[KVLayer | StateLayer] = [
            KVLayer() if kind == "full_attention" else StateLayer() for kind in config.layer_types
        ]
        self.length = 0
        self._last = 0
        self._snapshots: weakref.WeakSet[Snapshot] = weakref.WeakSet()

    def check(self, batch: int, appends: bool) -> None:
        """Raises ValueError where a pass of `batch` sequences does not go with this cache."""
        for layer in self.layers:
            held = layer.k if isinstance(layer, KVLayer) else layer.tail
            if held is None or held.shape[0] == batch or (held.shape[0] == 1 and not appends):
                continue
            raise ValueError(f"a pass of batch {batch} over a cache of batch {held.shape[0]}")

    def advanced(self, rows: int) -> None:
        """Called by the model after a pass that appended `rows` clean rows to every layer."""
        self.length += rows
        self._last = rows

    def keep(self, count: int) -> None:
        """Keeps the first `count` clean rows of the last pass, forgets the rest.

        Raises ValueError if `count` is out of range or the pass had over 64 rows.
        """
        if not 0 <= count <= self._last:
            raise ValueError(f"keep({count}) after a pass of {self._last} clean rows")
        if count == self._last:
            return
        if self._last > REPLAY_ROWS:
            raise ValueError(f"a pass of {self._last} rows cannot be partly undone")
        self._cut(self.length - self._last + count)
        for layer in self.layers:
            if isinstance(layer, StateLayer):
                layer.keep(count)
        self._last = 0

    def snapshot(self, replay: bool = False) -> Snapshot:
        """The place that this is. With `replay`, the last pass (of at most 64 clean rows) can be
        partly undone after going back."""
        states = [(la.tail, la.state) for la in self.layers if isinstance(la, StateLayer)]
        snap = Snapshot(self.length, states)
        replays = [la.replay for la in self.layers if isinstance(la, StateLayer)]
        if replay and self._last <= REPLAY_ROWS and all(replays):
            snap.replayable, snap.replays = self._last, replays
        self._snapshots.add(snap)
        return snap

    def snapshot_within(self, snap: Snapshot, count: int) -> Snapshot:
        """The place that this is after `restore(snap)` and `keep(count)`, as replayable as `snap`
        was."""
        within = self.snapshot()
        within.replayable, within.replays = count, snap.replays
        return within

    def copy(self, snap: Snapshot) -> Cache:
        """A cache of its own, as this one is after `restore(snap)`."""
        twin = copy.copy(self)
        twin.layers, twin._snapshots = [type(layer)() for layer in self.layers], weakref.WeakSet()
        for own, layer in zip(twin.layers, self.layers, strict=True):
            if isinstance(own, KVLayer) and isinstance(layer, KVLayer) and snap.length:
                assert layer.k is not None and layer.v is not None
                own.append(layer.k[:, :, : snap.length], layer.v[:, :, : snap.length])
        twin.restore(snap)
        return twin

    def restore(self, snap: Snapshot) -> None:
        """Goes back to `snap`. Raises ValueError once the cache was cut below its length."""
        if not snap.valid:
            raise ValueError("this snapshot's rows were rolled back and overwritten")
        self._cut(snap.length)
        states, replays = iter(snap.states), iter(snap.replays)
        for layer in self.layers:
            if isinstance(layer, StateLayer):
                layer.tail, layer.state = next(states)
                layer.replay = next(replays, {})
        self._last = snap.replayable

    def _cut(self, length: int) -> None:
        for snap in self._snapshots:
            if snap.length > length:
                snap.valid = False
        for layer in self.layers:
            if isinstance(layer, KVLayer):
                layer.length = length
        self.length = length

    def nbytes(self) -> int:
        """Bytes held (buffers at their capacity)."""
        tensors: list[Tensor | None] = []
        for layer in self.layers:
            tensors += (
                [layer.k, layer.v] if isinstance(layer, KVLayer) else [layer.tail, layer.state]
            )
        return sum(t.element_size() * t.nelement() for t in tensors if isinstance(t, torch.Tensor))
