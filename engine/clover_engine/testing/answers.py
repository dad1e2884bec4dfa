"""What the fake server of `testing_server` answers: SGLang's interface without a model.

Tokens are `testing.pieces` and marks; log-probabilities follow from the tokens, so that all is the
same every time.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from clover_engine.testing.fakes import pieces

_MARK = re.compile(r"<\|?[a-zA-Z_]+\|?>")
_VOCABULARY = 50_000
Reply = tuple[int, Any]
"""Status and JSON body."""


@dataclass
class FakeModel:
    """The model behind a fake server. Every field can be changed between requests."""

    texts: Sequence[str] = ("pass",)
    """Answers, by seed: with seed 0, the first."""
    on_prompt: Callable[[str, int], str] | None = None
    """Makes the answer from the prompt and the seed, instead of `texts`."""
    name: str = "fake/Qwen2.5-Coder-0.5B"
    others: Sequence[str] = ()
    """Names of further models that the server has."""
    architectures: Sequence[str] = ("Qwen2ForCausalLM",)
    model_type: str = "qwen2"
    context: int = 4096
    is_diffusion: bool = False
    algorithm: str = "LowConfidence"
    """Of block diffusion."""
    is_incremental: bool = False
    splits_thinking: bool = True
    thinking: str = ""
    """What the model thinks before a chat's answer, if it is asked to think."""
    opens_thinking: bool = False
    """The chat template ends with the opening mark."""
    marks: Sequence[str] = ()
    """Strings that are one token; empty: everything that looks like a mark."""
    missing: frozenset[str] = field(default_factory=frozenset)
    """Paths that this version does not have."""

    def tokens(self, text: str) -> list[str]:
        """The text's tokens; joined, they are the text again."""
        found, at = [], 0
        for mark in _MARK.finditer(text):
            if not self.marks or mark[0] in self.marks:
                found += [*pieces(text[at : mark.start()]), mark[0]]
                at = mark.end()
        return found + pieces(text[at:])

    def answer(self, prompt: str, sampling: Mapping[str, Any]) -> tuple[list[str], dict[str, Any]]:
        """The new tokens, and SGLang's reason for their end."""
        seed = int(sampling.get("sampling_seed") or 0)
        text = self.on_prompt(prompt, seed) if self.on_prompt else self._text(seed)
        limit = int(sampling.get("max_new_tokens", 128))
        reason: dict[str, Any] = {"type": "stop", "matched": 2}
        for stop in sampling.get("stop") or ():
            if stop in text:
                text, reason = text.split(stop, 1)[0], {"type": "stop", "matched": stop}
        tokens = self.tokens(text)
        if len(tokens) > limit:
            tokens, reason = tokens[:limit], {"type": "length", "length": limit}
        return tokens, reason

    def too_long(self, prompt: str, sampling: Mapping[str, Any]) -> str | None:
        """SGLang's complaint about a request that does not fit, or None."""
        count = len(self.tokens(prompt))
        if count + int(sampling.get("max_new_tokens", 128)) <= self.context:
            return None
        return f"Requested token count exceeds the model's context length of {self.context} tokens."

    def prompt_logprobs(self, text: str, start: int) -> list[list[Any]]:
        """``[logprob, id, text]`` of the tokens from position `start` on; the first has no number,
        as in SGLang."""
        tokens = self.tokens(text)[start:]
        return [self._logprob(token, has_number=i > 0) for i, token in enumerate(tokens)]

    def output_logprobs(self, tokens: Sequence[str]) -> list[list[Any]]:
        """The same for new tokens; none in block diffusion."""
        return [] if self.is_diffusion else [self._logprob(token) for token in tokens]

    def reply(self, method: str, path: str, body: Mapping[str, Any]) -> Reply | None:
        """The answer to everything that is not a stream; None for an unknown path."""
        if path in self.missing:
            return None
        if method == "GET":
            return self._about(path)
        answers: dict[str, Callable[[Mapping[str, Any]], Reply]] = {
            "/tokenize": self._tokenize,
            "/detokenize": self._detokenize,
            "/generate": self._generate,
            "/v1/decisions": self._decide,
            "/v1/chat/completions": self._chat,
        }
        return answers[path](body) if path in answers else None

    def chat_pieces(self, body: Mapping[str, Any]) -> Iterator[dict[str, str]]:
        """The deltas of a chat's answer, and at last the usage."""
        asked = "\n".join(m["content"] for m in body["messages"])
        limit = int(body.get("max_tokens") or 128)
        said, _ = self.answer(asked, {"max_new_tokens": limit})
        wants = bool(body.get("chat_template_kwargs", {}).get("enable_thinking", True))
        thought = pieces(self.thinking) if wants else []
        if thought and self.splits_thinking:
            yield from ({"reasoning_content": piece} for piece in thought)
        elif thought:
            text = ("" if self.opens_thinking else "<think>") + self.thinking + "</think>"
            # in odd lengths, so that marks fall apart
            yield from ({"content": text[i : i + 3]} for i in range(0, len(text), 3))
        yield from ({"content": piece} for piece in said)

    def _text(self, seed: int) -> str:
        return self.texts[seed % len(self.texts)]

    def _logprob(self, token: str, has_number: bool = True) -> list[Any]:
        number = zlib.crc32(token.encode("utf-8", "replace"))
        logprob = -0.05 - number % 1000 / 1000 if has_number else None
        return [logprob, number % _VOCABULARY, token]

    def _about(self, path: str) -> Reply | None:
        if path == "/model_info":
            return 200, {
                "model_path": f"/models/{self.name}",
                "served_model_name": self.name,
                "architectures": list(self.architectures),
                "model_type": self.model_type,
                "reasoning_parser": "qwen3" if self.splits_thinking else None,
            }
        if path == "/server_info":
            return 200, {
                "context_length": None,
                "max_req_input_len": self.context,
                "dllm_algorithm": self.algorithm if self.is_diffusion else None,
                "incremental_streaming_output": self.is_incremental,
            }
        if path == "/health":
            return 200, {"status": "ok"}
        if path == "/props":  # llama-server's
            settings = {"n_ctx": self.context}
            return 200, {"model_alias": self.name, "default_generation_settings": settings}
        if path == "/v1/models":
            cards = [{"id": name, "max_model_len": None} for name in (self.name, *self.others)]
            return 200, {"object": "list", "data": cards}
        return None

    def _tokenize(self, body: Mapping[str, Any]) -> Reply:
        text = body.get("prompt")
        if text is None:
            text = "\n".join(m["content"] for m in body["messages"])
            text += "<think>" if self.opens_thinking else ""
        tokens = self.tokens(text)
        ids = [self._logprob(token)[1] for token in tokens]
        self._last = dict(zip(ids, tokens, strict=True))
        return 200, {"tokens": ids, "count": len(ids), "max_model_len": self.context}

    def _detokenize(self, body: Mapping[str, Any]) -> Reply:
        return 200, {"text": "".join(self._last.get(i, "?") for i in body["tokens"])}

    def _generate(self, body: Mapping[str, Any]) -> Reply:
        """Without a stream: what scoring asks."""
        texts = body["text"] if isinstance(body["text"], list) else [body["text"]]
        start = int(body.get("logprob_start_len", 0))
        items = []
        for text in texts:
            if (error := self.too_long(text, body["sampling_params"])) is not None:
                return 400, {"error": {"message": error, "code": 400}}
            known = [] if self.is_diffusion else self.prompt_logprobs(text, start)
            about = {"input_token_logprobs": known, "prompt_tokens": len(self.tokens(text))}
            items.append({"text": "", "meta_info": about})
        return 200, items

    def _chat(self, body: Mapping[str, Any]) -> Reply:
        """Without a stream: what joint decisions ask. The letters A and B could have stood at
        the place of each token, with a probability of 1/8 each."""
        asked = "\n".join(m["content"] for m in body["messages"])
        tokens, _ = self.answer(asked, {"max_new_tokens": body.get("max_tokens") or 128})
        content = [
            {
                "token": token,
                "top_logprobs": [
                    {"token": token, "logprob": math.log(0.75)},
                    *(
                        {"token": letter, "logprob": math.log(0.125)}
                        for letter in (" A", " B")
                        if letter != token
                    ),
                ],
            }
            for token in tokens
        ]
        message = {"role": "assistant", "content": "".join(tokens)}
        return 200, {"choices": [{"message": message, "logprobs": {"content": content}}]}

    def _decide(self, body: Mapping[str, Any]) -> Reply:
        if self.is_diffusion:
            return 400, {"error": {"message": "block diffusion has no scores", "code": 400}}
        answers = {}
        for question in body["questions"]:
            names = [option["name"] for option in question["options"]]
            weights = [1 + zlib.crc32((question["question"] + name).encode()) % 9 for name in names]
            shares = [weight / sum(weights) for weight in weights]
            answers[question["id"]] = {"probabilities": dict(zip(names, shares, strict=True))}
        return 200, {"answers": answers}
