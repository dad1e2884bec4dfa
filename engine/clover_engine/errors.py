"""The engine's exceptions.

::

    EngineError
    ├── CheckpointError      the weights, tokenizer or config cannot be used
    ├── EngineUnavailable    the engine cannot be started or reached
    ├── EngineCrashed        the worker died during this request; the next request restarts it
    ├── RequestError         the request itself is malformed (an empty candidate list, a bad mode)
    │   └── Unsupported      it is well-formed, but this engine can never do it; another may
    └── RequestCancelled     the caller cancelled; carries nothing, nothing was applied

Every message is one line and ends with what the user can do next.
"""

from __future__ import annotations


class EngineError(Exception):
    """Base of everything the engine raises on purpose."""


class CheckpointError(EngineError):
    """The checkpoint is missing, truncated, corrupt or of an unknown architecture."""


class EngineUnavailable(EngineError):
    """The engine cannot be started (torch is not installed) or reached (server down)."""


class EngineCrashed(EngineError):
    """The worker process died while this request was running."""


class RequestError(EngineError):
    """The request is malformed."""


class Unsupported(RequestError):
    """This engine cannot do what is asked, whoever asks (exact scores, a chat); another may."""


class RequestCancelled(EngineError):
    """The request was cancelled before it had a result."""
