"""The palette: told apart by colour-blind readers, visible on light and dark pages, never the only sign."""

import itertools

import numpy as np
import pytest

from dspark_calib_reports.figures.theme import (
    CALIBRATED,
    GREY,
    HEAT,
    HEAT_INK,
    ORACLE,
    OTHERS,
    PROXIES,
    RAW,
    page_themes,
)

# Viénot, Brettel & Mollon 1999: what a protanope and a deuteranope see, in linear RGB.
BLINDNESS = {
    "none": np.eye(3),
    "protanopia": np.array([[0.11238, 0.88762, 0.0], [0.11238, 0.88762, 0.0], [0.00401, -0.00401, 1.0]]),
    "deuteranopia": np.array([[0.29275, 0.70725, 0.0], [0.29275, 0.70725, 0.0], [-0.02234, 0.02234, 1.0]]),
}
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
DRAWN_TOGETHER = {
    "raw, calibrated, reference": (RAW.color, CALIBRATED.color, GREY),
    "raw, calibrated, oracle": (RAW.color, CALIBRATED.color, ORACLE.color),
    "first three drafters": tuple(method.color for method in OTHERS[:3]),
}


def linear(colour: str) -> np.ndarray:
    """Linear RGB of a hex colour."""
    channels = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    """CIE L*a*b* of linear RGB under D65."""
    scaled = XYZ @ np.clip(rgb, 0, 1) / np.array([0.9505, 1.0, 1.089])
    f = np.where(scaled > (6 / 29) ** 3, np.cbrt(scaled), scaled / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def contrast(one: str, other: str) -> float:
    """WCAG contrast ratio."""
    light, dark = sorted((float(XYZ[1] @ linear(c)) for c in (one, other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("blindness", BLINDNESS)
@pytest.mark.parametrize("colours", DRAWN_TOGETHER)
def test_colours_drawn_together_stay_apart(blindness: str, colours: str) -> None:
    """At least 15 units of L*a*b* between any two, for common and colour-blind eyes (2 is just noticeable)."""
    seen = [lab(BLINDNESS[blindness] @ linear(colour)) for colour in DRAWN_TOGETHER[colours]]
    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) > 15


def test_lines_are_visible_on_both_pages() -> None:
    """Every line has a contrast of 3:1 or more on the light and on the dark page (WCAG 1.4.11)."""
    papers = [theme["hoverlabel"]["bgcolor"] for theme in page_themes().values()]
    colours = {GREY, ORACLE.color, *(m.color for m in (*OTHERS, *PROXIES.values()))}
    assert min(contrast(colour, paper) for colour in colours for paper in papers) >= 3.0


def test_text_is_readable_on_both_pages() -> None:
    """Text of figures has a contrast of 7:1 or more."""
    themes = page_themes().values()
    assert min(contrast(theme["font"]["color"], theme["hoverlabel"]["bgcolor"]) for theme in themes) >= 7.0


def test_cells_of_a_heat_map_are_readable() -> None:
    """The number in a cell has a contrast of 4.5:1 or more over the whole scale, and more error is darker."""
    colours = [colour for _, colour in HEAT]
    assert min(contrast(HEAT_INK, colour) for colour in colours) >= 4.5
    lightness = [float(lab(linear(colour))[0]) for colour in colours]
    assert lightness == sorted(lightness, reverse=True)
