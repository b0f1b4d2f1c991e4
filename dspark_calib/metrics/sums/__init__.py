"""Mergeable sums by prompt, from which every table is made."""
