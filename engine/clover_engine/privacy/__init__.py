"""What may be read and what may leave: secrets, ignored files, an engine that is sent neither."""
