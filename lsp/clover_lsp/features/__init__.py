"""One protocol feature a file with `register(server)`, and the protocol's types as ours."""
