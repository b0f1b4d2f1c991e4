"""Draft models behind one small interface, and the reading of their checkpoints."""
