"""What a repository itself says about its code: counts of token n-grams, without torch."""
