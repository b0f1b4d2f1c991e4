"""The HTML page: one file that opens offline."""
