"""The workspace's folders, its settings, and documents that are too large, over the protocol."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lsprotocol import types

from clover_engine.testing.waiting import until
from clover_lsp.documents.documents import MAX_CHARS


def test_a_folder_leaves_however_its_uri_ends(servers: Any, tmp_path: Path) -> None:
    """`…/w7/` stayed indexed where `…/w7` was removed at 2846628, and the other way round."""
    roots = []
    for name in ("one", "two"):
        root = tmp_path / name
        root.mkdir()
        (root / "a.py").write_text("x = 1\n")
        roots.append(root)
    editor = servers(roots=roots)
    assert editor.status()["index"]["files"] == 2
    for number, ending in ((0, "/"), (1, "/.")):
        gone = types.WorkspaceFolder(roots[number].as_uri() + ending, "gone")
        event = types.WorkspaceFoldersChangeEvent(added=[], removed=[gone])
        editor.client.workspace_did_change_workspace_folders(
            types.DidChangeWorkspaceFoldersParams(event)
        )
        left = 1 - number
        until(lambda left=left: editor.status()["index"]["files"] == left)


def test_a_large_document_is_told_in_the_status_and_gets_nothing(servers: Any) -> None:
    editor = servers()
    uri = editor.open("untitled:large.py", "x = 1\n" * (MAX_CHARS // 6 + 1))
    status = editor.status()
    assert status["kind"] == "Inactive" and "larger than 2 MB" in status["message"]
    assert editor.ask(uri, 0).result(60) is None
    editor.close(uri)
    assert editor.status()["kind"] != "Inactive"
