"""What a request may ask of the algorithm `Clover`, and what is refused with a reason.

The server's defaults come from the file of `--dllm-algorithm-config`; a request overrides them in
`sampling_params.custom_params`:

    mode        "speculative" (default), "threshold" or "ar"
    threshold   confidence that commits a position when denoising, 0..1
    block_size  1 to the server's
    drafts      lists of token ids that may be the continuation (they never change the result)
    banned      token ids that are never generated

Every other sampling parameter of SGLang is in one of `APPLIED`, `READ`, `SGLANGS` and `REFUSED`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, get_args

from clover_engine.api import Mode

MODES: tuple[str, ...] = get_args(Mode)
_NAMES = ("mode", "threshold", "block_size", "drafts", "banned")
_SERVER_NAMES = ("mode", "threshold", "block_size", "draft_threshold")
APPLIED = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
"""Sampling parameters that the algorithm applies itself (`decode.common.Sampling`). These are also
the ones whose defaults SGLang takes from a checkpoint's generation_config.json."""
READ = ("max_new_tokens", "stop_token_ids", "ignore_eos", "sampling_seed", "custom_params")
"""Others that the algorithm reads."""
SGLANGS = (
    "stop", "stop_regex", "stop_strs", "stop_regex_strs", "stop_str_max_len", "stop_regex_max_len",
    "n", "skip_special_tokens", "spaces_between_special_tokens", "no_stop_trim", "stream_interval",
    "is_normalized", "ebnf_full_assistant",
)  # fmt: skip
"""Others that SGLang applies to what the algorithm emits, and fields of its own."""
REFUSED = {
    "frequency_penalty": 0.0,
    "presence_penalty": 0.0,
    "min_new_tokens": 0,
    "beam_width": 1,
    "logit_bias": None,
    "json_schema": None,
    "regex": None,
    "ebnf": None,
    "structural_tag": None,
    "watermark": None,
}
"""Sampling parameters that are not applied and therefore refused, and what says nothing."""
_REFUSED_OF_REQUEST = ("return_logprob", "return_hidden_states", "custom_logit_processor")


@dataclass(frozen=True, slots=True)
class DecodingOptions:
    """How one request is decoded."""

    block_size: int
    threshold: float
    mode: str = "speculative"
    draft_threshold: float = 0.3
    """A denoised draft is cut before its first token that is less probable."""
    drafts: tuple[tuple[int, ...], ...] = ()
    banned: tuple[int, ...] = ()

    def for_request(self, given: Mapping[str, Any] | None) -> DecodingOptions:
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


def server_options(config: Mapping[str, Any], block_size: int, threshold: float) -> DecodingOptions:
    """The options of `--dllm-algorithm-config`. Raises ValueError."""
    unknown = sorted(set(config) - set(_SERVER_NAMES))
    if unknown:
        raise ValueError(
            f"--dllm-algorithm-config: unknown {unknown[0]!r}; known: {', '.join(_SERVER_NAMES)}"
        )
    if found := _settings_problem(config):
        raise ValueError(f"--dllm-algorithm-config: {found}")
    return replace(DecodingOptions(block_size, threshold), **config)


def problem(request: Any) -> str | None:
    """Why an SGLang request cannot be served, or None.

    All that the algorithm would stumble over is looked at here: an exception later would end the
    scheduler, and with it every other request.
    """
    vocab = request.vocab_size
    sampling = request.sampling_params
    given = sampling.custom_params or {}
    if not _ids_ok(request.origin_input_ids, vocab):
        return f"input_ids must be token ids, 0..{vocab - 1}"
    for name in _REFUSED_OF_REQUEST:
        if getattr(request, name, None):
            return f"{name} is not available with the Clover algorithm; leave it out"
    for name, neutral in REFUSED.items():
        if (getattr(sampling, name, None) or neutral) != neutral:
            return f"{name} is not available with the Clover algorithm; leave it out"
    return _sampling_problem(sampling) or _custom_problem(given, vocab)


def _sampling_problem(sampling: Any) -> str | None:
    """SGLang checks ranges, but not all types, and lets NaN through."""
    ranges = {
        "temperature": (0.0, math.inf), "top_p": (0.0, 1.0), "min_p": (0.0, 1.0),
        "repetition_penalty": (0.0, 2.0),
    }  # fmt: skip
    for name, (low, high) in ranges.items():
        value = getattr(sampling, name)
        if not _is_number(value) or not low <= value <= high:
            return f"{name} must be a number from {low:g} to {high:g}"
    if sampling.top_p == 0 or sampling.repetition_penalty == 0:
        return "top_p and repetition_penalty must be above 0"
    for name in ("top_k", "max_new_tokens", "sampling_seed"):
        value = getattr(sampling, name)
        if type(value) is not int and not (value is None and name != "top_k"):
            return f"{name} must be a whole number"
    stops = sampling.stop_token_ids or ()
    if not all(type(token) is int for token in stops):
        return "stop_token_ids must be token ids"
    return None


def _custom_problem(given: Any, vocab: int) -> str | None:
    if not isinstance(given, Mapping):
        return "custom_params must be an object"
    unknown = sorted(str(name) for name in given if name not in _NAMES and not _is_private(name))
    if unknown:
        return f"custom_params: unknown {unknown[0]!r}; known: {', '.join(_NAMES)}"
    if found := _settings_problem(given):
        return f"custom_params: {found}"
    if "threshold" in given and given.get("mode", "threshold") != "threshold":
        return "custom_params: threshold is of mode 'threshold' alone; leave it out"
    drafts, banned = given.get("drafts", []), given.get("banned", [])
    if not isinstance(drafts, list) or not all(isinstance(draft, list) for draft in drafts):
        return "custom_params: drafts must be a list of lists of token ids"
    if not isinstance(banned, list):
        return "custom_params: banned must be a list of token ids"
    if not all(_ids_ok(ids, vocab) for ids in [*drafts, banned]):
        return f"custom_params: drafts and banned must be token ids, 0..{vocab - 1}"
    if len({*banned}) >= vocab - 1:  # the mask is banned in any case
        return "custom_params: banned must leave a token to generate"
    return None


def _is_private(name: Any) -> bool:
    """SGLang hands things from one of its processes to another under such names."""
    return isinstance(name, str) and name.startswith("__")


def _is_number(value: Any) -> bool:
    """Finite, and no truth value."""
    is_real = isinstance(value, int | float) and not isinstance(value, bool)
    return is_real and math.isfinite(value)


def _settings_problem(given: Mapping[str, Any]) -> str | None:
    mode = given.get("mode", MODES[0])
    if not isinstance(mode, str) or mode not in MODES:
        return f"mode must be one of {', '.join(MODES)}"
    for name in ("threshold", "draft_threshold"):
        value = given.get(name, 0.5)
        if not _is_number(value) or not 0 <= value <= 1:
            return f"{name} must be a number from 0 to 1"
    size = given.get("block_size", 1)
    if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= 32:
        return "block_size must be 1..32"
    return None


def _ids_ok(ids: Any, vocab: int) -> bool:
    return all(type(i) is int and 0 <= i < vocab for i in ids)
