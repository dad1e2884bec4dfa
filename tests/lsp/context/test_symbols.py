"""Definitions and imports of every language, and of code that does not parse."""

from __future__ import annotations

import pytest

from clover_lsp.context.grammars import GRAMMARS, grammar_of
from clover_lsp.context.symbols import grams, identifiers, line_hash, parse, unfit, word_hash

SAMPLES: dict[str, tuple[str, set[tuple[str, str, str]], set[tuple[str, str, str]]]] = {
    "python": (
        "import os.path as p\nfrom .a.b import C as D, e\nMAX = 3\nclass K(B):\n    x: int = 3\n"
        "    def m(self, a) -> str:\n        def inner(): pass\n        return 1\n"
        "@deco\nasync def top(x): return 2\n",
        {
            ("MAX", "constant", ""),
            ("K", "class", ""),
            ("x", "field", "K"),
            ("m", "method", "K"),
            ("top", "function", ""),
        },
        {("os.path", "", "p"), (".a.b", "C", "D"), (".a.b", "e", "e")},
    ),
    "typescript": (
        'import D, {a as b} from "./util";\nimport * as ns from "../x.js";\n'
        "export interface I { name: string; run(a: number): void }\n"
        "export abstract class K { private f = 1; go(a: string): void { } }\n"
        "export const f = async (x: number) => x;\nexport const LIMIT = 3;\ntype T = string;\n"
        "enum E { A }\nnamespace N { export function inner() {} }\n",
        {
            ("I", "class", ""),
            ("name", "field", "I"),
            ("run", "method", "I"),
            ("K", "class", ""),
            ("f", "field", "K"),
            ("go", "method", "K"),
            ("f", "function", ""),
            ("LIMIT", "constant", ""),
            ("T", "type", ""),
            ("E", "class", ""),
            ("inner", "method", "N"),
        },
        {("./util", "", "D"), ("./util", "a", "b"), ("../x.js", "", "ns")},
    ),
    "tsx": (
        "import {P} from './p';\nexport function App(p: P) { return <div/>; }\n",
        {("App", "function", "")},
        {("./p", "P", "P")},
    ),
    "javascript": (
        "const fs = require('fs');\nclass A { m(a) { } }\nfunction f(a) { function g() {} }\n"
        "const h = (q) => q + 1;\nfunction* gen() {}\n",
        {
            ("fs", "constant", ""),
            ("A", "class", ""),
            ("m", "method", "A"),
            ("f", "function", ""),
            ("h", "function", ""),
            ("gen", "function", ""),
        },
        {("fs", "", "fs")},
    ),
    "go": (
        'package main\nimport ( "fmt"; web "net/http" )\ntype S struct {\n\tName string\n}\n'
        "func (s *S) Run(a int) error { return nil }\nfunc Top() {}\nconst Max = 3\nvar V = 1\n",
        {
            ("S", "class", ""),
            ("Run", "method", ""),
            ("Top", "function", ""),
            ("Max", "constant", ""),
            ("V", "constant", ""),
        },
        {("fmt", "", "fmt"), ("net/http", "", "web")},
    ),
    "rust": (
        "use std::collections::{HashMap, HashSet};\nuse crate::net::Client as C;\n"
        "pub struct P { x: i32 }\nimpl P { pub fn new(x: i32) -> Self { P { x } } }\n"
        "pub trait T { fn go(&self); }\nconst N: u8 = 1;\nenum E { A }\nmod m { pub fn q() {} }\n",
        {
            ("P", "class", ""),
            ("new", "method", "P"),
            ("T", "class", ""),
            ("go", "method", "T"),
            ("N", "constant", ""),
            ("E", "class", ""),
            ("q", "method", "m"),
        },
        {
            ("std::collections", "HashMap", "HashMap"),
            ("std::collections", "HashSet", "HashSet"),
            ("crate::net", "Client", "C"),
        },
    ),
    "c": (
        '#include <stdio.h>\n#include "list.h"\n#define MAX 3\n#define SQ(x) ((x)*(x))\n'
        "struct node { int v; };\ntypedef struct node node_t;\n"
        "static int *make(int a) { return 0; }\nint proto(void);\n",
        {
            ("MAX", "constant", ""),
            ("SQ", "function", ""),
            ("node", "class", ""),
            ("node_t", "type", ""),
            ("make", "function", ""),
            ("proto", "function", ""),
        },
        {("stdio.h", "", "stdio"), ("list.h", "", "list")},
    ),
    "cpp": (
        "#include <vector>\nnamespace n { class K { public: void go(int a); }; }\n"
        "void n::K::stop(int a) { }\ntemplate <class T> T max2(T a) { return a; }\n"
        "using V = std::vector<int>;\n",
        {
            ("K", "class", "n"),
            ("go", "method", "K"),
            ("stop", "function", ""),
            ("max2", "function", ""),
            ("V", "type", ""),
        },
        {("vector", "", "vector")},
    ),
    "java": (
        "package a.b;\nimport java.util.List;\npublic class K extends B {\n"
        "  static final int MAX = 3;\n  K(int a) {}\n  public int run(String s) { return 1; }\n}\n"
        "interface I { void go(); }\nrecord R(int a) {}\n",
        {
            ("K", "class", ""),
            ("MAX", "constant", "K"),
            ("K", "method", "K"),
            ("run", "method", "K"),
            ("I", "class", ""),
            ("go", "method", "I"),
            ("R", "class", ""),
        },
        {("java.util", "List", "List")},
    ),
    "lua": (
        'local m = require("mod.x")\nfunction M.go(a) end\nfunction M:run(b) return 1 end\n'
        "local function f(x) return x end\nM.h = function(y) end\n",
        {
            ("go", "function", ""),
            ("run", "method", ""),
            ("f", "function", ""),
            ("h", "function", ""),
        },
        {("mod.x", "", "m")},
    ),
}


