"""Candidates tried in copies of the tree, and which of those that pass is taken."""
