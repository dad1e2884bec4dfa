"""Cases 1 to 9: every byte outside of an edit stays as it is, whatever a decoder thinks of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from .cases import case
from .harness import (
    CHECK,
    FIXED,
    HALF,
    HALF_TESTS,
    PROGRAM,
    TESTS,
    Repairs,
    prefers,
)

MODEL = prefers("return n")


def crlf(text: str) -> bytes:
    return text.replace("\n", "\r\n").encode()


@case(1)
def test_a_line_put_into_a_crlf_file_ends_with_crlf(make_repo, repairs: Repairs) -> None:
    before = crlf(HALF + "\n\ndef other():\n    pass\n")
    root = make_repo({"program.py": before, "check.py": HALF_TESTS})
    at = before.index(b"\r\n\r\ndef other")
    repairs.fixed(
        root, {"program.py": before[:at] + b"    return n\r\n" + before[at:]}, engine=MODEL
    )


@case(2)
def test_a_statement_over_several_crlf_lines_is_found(make_repo, repairs: Repairs) -> None:
    before = crlf("def add(a, b):\n    return (\n        a\n        - b\n    )\n")
    root = make_repo({"program.py": before, "check.py": crlf(TESTS)})
    repairs.fixed(root, {"program.py": before.replace(b"- b", b"+ b")})


MIXED = b"# unix\n# windows\r\ndef add(a, b):\n    return a - b\r\n\n\r\nA = 1\nB = 2\r\n"


@case(3)
def test_each_line_keeps_its_own_end(make_repo, repairs: Repairs) -> None:
    root = make_repo({"program.py": MIXED, "check.py": TESTS})
    after = MIXED.replace(b"a - b", b"a + b")
    result = repairs.fixed(root, {"program.py": after})
    make_repo.write(root, {"program.py": MIXED, "../fix.patch": result.patch})
    make_repo.git(root, "apply", "../fix.patch")
    assert (root / "program.py").read_bytes() == after


@case(3)
@pytest.mark.parametrize("mine,others", [("\n", "\r\n"), ("\r\n", "\n")])
def test_a_new_line_ends_like_its_neighbours(
    make_repo, repairs: Repairs, mine: str, others: str
) -> None:
    head, rest = HALF.replace("\n", mine), f"# more{others}" * 9
    root = make_repo({"program.py": head + rest, "check.py": HALF_TESTS})
    after = f"{head}    return n{mine}{rest}"
    repairs.fixed(root, {"program.py": after}, engine=MODEL)


BOM = b"\xef\xbb\xbf"


@case(4)
@pytest.mark.parametrize("first_line", [False, True])
def test_the_byte_order_mark_stays(make_repo, repairs: Repairs, first_line: bool) -> None:
    text = PROGRAM.replace("\n   ", "") if first_line else PROGRAM
    root = make_repo({"program.py": BOM + text.encode(), "check.py": TESTS})
    after = BOM + text.replace("-", "+").encode()
    assert repairs.fixed(root, {"program.py": after}).line == (1 if first_line else 2)


ENCODED = "# -*- coding: {} -*-\n# {}\ndef add(a, b):\n    return a - b  # {}\n"


@case(5)
@pytest.mark.parametrize(
    "encoding,word",
    [("latin-1", "café"), ("cp1251", "Сумма"), ("shift_jis", "合計ソ"), ("gb18030", "总和𝄞")],
)
def test_other_encodings_stay(make_repo, repairs: Repairs, encoding: str, word: str) -> None:
    before = ENCODED.format(encoding, word, word).encode(encoding)
    root = make_repo({"program.py": before, "check.py": TESTS})
    repairs.fixed(root, {"program.py": before.replace(b"a - b", b"a + b")})


@case(5)
def test_a_file_that_cannot_be_encoded_again_is_left_alone(make_repo, repairs: Repairs) -> None:
    """UTF-7 writes the same text in several ways: decoding and encoding would change bytes."""
    before = b"# coding: utf-7\ndef add(a, b):\n    return a +AC0 b\n"
    root = make_repo({"program.py": before, "check.py": TESTS})
    result = repairs.unchanged(root, CHECK)
    assert result.status == "none_found"
    assert result.notes == ("program.py: cannot be decoded exactly, so it is left alone",)


@case(6)
def test_no_newline_is_added_at_the_end(make_repo, repairs: Repairs) -> None:
    root = make_repo({"program.py": PROGRAM.rstrip("\n"), "check.py": TESTS})
    result = repairs.fixed(root, {"program.py": FIXED.rstrip("\n")})
    assert result.patch.count(b"\n\\ No newline at end of file\n") == 2


@case(6)
def test_a_line_put_after_a_last_line_without_newline(make_repo, repairs: Repairs) -> None:
    root = make_repo({"program.py": HALF.rstrip("\n"), "check.py": HALF_TESTS})
    repairs.fixed(root, {"program.py": HALF + "    return n"}, engine=MODEL)


@case(7)
@pytest.mark.parametrize("end", ["\n\n\n", "\t\n \n", "\n    "])
def test_blank_lines_at_the_end_stay(make_repo, repairs: Repairs, end: str) -> None:
    root = make_repo({"program.py": PROGRAM + end, "check.py": TESTS})
    repairs.fixed(root, {"program.py": FIXED + end})


@case(8)
def test_tabs_stay_tabs(make_repo, repairs: Repairs) -> None:
    before = "def add(a, b):\n\tif a:\n\t\ta\t=\ta\t\n\treturn\ta - b\t# sum \t\n"
    root = make_repo({"program.py": before, "check.py": TESTS})
    repairs.fixed(root, {"program.py": before.replace("a - b", "a + b")})


@case(8)
def test_a_line_put_between_tabs_is_indented_with_them(make_repo, repairs: Repairs) -> None:
    before = HALF.replace("    ", "\t")
    root = make_repo({"program.py": before, "check.py": HALF_TESTS})
    repairs.fixed(root, {"program.py": before + "\treturn n\n"}, engine=MODEL)


@case(9)
def test_only_a_line_feed_ends_a_line(make_repo, repairs: Repairs) -> None:
    """Separators that `str.splitlines` knows and Python's own parser does not."""
    odd = "".join(map(chr, (0x0B, 0x0C, 0x1C, 0x1D, 0x1E, 0x85, 0x2028, 0x2029)))
    before = f"TEXT = 'a{odd}b'  # c{odd}d\n\x0c\n{PROGRAM}# {odd}\n"
    root = make_repo({"program.py": before, "check.py": TESTS})
    result = repairs.fixed(root, {"program.py": before.replace("a - b", "a + b")})
    assert result.line == 4
    make_repo.git(root, "checkout", "-q", ".")
    make_repo.write(root, {"../fix.patch": result.patch})
    make_repo.git(root, "apply", "../fix.patch")
    assert repairs.status(root) == " M program.py\0"
    assert (root / "program.py").read_bytes() == before.replace("a - b", "a + b").encode()


@pytest.fixture(autouse=True)
def no_bytecode(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
