"""Whether a killed run left anything behind, at the price of a few directory listings.

Every command asks this when it starts, so nothing heavy is imported here; `recovery.tidy` does
the work where the answer is yes.
"""

from __future__ import annotations

from pathlib import Path

from clover_patcher.repository.places import folders


def leftovers(start: Path) -> bool:
    """Whether there may be something to tidy up in or for the repository around `start`.

    A run that is still alive counts too. No repository, or one that cannot be read: no.
    """
    try:
        common = _common_dir(start)
        return common is not None and (unsettled(common) or any(folders()))
    except OSError:
        return False


def unsettled(common: Path) -> bool:
    """Whether the journal in a common git directory holds anything that is not finished."""
    clover = common / "clover"
    waiting = [*clover.glob("pending/*"), *clover.glob("new/*"), *clover.glob("staged-*")]
    return bool(waiting)


def _common_dir(start: Path) -> Path | None:
    """Where the repository around `start` keeps its records; None where there is none."""
    for folder in (start, *start.parents):
        dot_git = folder / ".git"
        if dot_git.is_dir():
            return dot_git
        if dot_git.is_file():
            words = dot_git.read_text("utf-8", "surrogateescape").strip()
            git_dir = folder / words.removeprefix("gitdir:").strip()
            pointer = git_dir / "commondir"
            if not pointer.is_file():
                return git_dir
            return git_dir / pointer.read_text("utf-8", "surrogateescape").strip()
    return None
