"""A tiny shop; one of its tests fails. `make demo` repairs a copy of it."""
