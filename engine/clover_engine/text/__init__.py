"""Text and token ids: tokenizers, prompts, chat templates, thinking, streams."""
