"""How the temperatures of one set of rows are found: the sequential fit, its search and its selection."""
