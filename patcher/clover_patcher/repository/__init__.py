"""The user's repository: git, copies of its working tree, and what of it may be patched."""
