"""A checkpoint in the caller's process: filling, conversation, reuse of what was read before."""
