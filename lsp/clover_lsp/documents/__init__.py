"""The documents as the client has them: texts, notebooks, changes."""
