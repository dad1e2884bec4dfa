"""Candidates: what could be edited there, best first."""
