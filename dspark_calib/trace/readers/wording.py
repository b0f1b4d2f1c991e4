"""How a value out of a foreign file is quoted in a message: one line, short, no control characters."""

_MOST = 60


def shown(value: object) -> str:
    r"""Return a short one-line form of any value.

    >>> shown("a\nb")
    "'a\\nb'"
    """
    if isinstance(value, int) and abs(value) >= 10**_MOST:
        return "a number of more than 60 digits"
    text = repr(value) if isinstance(value, str | int | float | bool | None) else type(value).__name__
    return text if len(text) <= _MOST else f"{text[:_MOST]}…"


def shown_names(names: object) -> str:
    """Return the first few keys of a mapping, or names of a list."""
    if not isinstance(names, dict | list | tuple):
        return shown(names)
    listed = [shown(name) for name in list(names)[:6]]
    return ", ".join(listed) + (", …" if len(names) > len(listed) else "") if listed else "nothing"
