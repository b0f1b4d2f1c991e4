"""The rows of a trace as statistics see them, and passes over them, here or elsewhere."""
