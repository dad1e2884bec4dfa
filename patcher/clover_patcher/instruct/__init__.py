"""Edits by instruction: the selected lines of a file, changed as somebody says in words."""
