"""The embedded model's own process, and its client, which never imports torch."""
