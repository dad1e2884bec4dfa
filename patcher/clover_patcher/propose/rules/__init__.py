"""Edits that templates enumerate, by what they change."""