def test_every_grammar_has_a_sample() -> None:
    assert SAMPLES.keys() == GRAMMARS.keys()


@pytest.mark.parametrize("language", SAMPLES)
def test_definitions_and_imports(language: str) -> None:
    text, definitions, imports = SAMPLES[language]
    found = parse(text.encode(), language)
    assert {(d.name, d.kind, d.container) for d in found.definitions} == definitions
    assert {(i.module, i.name, i.local) for i in found.imports} == imports


@pytest.mark.parametrize("language", SAMPLES)
def test_broken_code_gives_what_can_be_read(language: str) -> None:
    data = SAMPLES[language][0].encode()
    for cut in range(0, len(data), 7):
        parse(data[:cut] + b"\xff{{(" + data[cut + 3 :], language)
    whole = parse(data + b"\n)))]]] {{{ \xff", language)
    assert len(whole.definitions) >= len(parse(data, language).definitions) - 1


def test_signatures_are_heads_without_bodies() -> None:
    code = b"class A:\n    def long(\n        self,\n        a: int,\n    ) -> int:\n        pass\n"
    (_, method) = parse(code, "python").definitions
    assert method.signature == "def long(\n    self,\n    a: int,\n) -> int:"
    assert (method.line, method.end_line) == (1, 5)
    (struct,) = parse(b"package p\ntype S struct {\n\tName string\n}\n", "go").definitions
    assert struct.signature == "type S struct {\n\tName string\n}"


def test_languages_by_suffix_and_by_editor() -> None:
    assert grammar_of("a/b.PY") == "python"
    assert grammar_of("x.txt", "typescriptreact") == "tsx"
    assert grammar_of("Untitled-1", "python") == "python"
    assert grammar_of("notes.txt", "plaintext") is None


def test_content_that_is_not_worth_indexing() -> None:
    assert unfit(b"x = 1\n") == ""
    assert unfit(b"\x7fELF\0\0") == "binary"
    assert unfit(b"var a=1;" * 1000) == "minified"
    assert unfit(b"// Code generated by protoc. DO NOT EDIT.\npackage x\n") == "generated"
    assert "larger" in unfit(b"x = 1\n" * 200_000)


def test_hashes_find_words_and_lines() -> None:
    found = set(grams("def größe(x):\n    return x  # größe\n".encode()))
    assert word_hash("größe") in found and word_hash("return") in found
    assert line_hash("\tdef größe(x):  ") in found
    assert identifiers("a bcd größe bcd") == ["bcd", "größe", "bcd"]
