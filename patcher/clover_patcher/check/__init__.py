"""The user's check: what kind it is, how it is run in a copy, and what its runs say."""
