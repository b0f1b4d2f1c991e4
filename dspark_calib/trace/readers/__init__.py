"""Foreign records to traces, one format a file."""
