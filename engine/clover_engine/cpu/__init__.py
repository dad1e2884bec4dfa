"""The fast path on CPUs: compiled layers over packed weights, held against `model/`."""
