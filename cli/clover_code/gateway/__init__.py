"""The configured engine and the repository's context over HTTP, for plug-ins of other makers."""
