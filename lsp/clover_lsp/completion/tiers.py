"""Which models a place is computed with: one that answers at once, and one that knows more.

Saving power, the strong model is asked by key press only, and nothing is prepared in advance.
"""

from __future__ import annotations

from clover_lsp.completion.compute import Computer
from clover_lsp.completion.host import Host


def computer(server: Host, language: str, *, invoked: bool = False) -> Computer:
    """For what a user waits for."""
    strong, quick = server.engine.interactive(language), server.engine.quick(language)
    if quick is not None and saves_power(server) and not invoked:
        strong, quick = quick, None
    return Computer(server.settings, server.context, strong, quick)


def strong_computer(server: Host, language: str) -> Computer | None:
    """The strong model alone, in the background; None where it should not be asked."""
    if saves_power(server):
        return None
    engine = server.engine.background(language, retries=0)
    return None if engine is None else Computer(server.settings, server.context, engine)


def saves_power(server: Host) -> bool:
    return server.power.is_low(server.settings.power)
