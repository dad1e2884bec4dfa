"""The repository whose test fails."""

from __future__ import annotations

from tests.cli.broken import repository as repository
