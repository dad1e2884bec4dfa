"""The tools of an agent, in a copy of the tree: list, search, read, edit, check, done.

What is changed is kept as texts beside the copy's own files, so that every edit can be told from
what stood there before, and is written into the copy only for the check. Files that are withheld
do not exist here.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from clover_patcher.agent.checking import Checking, said_by
from clover_patcher.agent.placing import Refused, placed
from clover_patcher.agent.task import Call, CheckRun, Limits, Requirement, Result
from clover_patcher.edits import FileChange, free_path, safe_path
from clover_patcher.errors import PatcherError
from clover_patcher.instruct.files import change_of
from clover_patcher.instruct.sense import undefined
from clover_patcher.locate.functions import functions, grammar_of
from clover_patcher.propose.rewrite.edits import text_of
from clover_patcher.propose.rewrite.secrets import revealed
from clover_patcher.repository.git import Repository
from clover_patcher.repository.permission import is_frozen
from clover_patcher.repository.scope import below, matching, named_files, resolve_paths
from clover_patcher.repository.workspace import Workspace

_LARGEST = 200_000
"""Bytes of a file that is read."""
_HITS, _NAMES = 30, 200


class Tools:
    """One run's copy of the tree and what was done in it."""

    def __init__(
        self,
        requirement: Requirement,
        repository: Repository,
        workspace: Workspace,
        limits: Limits,
        checking: Checking | None,
    ) -> None:
        self._asked, self._limits, self._checking = requirement, limits, checking
        self._tree = workspace.tree(0)
        self._repository = repository
        self._contents: dict[str, bytes] = {}
        self._texts: dict[str, str] = {}
        self._shown: list[str] = []
        """Paths that the model has read, the newest last."""
        self._read_files(workspace.files)
        self._before = dict(self._texts)
        self._frozen = self._deciding()
        self._paths = resolve_paths(repository.root, requirement.root, requirement.paths)
        self.runs: list[CheckRun] = []
        self.is_done = False
        self.summary = ""

    # --- what the loop asks --------------------------------------------------------------------

    def answered(self, calls: Sequence[Call]) -> list[Result]:
        """The calls of one turn, one after the other; an edit is followed by the check."""
        results = [self.answer(call) for call in calls]
        edited = any(result.ok for result in results if result.call.tool == "edit")
        looked = any(result.call.tool == "check" for result in results)
        if edited and self._checking and not looked:
            results.append(self.answer(Call("check")))
        return results

    def answer(self, call: Call) -> Result:
        """One call. Problems are its text, not exceptions."""
        try:
            return getattr(self, f"_{call.tool}")(call)  # type: ignore[no-any-return]
        except (Refused, PatcherError) as exc:
            return Result(call, f"{call.tool} {call.argument}: {exc}".strip(), ok=False)

    @property
    def changes(self) -> tuple[FileChange, ...]:
        """All that differs from the user's files."""
        return tuple(
            self._change(path, self._before.get(path))
            for path in sorted(self._texts)
            if self._texts[path] != self._before.get(path)
        )

    @property
    def has_changed(self) -> bool:
        return self._texts != self._before

    @property
    def passes(self) -> bool:
        """Whether the check passed when it was run last."""
        return bool(self.runs) and self.runs[-1].passed

    def show(self, paths: Sequence[str]) -> None:
        """The model has read these files."""
        self._shown = list(paths)[::-1]

    @property
    def texts(self) -> dict[str, str]:
        """All files that the model may see, as they are now."""
        return self._texts

    # --- the tools -----------------------------------------------------------------------------

    def _list(self, call: Call) -> Result:
        names = [name for name in sorted(self._texts) if below(name, call.argument.strip("./"))]
        more = f"\n… and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
        return Result(call, "\n".join(names[:_NAMES]) + more if names else "no files there")

    def _search(self, call: Call) -> Result:
        wanted, hits = call.argument, []
        for path in sorted(self._texts):
            for number, line in enumerate(self._texts[path].split("\n"), 1):
                if wanted.lower() in line.lower():
                    hits.append(f"{path}:{number}: {line.strip()[:160]}")
        more = f"\n… and {len(hits) - _HITS} more lines" if len(hits) > _HITS else ""
        text = "\n".join(hits[:_HITS]) + more if hits else f"`{wanted}` stands nowhere"
        return Result(call, text, ok=bool(hits))

    def _read(self, call: Call) -> Result:
        path, text = self._one(call.argument)
        self._shown = [*(p for p in self._shown if p != path), path]
        language = grammar_of(path) or ""
        return Result(call, f"`{path}`\n```{language}\n{text.rstrip(chr(10))}\n```")

    def _edit(self, call: Call) -> Result:
        if not (call.code.strip() or call.old):
            raise Refused("the code block is empty")
        free = {path: text for path, text in self._texts.items() if self._may_change(path)}
        named = call.argument.partition("::")[0]
        if named in self._texts and named not in free:
            raise Refused(f"{named} decides whether the check passes, or was not named: leave it")
        new = placed(call, free, tuple(self._shown[::-1]))
        before = {path: self._texts.get(path) for path in new}
        new = {path: _without_stars(path, before[path] or "", text) for path, text in new.items()}
        for path in new:
            self._require_place(path, before[path])
        if all(before[path] == text for path, text in new.items()):
            raise Refused("it changes nothing: the code is there already")
        self._texts.update(new)
        self._shown = [*(p for p in self._shown if p not in new), *new]
        changes = tuple(self._change(path, before[path]) for path in new)
        words = [f"{path}: changed" if before[path] else f"{path}: created" for path in new]
        words += [w for path in new if (w := _doubts(path, before[path] or "", new[path]))]
        return Result(call, "\n".join(words), changes=changes, line=_first_line(changes[0]))

    def _check(self, call: Call) -> Result:
        if self._checking is None:
            return Result(call, "there is no check to run", ok=False)
        outcome = self._checking.run(self.changes)
        output = said_by(outcome)
        passed = outcome.status == "passed"
        self.runs.append(CheckRun(self._checking.command, passed, output))
        words = f"`{self._checking.command}` {'passes' if passed else 'fails'}"
        text = words if passed else f"{words}:\n{self._cut(output)}"
        return Result(call, text, ok=passed)

    def _done(self, call: Call) -> Result:
        if self._checking and self.has_changed and not self.passes:
            raise Refused("the check does not pass yet: go on")
        self.is_done, self.summary = True, call.argument
        return Result(call, "")

    # --- files ---------------------------------------------------------------------------------

    def _read_files(self, files: Sequence[str]) -> None:
        for path in files:
            full = self._tree / path
            if self._asked.withheld(path) or full.is_symlink() or not full.is_file():
                continue
            if full.stat().st_size <= _LARGEST:
                content = full.read_bytes()
                if (text := text_of(path, content)) is not None:
                    self._contents[path], self._texts[path] = content, text

    def _one(self, named: str) -> tuple[str, str]:
        """The file that the model means, or the function of it (`path::name`), and its text."""
        path, _, name = named.strip("./ ").partition("::")
        found = [p for p in self._texts if p == path or p.endswith("/" + path)]
        if len(found) != 1 and path not in found:
            like = [p for p in self._texts if Path(p).name == Path(path).name]
            hint = f"; there are: {', '.join(sorted(like)[:5])}" if like else "; LIST names files"
            raise Refused(f"there is no file {path}{hint}")
        path = path if path in found else found[0]
        text = self._texts[path]
        code = text.encode()
        for function in functions(grammar_of(path) or "python", code) if name else ():
            if name in (function.qualname, function.name):
                return path, code[function.outer_start : function.outer_end].decode()
        return path, self._cut(text, 4 * self._limits.output)

    def _deciding(self) -> frozenset[str]:
        """Files that decide whether the check passes, and that nobody has freed."""
        if self._checking is None:
            return frozenset()
        named = named_files(self._checking.words, self._checking.cwd)
        freed = matching(list(self._texts), self._asked.allow)
        tests = {path for path in self._texts if is_frozen(path)}
        return frozenset((named | tests) & self._texts.keys()) - freed

    def _may_change(self, path: str) -> bool:
        chosen = not self._paths or any(below(path, folder) for folder in self._paths)
        return chosen and path not in self._frozen

    def _require_place(self, path: str, before: str | None) -> None:
        """Raises `UsageError` or `TreeChanged` where the user's tree cannot have the file."""
        if before is None and self._asked.withheld(path):
            raise Refused(f"{path} is withheld: choose another name")
        if before is None and not self._may_change(path):
            raise Refused(f"{path} is not among the files that may be changed")
        place = safe_path if path in self._contents else free_path
        if path not in self._asked.overlay:
            place(self._repository.root, path)

    def _change(self, path: str, before: str | None) -> FileChange:
        """From a former text, or the file's own bytes, to the present text."""
        if before is None:
            return FileChange(path, b"", self._texts[path].encode(), created=True)
        content = self._contents.get(path, b"")
        if path in self._contents and before != self._before[path]:
            content = change_of(path, content, before).after
        if path not in self._contents:
            return FileChange(path, before.encode(), self._texts[path].encode())
        return change_of(path, content, self._texts[path])

    def _cut(self, text: str, limit: int = 0) -> str:
        """The text without its middle, where it is too long."""
        limit = limit or self._limits.output
        if len(text) <= limit:
            return text
        return f"{text[: limit // 2]}\n[… {len(text) - limit} characters …]\n{text[-limit // 2 :]}"


def _without_stars(path: str, before: str, after: str) -> str:
    """The text with secrets that a server saw as stars. Raises `Refused`."""
    text = revealed(before, after)
    if text is None:
        raise Refused(f"it writes stars over a secret in {path}: leave that line alone")
    return text


def _doubts(path: str, before: str, after: str) -> str:
    """Names that nobody defines, in words."""
    names = undefined(before, after) if grammar_of(path) == "python" else []
    return f"but {', '.join(names)} is not defined in {path}: import or define it" if names else ""


def _first_line(change: FileChange) -> int:
    old, new = change.before.split(b"\n"), change.after.split(b"\n")
    pairs = enumerate(zip(old, new, strict=False), 1)
    return next((number for number, (a, b) in pairs if a != b), min(len(old), len(new)))
