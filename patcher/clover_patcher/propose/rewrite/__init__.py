"""Functions rewritten by a model that converses: prompts, answers, their way into files."""
