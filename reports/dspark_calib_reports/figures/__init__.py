"""Figures: `draw_*` turns a record into a plot, `tabulate_*` the same record into its table."""
