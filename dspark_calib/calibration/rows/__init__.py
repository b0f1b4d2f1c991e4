"""The rows a fit looks at, wherever they are."""
