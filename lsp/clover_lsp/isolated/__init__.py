"""Long computations in processes of their own: they must not hold the server's interpreter lock."""
