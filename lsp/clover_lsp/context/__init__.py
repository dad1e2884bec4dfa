"""What the model gets to read: the index of the repository, edits, diagnostics, a token budget."""
