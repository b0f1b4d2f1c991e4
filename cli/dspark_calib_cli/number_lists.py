"""Lists of whole numbers on the command line: `1,8,64`."""

import typer


def whole_numbers(text: str, option: str) -> list[int]:
    """Read numbers of at least 1, in order, duplicates once.

    Args:
        text: Comma-separated.
        option: Named in the error.

    Raises:
        typer.BadParameter: If an item is none.
    """
    items = [item.strip() for item in text.split(",")]
    for item in items:
        if not item.isdecimal() or int(item) < 1:
            raise typer.BadParameter(
                f"{item!r} in {text!r}: expected whole numbers of at least 1 such as 1,8,64", param_hint=option
            )
    return list(dict.fromkeys(int(item) for item in items))
