"""What a model needs, and what fits on a card."""
