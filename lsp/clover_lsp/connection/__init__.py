"""Messages between the server and one client: streams, protocol, session, threads."""
