"""The order of the page: what got worse, what the temperatures do, where it is bad, why, and what it is worth."""

from dspark_calib.summary.record import Report
from dspark_calib_reports.chapters import against, effect, reasons, weak_spots, worth
from dspark_calib_reports.section import Section

CHAPTERS = (against.TITLE, effect.TITLE, weak_spots.TITLE, reasons.TITLE, worth.TITLE)


def report_sections(report: Report) -> tuple[Section, ...]:
    """Return the sections that this report can fill, in the order of the page."""
    return (
        *against.comparison_sections(report),
        *effect.effect_sections(report),
        *weak_spots.weak_spot_sections(report),
        *reasons.reason_sections(report),
        *worth.worth_sections(report),
    )
