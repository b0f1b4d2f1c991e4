"""Records to text: figures, the HTML page, Markdown, JUnit XML and GitHub annotations.

Nothing here computes: every number comes from a record of the library.
"""
