"""What a request may ask of the algorithm `Clover`, and what is refused with a reason.

The server's defaults come from the file of `--dllm-algorithm-config`; a request overrides them in
`sampling_params.custom_params`:

    mode        "speculative" (default), "threshold" or "ar"
    threshold   confidence that commits a position when denoising, 0..1
    block_size  1 to the server's
    drafts      lists of token ids that may be the continuation (they never change the result)
    banned      token ids that are never generated
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, get_args

from clover_engine.api import Mode

MODES: tuple[str, ...] = get_args(Mode)
_NAMES = ("mode", "threshold", "block_size", "drafts", "banned")
_SERVER_NAMES = ("mode", "threshold", "block_size", "draft_threshold")
_NEUTRAL = {
    "frequency_penalty": 0.0,
    "presence_penalty": 0.0,
    "repetition_penalty": 1.0,
    "min_p": 0.0,
    "min_new_tokens": 0,
    "logit_bias": None,
    "json_schema": None,
    "regex": None,
    "ebnf": None,
    "structural_tag": None,
}
"""Sampling parameters that the algorithm does not apply, and the value that says nothing."""


@dataclass(frozen=True, slots=True)
class Options:
    """How one request is decoded."""

    block_size: int
    threshold: float
    mode: str = "speculative"
    draft_threshold: float = 0.3
    """A denoised draft is cut before its first token that is less probable."""
    drafts: tuple[tuple[int, ...], ...] = ()
    banned: tuple[int, ...] = ()

    def for_request(self, given: Mapping[str, Any] | None) -> Options:
        """These defaults with a request's own; `given` has passed `problem`."""
        if not given:
            return self
        own = {name: given[name] for name in _NAMES if name in given}
        if "drafts" in own:
            own["drafts"] = tuple(tuple(draft) for draft in own["drafts"])
        if "banned" in own:
            own["banned"] = tuple(own["banned"])
        if "block_size" in own:
            own["block_size"] = min(own["block_size"], self.block_size)
        return replace(self, **own)


def server_options(config: Mapping[str, Any], block_size: int, threshold: float) -> Options:
    """The options of `--dllm-algorithm-config`. Raises ValueError."""
    unknown = sorted(set(config) - set(_SERVER_NAMES))
    if unknown:
        raise ValueError(
            f"--dllm-algorithm-config: unknown {unknown[0]!r}; known: {', '.join(_SERVER_NAMES)}"
        )
    if found := _settings_problem(config):
        raise ValueError(f"--dllm-algorithm-config: {found}")
    return replace(Options(block_size, threshold), **config)


def problem(request: Any) -> str | None:
    """Why an SGLang request cannot be served, or None. Ids are checked: a bad one would kill the
    scheduler, and with it every other request."""
    vocab = request.vocab_size
    given = request.sampling_params.custom_params or {}
    if not _ids_ok(request.origin_input_ids, vocab):
        return f"input_ids must be token ids, 0..{vocab - 1}"
    if request.return_logprob:
        return "return_logprob is not available with the Clover algorithm; leave it out"
    for name, neutral in _NEUTRAL.items():
        if (getattr(request.sampling_params, name) or neutral) != neutral:
            return f"{name} is not available with the Clover algorithm; leave it out"
    if found := _settings_problem(given):
        return f"custom_params: {found}"
    drafts, banned = given.get("drafts", []), given.get("banned", [])
    if not isinstance(drafts, list) or not all(isinstance(draft, list) for draft in drafts):
        return "custom_params: drafts must be a list of lists of token ids"
    if not isinstance(banned, list):
        return "custom_params: banned must be a list of token ids"
    if not all(_ids_ok(ids, vocab) for ids in [*drafts, banned]):
        return f"custom_params: drafts and banned must be token ids, 0..{vocab - 1}"
    return None


def _settings_problem(given: Mapping[str, Any]) -> str | None:
    if given.get("mode", MODES[0]) not in MODES:
        return f"mode must be one of {', '.join(MODES)}"
    for name in ("threshold", "draft_threshold"):
        value = given.get(name, 0.5)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            return f"{name} must be a number from 0 to 1"
    size = given.get("block_size", 1)
    if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= 32:
        return "block_size must be 1..32"
    return None


def _ids_ok(ids: Any, vocab: int) -> bool:
    return all(type(i) is int and 0 <= i < vocab for i in ids)
