"""The plain tokenizer against the library that the model uses."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clover_engine.errors import CheckpointError
from clover_engine.statistics.cutter import TOKENIZER, Cutter, cutter
from clover_engine.text.tokenizer import Tokenizer

PIECES = (
    *("\r", "\n", "\r\n", "\t", " ", "    ", "_", "__init__", "x", "Ab", "0", "42", "#", "<doc>"),
    *("é", "日本", "🙂", "\u2028", "\x85", "\xa0", "\x00", "\x0c", "(", '"""', "\ufeff", "\ud800"),
    *("->", "!=", "**=", "K", "ı", "½", "²", "٣", "\x1c", "\x1f", "\u200b", "return", " self."),
)
TEXTS = st.one_of(st.text(), st.lists(st.sampled_from(PIECES)).map("".join))


@cache
def real() -> Tokenizer:
    pytest.importorskip("tokenizers")
    return Tokenizer.load(TOKENIZER)


@given(TEXTS)
@settings(max_examples=400, deadline=None)
def test_it_gives_the_ids_of_the_models_tokenizer(text: str) -> None:
    assert cutter().cut(text) == real().encode(text)


def test_source_files_are_cut_alike() -> None:
    for path in sorted(Path(__file__).parents[3].glob("engine/clover_engine/*/*.py"))[::5]:
        text = path.read_text()
        assert cutter().cut(text) == real().encode(text), path


def test_a_word_cut_after_the_memory_was_emptied_is_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = Cutter.load()
    text = "def parse_header(self, value): return self.parse(value)"
    expected = own.cut(text)
    monkeypatch.setattr("clover_engine.statistics.cutter._REMEMBERED", 3)
    assert own.cut(text) == expected == own.cut(text)


@pytest.mark.parametrize("content", ["", "{", "{}", "[]", '{"pre_tokenizer": 3}'])
def test_another_file_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(content)
    with pytest.raises(CheckpointError, match="tokenizer"):
        Cutter.load(path)


def test_the_room_needs_neither_torch_nor_numpy_nor_tokenizers() -> None:
    script = (
        "import sys\n"
        "for name in ('torch', 'numpy', 'tokenizers', 'numba'): sys.modules[name] = None\n"
        "from clover_engine.statistics.edits import FileStatistics\n"
        "from clover_engine.statistics.cutter import cutter\n"
        "print(FileStatistics('a = 1\\nb = 1\\n', cutter()).delta(4, 5, '2') < 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "True\n", done.stderr
