"""Finds snippets that may help at a place. Each function is one kind; `rank.choose` picks."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from clover_engine.languages import comment_mark
from clover_engine.line_ends import to_lf
from clover_engine.privacy.secrets import redact
from clover_lsp.context.buffers import Buffer
from clover_lsp.context.diff import Hunk
from clover_lsp.context.edits import Group
from clover_lsp.context.focus import Focus, from_module
from clover_lsp.context.grammars import grammar_of
from clover_lsp.context.known import Known, Sited
from clover_lsp.context.sources import distance, read
from clover_lsp.context.store import Reader
from clover_lsp.context.symbols import identifiers, word_hash
from clover_lsp.context.types import Problem, ScoredSnippet

MAX_SAME_NAME = 10
"""A name with more definitions than this says nothing, unless an import says which is meant."""
MAX_MEMBERS = 8
MAX_PER_FILE = 6
"""Definitions shown from one file."""
MAX_USAGES = 3
USAGE_LINES = 15
USAGE_NAMES = 4
USAGE_PLACES = 4
"""Places looked at for each of the rarest names in one file."""
MAX_OPEN = 8
PROBLEM_LINES = 30


def definitions(known: Known, focus: Focus, path: str) -> list[ScoredSnippet]:
    """Signatures of names used near the cursor; those of one file make one snippet."""
    by_file: dict[str, list[tuple[float, str, Sited]]] = defaultdict(list)
    language = grammar_of(path)
    for name in focus.names:
        imported = focus.imports.get(name)
        if name in focus.own_names and imported is None:
            continue
        wanted = imported.name if imported and imported.name else name
        found = [d for d in known.definitions(wanted, 4 * MAX_SAME_NAME) if d.path != path]
        for sited in found:
            if language and _family(sited.language) != _family(language):
                continue
            if imported:
                fit = from_module(sited.path, imported.module)
                if not fit or sited.definition.container and imported.name:
                    continue
                score, why = 6.0 + 2.0 * fit, f"{name} is imported from {imported.module}"
            elif len(found) > MAX_SAME_NAME or not focus.may_mean(
                name, sited.definition.kind, len(found)
            ):
                continue
            else:
                near = 1.0 / (1 + distance(path, sited.path)) + 2.0 * focus.module_fit(sited.path)
                score, why = 2.0 + 2.0 * near / len(found) + near, f"{name} is used near the cursor"
            weight = min(1.0, focus.weights[name])
            by_file[sited.path].append((score + weight, why, sited))
    return [_definitions_of(known, found) for _, found in sorted(by_file.items())]


def _definitions_of(known: Known, needed: list[tuple[float, str, Sited]]) -> ScoredSnippet:
    """One snippet for what is needed of a file, in the file's order."""
    best = sorted(needed, key=lambda f: (-f[0], f[2].definition.line))[:MAX_PER_FILE]
    shown = {sited.definition.line: _shown(known, sited) for _, _, sited in best}
    text = "\n".join(shown[line] for line in sorted(shown))
    first = best[0][2]
    return ScoredSnippet(
        redact(text) if first.secret else text,
        first.path,
        min(shown) + 1,
        "definition",
        round(best[0][0] + 0.1 * (len(best) - 1), 3),
        "; ".join(dict.fromkeys(why for _, why, _ in best)),
    )


def _shown(known: Known, sited: Sited) -> str:
    """A signature; of a class also those of its members, of a member also its class."""
    definition = sited.definition
    if definition.container and definition.kind in ("method", "field"):
        owner = [
            d.definition
            for d in known.definitions(definition.container, 20)
            if d.path == sited.path and d.definition.kind == "class"
        ]
        head = owner[0].signature + "\n" if owner else ""
        return head + _indented(definition.signature)
    lines = [definition.signature]
    if definition.kind == "class":
        members = known.members(sited, MAX_MEMBERS)
        lines += [_indented(member.signature) for member in members]
    return "\n".join(lines)


def _indented(text: str) -> str:
    return "\n".join("    " + line for line in text.split("\n"))


def _family(language: str) -> str:
    return {"typescript": "javascript", "tsx": "javascript", "c": "cpp"}.get(language, language)


def notebook_cells(cells: Sequence[Buffer], path: str, limit: int) -> list[ScoredSnippet]:
    """The other cells of the same notebook as one text, of which the last `limit` characters."""
    ordered = sorted(cells, key=lambda cell: cell.order)
    text = "\n".join(cell.safe_text.strip("\n") for cell in ordered if cell.text.strip())
    if not text:
        return []
    return [ScoredSnippet(text[-limit:], path, 1, "open", 9.0, "other cells of this notebook")]


def open_windows(
    buffers: Iterable[tuple[str, Buffer]], focus: Focus, rare: Mapping[str, float]
) -> list[ScoredSnippet]:
    """Of each open document, the window that shares most names with the cursor's surroundings."""
    total = sum(rare.values()) or 1.0
    names = frozenset(rare)
    found = []
    for age, (path, buffer) in enumerate(buffers):
        if age == MAX_OPEN:
            break
        best = max(
            ((sum(rare[w] for w in names & window.words), -window.first_line, window)
             for window in buffer.windows),
            default=None,
            key=lambda scored: scored[:2],
        )  # fmt: skip
        if best is None or not best[0]:
            continue
        score = 1.0 + 2.5 * min(1.0, best[0] / total) + 0.5 / (1 + age)
        shared = sorted(names & best[2].words, key=lambda w: (-rare[w], w))[:3]
        found.append(
            ScoredSnippet(
                best[2].text.strip("\n"),
                path,
                best[2].first_line + 1,
                "open",
                round(score, 3),
                f"open in the editor, also uses {', '.join(shared)}",
            )
        )
    return found


