"""One protocol feature a file; each has `register(server)`."""
