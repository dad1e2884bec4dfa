"""The language server (its features are built in their own steps; see docs/architecture.md)."""
