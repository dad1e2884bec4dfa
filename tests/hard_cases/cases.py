"""The forty ways in which tools that patch repositories have been seen to fail, one anchor each."""

from __future__ import annotations

import pytest

CASES = {
    1: ("a file with CRLF gains lines with LF", "codex#4003, codex#35789"),
    2: ("a search with LF misses text with CRLF", "Roo-Code PR#10288, crush PR#684"),
    3: ("a file ends up with mixed line ends", "git apply --ignore-whitespace"),
    4: ("the byte order mark is lost", "codex#4003"),
    5: ("a file that is not UTF-8 is damaged", "codex#21164"),
    6: ("a newline is added at the end", "codex#7640, opencode#45912"),
    7: ("the last blank line is eaten", "opencode#42081"),
    8: ("tabs become blanks", "claude-code#9163, claude-code#11447, claude-code#26996"),
    9: ("U+2028 is taken for the end of a line", "jsdiff#57"),
    10: ("duplicate text: the wrong place changes, or all", "aider#2050, aider#3883, git apply"),
    11: ("an insertion ignores its context", "codex#30946"),
    12: ("an empty search appends", "aider#2258"),
    13: ("a part is applied, the rest tried again on the old text", "aider PR#685"),
    14: ("quoted and Unicode paths", "codex PR#8824, git-hunk#10"),
    15: ("paths with blanks", "libgit2#6294"),
    16: ("names that differ only in case: one file is deleted", "openai-agents-python#4889"),
    17: ("a move overwrites", "openai-agents-python#4919"),
    18: ("a link is replaced, or nothing is written", "claude-code#28376, claude-code#52463"),
    19: ("hard links are broken", "claude-code#31290"),
    20: ("the executable bit is lost", "coder PR#23336"),
    21: ("a read-only file is overwritten", "Empryo#166"),
    22: ("a path leads out of the repository", "openclaw PR#16405"),
    23: ("a patch makes links or submodules", "hyperlocalise PR#2073, git apply"),
    24: ("the repository's configuration is executed", "fletch PR#564"),
    25: ("a post-checkout hook runs on `worktree add`", "git worktree"),
    26: ("a pre-commit hook rewrites files", "pre-commit#1086"),
    27: ("stale or parallel writes lose work", "qwen-code#3839, wave-agent#1256"),
    28: ("a stash destroys work", "pi-go PR#198, claude-code#95355"),
    29: ("submodules are empty in a worktree", "t3code#7672"),
    30: ("a worktree inside the repository is committed", "lifeGLANCE PR#263"),
    31: ("a sparse checkout becomes a full one", "agent-deck#1708"),
    32: ("a worktree fetches all large files", "worktrunk#2426"),
    33: ("ignored files that a check needs are absent", "rainbow PR#7695"),
    34: ("an editable install tests the main tree", "gflow-cli#760, djust#1810"),
    35: ("stale compiled files", "ai-agents#4090"),
    36: ("detached HEAD, in the middle of a rebase", "aider raw_cmd_undo, git-absorb#64"),
    37: ("line-end conversion and filters are bypassed", "GitPython#1189, GitPython#1290"),
    38: ("a huge repository", "aider#702"),
    39: ("worktrees with relative paths", "libgit2#7210"),
    40: ("tests are weakened", "tiny-oss#75"),
}
"""Number: what goes wrong elsewhere, and where that was reported or can be seen."""


def case(number: int) -> pytest.MarkDecorator:
    """Marks a test of one of the cases with its number, its name and its anchor."""
    return pytest.mark.case(number, *CASES[number])
