"""Every setting of the server: one frozen dataclass, documented where it is defined.

On the wire names are camelCase, as `clover.completion.minConfidence` in an editor's settings,
or as nested objects in `initializationOptions`. Nothing here raises for what a user wrote: a bad
value is a `Complaint` and the default stands.

``python -m clover_lsp.settings --markdown | --json-schema | --vscode`` prints documentation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from clover_engine.choice.wanted import EngineName, Wanted, WantedEdits, WantedServer
from clover_engine.gate import SHOWN_CONFIDENCE
from clover_lsp.settings.power import PowerName

SECTION = "clover"

MultiLine = Literal["auto", "never"]
EditLayoutName = Literal["auto", "zeta", "zeta-2", "zeta-2.1", "sweep"]


def option(
    default: Any,
    doc: str,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    values: Mapping[str, str] | None = None,
    kind: Literal["", "url", "secret"] = "",
    own: bool = False,
) -> Any:
    """A field with its documentation and limits. `values` documents each allowed text.

    `kind`: what a text is; a secret stands in no `repr` and no complaint. `own`: the user's own
    setting, which a repository's files must not change (it says where code is sent).
    """
    metadata = {"doc": doc, "minimum": minimum, "maximum": maximum, "values": values}
    metadata |= {"kind": kind, "own": own}
    if kind == "secret":
        return field(default=default, repr=False, metadata=metadata)
    if isinstance(default, dict):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True)
class CompletionSettings:
    """Suggestions while typing."""

    enabled: bool = option(True, "Suggest code while you type.")
    languages: Mapping[str, bool] = option(
        {},
        'Switch suggestions on or off by language id, for example `{"markdown": false}`. '
        "`*` stands for all languages that are not listed.",
    )
    debounce_ms: int = option(
        150,
        "Longest wait after a keystroke before the model is asked, in milliseconds. The wait "
        "adapts to how fast you type and how fast the model answers; 0 never waits.",
        minimum=0,
        maximum=2000,
    )
    multi_line: MultiLine = option(
        "auto",
        "Suggestions of several lines.",
        values={
            "auto": "where the syntax opens a block, and only up to where the block closes",
            "never": "always a single line",
        },
    )
    max_tokens: int = option(
        64,
        "Longest suggestion, in tokens of the model.",
        minimum=1,
        maximum=512,
    )
    min_confidence: float = option(
        SHOWN_CONFIDENCE,
        "Show nothing that is less probable than this (0 to 1) to be exactly right, as estimated "
        "from held-out code. Suggestions that you ask for by a key press are always shown.",
        minimum=0,
        maximum=1,
    )
    deadline_ms: int = option(
        2000,
        "Longest time for one suggestion, in milliseconds; what is certain by then is shown.",
        minimum=50,
        maximum=60000,
    )
    alternatives: int = option(
        3,
        "How many suggestions to make when you ask for them by a key press.",
        minimum=1,
        maximum=5,
    )
    prefetch: bool = option(
        True, "Prepare the next suggestion while the current one is shown or was just accepted."
    )
    lookup: bool = option(
        True,
        "Suggest at once what followed the same code elsewhere in the repository, without asking "
        "the model. The only source of suggestions for languages that the model was not "
        "trained on.",
    )


@dataclass(frozen=True, slots=True)
class ContextSettings:
    """What the model may read."""

    budget_tokens: int = option(
        512,
        "How many tokens of other files the model reads for one suggestion. More context "
        "costs time on a CPU; 0 gives the model the current file only.",
        minimum=0,
        maximum=32768,
    )
    index: bool = option(
        True,
        "Index the repository's definitions and texts. Off: only open files, recent edits and "
        "diagnostics are used.",
    )
    ignore: tuple[str, ...] = option(
        (),
        "More files that must never be read, as patterns like those of `.gitignore`. They add to "
        "the built-in list of secret files, to what git ignores and to `.cloverignore`. Inside "
        "other files, passwords and keys are blanked where their form or the name beside them "
        "tells them; a password that is an ordinary word is not found.",
    )


@dataclass(frozen=True, slots=True)
class FixSettings:
    """Repairs offered as code actions."""

    enabled: bool = option(True, "Offer to fix diagnostics and to edit the selection.")
    budget_s: float = option(
        20.0, "Longest time for one repair, in seconds.", minimum=1, maximum=600
    )
    check: str = option(
        "",
        "Command that must succeed after a repair, run at the top of the repository (for example "
        "`pytest -q`). Empty: the diagnostic itself decides.",
    )


_LEAVES = (
    "Code goes to that machine; the status says so where it is not this one. Files that are "
    "ignored or hold secrets are not sent; inside of code, secrets that their form or the name "
    "beside them tells are blanked."
)


@dataclass(frozen=True, slots=True)
class NextEditSettings:
    """Edits proposed away from the cursor."""

    enabled: bool = option(True, "Propose the next edit after one that you made.")
    url: str = option(
        "",
        "Address of a server (llama-server, vLLM, Ollama, …) with a model that was trained to "
        "write next edits, as `http://127.0.0.1:8080`. It is asked where nothing else says what "
        f"follows from your last edits. {_LEAVES} Of documents with a secret nothing is sent. "
        "Empty: no model is asked.",
        kind="url",
        own=True,
    )
    model: str = option(
        "",
        "Name of that model, for a server that has several. A name with `zeta` or `sweep` in it "
        "says how the model is asked.",
        own=True,
    )
    layout: EditLayoutName = option(
        "auto",
        "How that model is asked.",
        values={
            "auto": "as the model's name says",
            "zeta": "Zed's first Zeta",
            "zeta-2": "Zeta 2",
            "zeta-2.1": "Zeta 2.1",
            "sweep": "Sweep's next-edit models",
        },
        own=True,
    )
    api_key: str = option(
        "", "Key that the server wants, if any; it is never logged.", kind="secret", own=True
    )

    @property
    def wanted(self) -> WantedEdits:
        layout = "" if self.layout == "auto" else self.layout
        return WantedEdits(self.url, self.model, layout, self.api_key)


_OR_ENVIRONMENT = "Empty: the environment variable `{}`, if there is one."


def _key(server: str) -> Any:
    doc = "Key that the server wants, if any; it is never logged. "
    return option("", doc + _OR_ENVIRONMENT.format(f"{server}_API_KEY"), kind="secret", own=True)


def _ca_file(server: str) -> Any:
    doc = "PEM file with the certificates to trust instead of the system's, for `https` addresses. "
    return option("", doc + _OR_ENVIRONMENT.format(f"{server}_CA_FILE"), own=True)


def _fim(server: str) -> Any:
    doc = (
        "How a hole is written, where the model's name does not tell: the name of a family "
        "(clover, qwen, starcoder, granite-code, granite, codegemma, deepseek, codellama, "
        "codestral, seed-coder, mellum, glm, plain), or the marks spelled out, as "
        "`<PRE>{prefix}<SUF>{suffix}<MID>`. "
    )
    return option("", doc + _OR_ENVIRONMENT.format(f"{server}_FIM"), own=True)


@dataclass(frozen=True, slots=True)
class SglangSettings:
    """A model served by SGLang."""

    url: str = option(
        "",
        f"Address of an SGLang server, as `http://127.0.0.1:30000`. {_LEAVES} "
        + _OR_ENVIRONMENT.format("CLOVER_SGLANG_URL"),
        kind="url",
        own=True,
    )
    api_key: str = _key("CLOVER_SGLANG")
    model: str = option(
        "",
        "Name of the model, where the server's own name for it does not tell its family (which "
        "decides how a hole is written). " + _OR_ENVIRONMENT.format("CLOVER_SGLANG_MODEL"),
        own=True,
    )
    ca_file: str = _ca_file("CLOVER_SGLANG")
    fim: str = _fim("CLOVER_SGLANG")


@dataclass(frozen=True, slots=True)
class LlamacppSettings:
    """A model served by llama.cpp's `llama-server`."""

    url: str = option(
        "",
        f"Address of llama.cpp's `llama-server`, as `http://127.0.0.1:8080`. {_LEAVES} "
        + _OR_ENVIRONMENT.format("CLOVER_LLAMACPP_URL"),
        kind="url",
        own=True,
    )
    api_key: str = _key("CLOVER_LLAMACPP")
    model: str = option(
        "",
        "Name of the model, for a server that has several. "
        + _OR_ENVIRONMENT.format("CLOVER_LLAMACPP_MODEL"),
        own=True,
    )
    ca_file: str = _ca_file("CLOVER_LLAMACPP")
    fim: str = _fim("CLOVER_LLAMACPP")


