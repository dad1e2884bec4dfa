"""A request, understood: the repository, the check, and what a pasted traceback names."""