def usages(
    reader: Reader, root: Path, focus: Focus, rare: Mapping[str, float], path: str
) -> list[ScoredSnippet]:
    """Windows of repository files that use the rarest names near the cursor."""
    scores: dict[int, float] = defaultdict(float)
    for name in sorted(rare, key=lambda n: (-rare[n], n))[:8]:
        files, count = reader.postings(word_hash(name), 64)
        if count <= 64:
            for file in files:
                scores[file] += rare[name]
    for name, imported in focus.imports.items():
        if imported.name and name in rare:
            for file, module in reader.importers(imported.name, 16):
                if module == imported.module:
                    scores[file] += rare[name]
    own = reader.by_path.get(path)
    language = _family(grammar_of(path) or "")
    ranked = sorted(
        (f for f in scores if f != own and f in reader.files),
        key=lambda f: (-scores[f], distance(path, reader.files[f].path), reader.files[f].path),
    )
    total = sum(rare.values()) or 1.0
    found = []
    for file in ranked[:MAX_USAGES]:
        stored = reader.files[file]
        text = read(root, stored) if _family(stored.language) == language else None
        window = _best_window(text, rare) if text else None
        if window is not None:
            score = 1.0 + 2.0 * min(1.0, window[2] / total)
            found.append(
                ScoredSnippet(
                    window[1], stored.path, window[0] + 1, "reference", round(score, 3),
                    f"uses {', '.join(window[3])}",
                )
            )  # fmt: skip
    return found


def _best_window(text: str, rare: Mapping[str, float]) -> tuple[int, str, float, list[str]] | None:
    """(first line, text, score, names) of the lines around an occurrence that hold most names."""
    lines = text.split("\n")
    firsts: dict[int, None] = {}
    for name in sorted(rare, key=lambda n: (-rare[n], n))[:USAGE_NAMES]:
        line = at = 0
        found = text.find(name)
        for _ in range(USAGE_PLACES):
            if found < 0:
                break
            line, at = line + text.count("\n", at, found), found
            firsts[max(0, line - USAGE_LINES // 3)] = None
            found = text.find(name, at + 200)
    best: tuple[float, int, frozenset[str]] | None = None
    for first in firsts:
        words = frozenset(identifiers("\n".join(lines[first : first + USAGE_LINES])))
        score = sum(rare[w] for w in sorted(words & rare.keys()))
        if best is None or score > best[0]:
            best = score, first, words & rare.keys()
    if best is None:
        return None
    shown = sorted(best[2], key=lambda w: (-rare[w], w))[:3]
    window = "\n".join(lines[best[1] : best[1] + USAGE_LINES]).strip("\n")
    return best[1], window, best[0], shown


def edits(groups: Sequence[tuple[str, Group]]) -> list[ScoredSnippet]:
    """What was changed in other documents lately, as the lines are now."""
    found = []
    for age, (path, group) in enumerate(groups):
        _, after = group.lines()
        if after.strip():
            score = round(3.0 - 0.3 * age, 3)
            found.append(
                ScoredSnippet(
                    redact(to_lf(after)), path, group.first_line, "edit", score, "just edited"
                )
            )  # fmt: skip
    return found


def changes(hunks: Sequence[Hunk], focus: Focus, path: str) -> list[ScoredSnippet]:
    """Uncommitted changes of other files that share names with the cursor's surroundings."""
    names = frozenset(focus.names)
    found = []
    for hunk in hunks:
        shared = names.intersection(identifiers(hunk.text))
        if shared and hunk.path != path:
            score = 1.0 + min(1.0, 0.25 * len(shared))
            why = f"not committed yet, also uses {', '.join(sorted(shared)[:3])}"
            found.append(
                ScoredSnippet(hunk.text, hunk.path, hunk.first_line, "diff", score, why)
            )  # fmt: skip
    return found


def problems(
    reported: Sequence[Problem], line: int, path: str, language: str
) -> list[ScoredSnippet]:
    """Errors and warnings near the cursor's line (from 0), as comments."""
    mark = comment_mark(grammar_of(path, language))
    near = [
        p
        for p in reported
        if abs(p.line - line) <= PROBLEM_LINES and p.severity in ("error", "warning")
    ]
    near.sort(key=lambda p: (abs(p.line - line), p.line, p.message))
    found = []
    for problem in near[:3]:
        words = " ".join(redact(problem.message).split())[:240]
        score = 4.0 - 2.0 * math.log1p(abs(problem.line - line)) / math.log(32)
        text = f"{mark} {problem.severity} in line {problem.line + 1}: {words}"
        why = f"reported by {problem.source or 'the editor'}"
        found.append(
            ScoredSnippet(text, path, problem.line + 1, "diagnostic", round(score, 3), why)
        )
    return found
