"""The configuration of a copy's git directory, made of the original's."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

_LOCAL = (b"local", b"worktree")
_IDENTITY = (b"user.name", b"user.email")
_LEFT_OUT = frozenset(
    {b"core.worktree", b"core.bare", b"core.fsmonitor", b"core.untrackedcache", b"core.hookspath"}
    | {b"extensions.worktreeconfig", b"extensions.relativeworktrees", b"include.path"}
)
"""Settings that are true of the original alone; files that are included are taken in."""
_REPLACED = (
    (b"core.bare", b"false"),
    (b"core.fsmonitor", b"false"),
    (b"core.untrackedcache", b"false"),
)
_NO_PUSH = b"clover-code://pushing-is-off-in-copies/"
"""An address that git has no helper for."""
_ESCAPED = ((b"\\", b"\\\\"), (b'"', b'\\"'), (b"\n", b"\\n"), (b"\t", b"\\t"), (b"\b", b"\\b"))


class Entry(NamedTuple):
    """One setting. The section and the name in `key` are in lower case."""

    key: bytes
    value: bytes | None
    """None where the key stands alone, which means true."""
    scope: bytes = b"local"


def parse(listed: bytes) -> list[Entry]:
    """Reads what `git config --list -z --show-scope` prints; our own overrides are left out."""
    fields = listed.split(b"\0")[:-1]
    found = []
    for scope, said in zip(fields[::2], fields[1::2], strict=True):
        key, line_end, value = said.partition(b"\n")
        if scope != b"command":
            found.append(Entry(key, value if line_end else None, scope))
    return found


def hooks_setting(entries: Iterable[Entry]) -> bytes | None:
    """The value of core.hooksPath that counts."""
    return {entry.key: entry.value for entry in entries}.get(b"core.hookspath")


def copied(entries: Sequence[Entry], root: Path) -> list[Entry]:
    """The settings of a copy of the working tree `root`, all in one file.

    Nothing can be pushed to remotes that are configured, by name or by address. The user's name
    stands there too, since conditions on paths in their own configuration do not hold in a copy.
    """
    known = {entry.key: entry.value for entry in entries}
    own = [entry for entry in entries if entry.scope in _LOCAL and _is_kept(entry.key)]
    addresses = list(_addresses(entries))
    return [
        *(Entry(key, known[key]) for key in _IDENTITY if known.get(key) is not None),
        *(_absolute(entry, root) for entry in own),
        *(Entry(key, value) for key, value in _REPLACED),
        *(Entry(b"remote.%s.pushurl" % name, _NO_PUSH) for name in _remotes(entries)),
        *(
            Entry(b"url.%s.pushinsteadof" % _NO_PUSH, address)
            for said in dict.fromkeys(addresses)
            for address in dict.fromkeys((said, _absolute_address(said, root)))
        ),
    ]


def written(entries: Iterable[Entry]) -> bytes:
    """The text of a configuration file."""
    return b"".join(_lines(entry) for entry in entries)


def _lines(entry: Entry) -> bytes:
    section, middle, name = _parts(entry.key)
    header = section if middle is None else b'%s "%s"' % (section, _escaped(middle, _ESCAPED[:2]))
    if entry.value is None:
        return b"[%s]\n\t%s\n" % (header, name)
    return b'[%s]\n\t%s = "%s"\n' % (header, name, _escaped(entry.value, _ESCAPED))


def _escaped(text: bytes, signs: Iterable[tuple[bytes, bytes]]) -> bytes:
    for plain, escaped in signs:
        text = text.replace(plain, escaped)
    return text


def _parts(key: bytes) -> tuple[bytes, bytes | None, bytes]:
    """Section, subsection (which may hold dots, or be missing) and name."""
    section, _, rest = key.partition(b".")
    middle, dot, name = rest.rpartition(b".")
    return section, middle if dot else None, name


def _is_kept(key: bytes) -> bool:
    section, middle, name = _parts(key)
    if section == b"includeif" or key in _LEFT_OUT:
        return False
    if section == b"url":
        return name != b"pushinsteadof"
    return not (section == b"remote" and middle and name in (b"pushurl", b"vcs"))


def _remotes(entries: Iterable[Entry]) -> Iterator[bytes]:
    names = (_parts(entry.key)[1] for entry in entries if entry.key.startswith(b"remote."))
    return iter(dict.fromkeys(name for name in names if name))


def _addresses(entries: Sequence[Entry]) -> Iterator[bytes]:
    """Where something could be pushed to: addresses of remotes, and those that stand for one."""
    remotes = set(_remotes(entries))
    for entry in entries:
        section, middle, name = _parts(entry.key)
        if section == b"remote" and middle and name in (b"url", b"pushurl"):
            yield from filter(None, [entry.value])
        elif _names_remote(section, middle, name) and entry.value not in (None, b"", b"."):
            assert entry.value is not None
            if entry.value not in remotes:
                yield entry.value


def _names_remote(section: bytes, middle: bytes | None, name: bytes) -> bool:
    if section == b"branch" and middle:
        return name in (b"remote", b"pushremote")
    return section == b"remote" and not middle and name == b"pushdefault"


def _absolute(entry: Entry, root: Path) -> Entry:
    """A remote's relative path is relative to the original."""
    section, _, name = _parts(entry.key)
    if section == b"remote" and name == b"url" and entry.value:
        return entry._replace(value=_absolute_address(entry.value, root))
    return entry


def _absolute_address(address: bytes, root: Path) -> bytes:
    if not address.startswith((b"./", b"../")):
        return address
    return os.path.normpath(os.path.join(os.fsencode(root), address))
