"""Fakes for tests of everything that uses an engine. They ship with the package."""
