"""The settings, how they are read, and their documentation."""