@dataclass(frozen=True, slots=True)
class OpenaiSettings:
    """A model behind OpenAI's interface."""

    url: str = option(
        "",
        "Address of a server with OpenAI's interface (Ollama, LM Studio, vLLM, a service), as "
        f"`http://127.0.0.1:11434`. {_LEAVES} " + _OR_ENVIRONMENT.format("CLOVER_OPENAI_URL"),
        kind="url",
        own=True,
    )
    api_key: str = _key("CLOVER_OPENAI")
    model: str = option(
        "",
        "Name of the model, for a server that has several; its family decides how a hole is "
        "written. " + _OR_ENVIRONMENT.format("CLOVER_OPENAI_MODEL"),
        own=True,
    )
    ca_file: str = _ca_file("CLOVER_OPENAI")
    fim: str = _fim("CLOVER_OPENAI")


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings; `Settings()` is the default."""

    engine: EngineName = option(
        "auto",
        "Which model suggests.",
        values={
            "auto": "the first one that answers: an SGLang server if its address is set, a "
            "llama.cpp server or one with OpenAI's interface likewise, the embedded model",
            "embedded": "the model that ships with clover-code, on this machine",
            "sglang": "an SGLang server; while it is away, the embedded model",
            "llamacpp": "a llama.cpp server; while it is away, the embedded model",
            "openai": "a server with OpenAI's interface, such as Ollama, LM Studio or vLLM; while "
            "it is away, the embedded model",
            "none": "no model: only what the repository itself contains is suggested",
        },
    )
    sglang: SglangSettings = field(default_factory=SglangSettings)
    llamacpp: LlamacppSettings = field(default_factory=LlamacppSettings)
    openai: OpenaiSettings = field(default_factory=OpenaiSettings)
    completion: CompletionSettings = field(default_factory=CompletionSettings)
    context: ContextSettings = field(default_factory=ContextSettings)
    fix: FixSettings = field(default_factory=FixSettings)
    next_edit: NextEditSettings = field(default_factory=NextEditSettings)
    power: PowerName = option(
        "auto",
        "How much may be computed. It counts where a larger model than the shipped one is used, or "
        "a battery.",
        values={
            "auto": "as `full`, and as `low` while the machine runs on its battery",
            "full": "the shipped model answers at once, the larger one where that is not sure; "
            "while you read, the next suggestion is prepared",
            "low": "one thread; nothing is prepared in advance, and the larger model is asked only "
            "when you ask for a suggestion by a key press",
        },
    )
    statistics: bool = option(
        True,
        "Count shown and accepted suggestions in a file on this machine, for "
        "`clover-code stats`. The counts are never sent anywhere and contain no code.",
    )

    @property
    def wanted(self) -> Wanted:
        """The part that chooses the engine."""
        return Wanted(
            self.engine,
            _server(self.sglang),
            _server(self.llamacpp),
            _server(self.openai),
            quick=True,
            threads=1 if self.power == "low" else 0,
        )

    def suggests(self, language: str) -> bool:
        """Are suggestions switched on for the language?"""
        chosen = self.completion.languages
        return self.completion.enabled and chosen.get(language, chosen.get("*", True))


def _server(given: SglangSettings | LlamacppSettings | OpenaiSettings) -> WantedServer:
    return WantedServer(given.url, given.api_key, given.model, given.ca_file, given.fim)
