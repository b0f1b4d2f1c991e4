"""Numbers and names as a reader sees them: one way to write each, everywhere.

Fractions keep three decimals, as `gate --max-ece 0.02` reads them; a small number is never shown
as zero, and a number that does not exist is a dash. No arithmetic beyond rounding.
"""

from dspark_calib.metrics.estimate import Estimate

DASH = "–"
MINUS = "\N{MINUS SIGN}"
NAME_LENGTH = 48


def fraction(value: float | None, digits: int = 3) -> str:
    """Write a probability or an error: 0.057.

    >>> fraction(0.0571), fraction(0.00001), fraction(None), fraction(-0.25)
    ('0.057', '<0.001', '–', '−0.250')
    """
    if value is None:
        return DASH
    smallest = 10**-digits
    text = f"{abs(value):.{digits}f}"
    if value != 0 and float(text) == 0:
        return f"<{smallest:.{digits}f}" if value > 0 else f">{MINUS}{smallest:.{digits}f}"
    return f"{MINUS if value < 0 else ''}{text}"


def signed(value: float | None, digits: int = 3) -> str:
    """Write a difference with its sign: +0.012."""
    if value is None or value <= 0:
        return fraction(value, digits)
    return f"+{fraction(value, digits)}" if value >= 10**-digits / 2 else fraction(value, digits)


def percent(value: float | None) -> str:
    """Write a rate: 76.9 %; 99.99 % is never shown as 100 %.

    >>> percent(0.769), percent(0.99999), percent(1.0), percent(0.00001)
    ('76.9 %', '>99.9 %', '100.0 %', '<0.1 %')
    """
    if value is None:
        return DASH
    text = f"{value:.1%}"
    if text == "100.0%" and value < 1:
        return ">99.9 %"
    if text == "0.0%" and value > 0:
        return "<0.1 %"
    return text.replace("%", " %")


def decimal(value: float | None, digits: int = 2) -> str:
    """Write a length, a temperature or a speed: 3.54."""
    return DASH if value is None else f"{value:,.{digits}f}".replace("-", MINUS)


def count(value: int | None) -> str:
    """Write a count: 12,000."""
    return DASH if value is None else f"{value:,}"


def interval(estimate: Estimate, digits: int = 3) -> str:
    """Write a 95 % interval: [0.049, 0.066]."""
    if estimate.low is None or estimate.high is None:
        return DASH
    return f"[{_end(estimate.low, digits)}, {_end(estimate.high, digits)}]"


def with_interval(estimate: Estimate, digits: int = 3) -> str:
    """Write a number and, where there is one, its interval: 0.057 [0.049, 0.066]."""
    if estimate.value is None or estimate.low is None:
        return fraction(estimate.value, digits)
    return f"{fraction(estimate.value, digits)} {interval(estimate, digits)}"


def tuple_text(values: tuple[float, ...], separator: str = ", ") -> str:
    """Write temperatures so that they parse back exactly: 1.52, 1.3, 1.0."""
    return separator.join(repr(float(value)) for value in values)


def shown_name(name: str) -> str:
    """Shorten a name from the data to what fits on a page, its two ends kept; control characters go."""
    clean = "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in name)
    if len(clean) <= NAME_LENGTH:
        return clean
    return f"{clean[:30]}…{clean[-16:]}"


def plot_text(name: str) -> str:
    """Write a name from the data into a figure: no markup and no template of plotly acts in it."""
    escaped = shown_name(name).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return escaped.replace("%{", "%\N{ZERO WIDTH NON-JOINER}{").replace("$", "&#36;")


def _end(value: float, digits: int) -> str:
    return f"{value:.{digits}f}".replace("-", MINUS)
