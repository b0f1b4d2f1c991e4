"""Where responses come from: the target itself, a file, or a server."""
