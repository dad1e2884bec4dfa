"""Which engine answers, and what it may see."""
