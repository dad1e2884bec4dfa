"""The chosen patch in the user's tree: written, recorded, committed, and taken back."""
