"""Checkpoints: reading, writing, converting and quantising them, GGUF, and models one word away."""
