"""What the server can do beyond completing: fixes, edits of a selection, the next edit."""
