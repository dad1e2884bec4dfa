"""What the tests of SGLang's client ask."""

from __future__ import annotations

from clover_engine.api import InfillRequest
from clover_engine.generation import GenerateRequest, Message, Question

HOLE = InfillRequest("def add(a, b):\n    ", "\n")
ASK = GenerateRequest((Message("user", "why?"),))
QUESTIONS = (Question("Colour?", ("red", "blue")), Question("Size?", ("s", "m", "l")))
