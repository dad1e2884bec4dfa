"""Which engine answers: the embedded model, the servers that are configured, and who goes first."""
