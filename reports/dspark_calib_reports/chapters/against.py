"""The chapter "Against the old one": NEW beside OLD."""

from dspark_calib.summary.record import Report
from dspark_calib_reports import narrative
from dspark_calib_reports.figures import comparison
from dspark_calib_reports.section import Panel, Section

TITLE = "Against the old one"


def comparison_sections(report: Report) -> tuple[Section, ...]:
    """Return the comparison, if there is one."""
    if report.comparison is None:
        return ()
    return (
        Section(
            key="comparison",
            chapter=TITLE,
            title="NEW against OLD, what got worse first",
            sentence=narrative.state_comparison(report.comparison),
            panels=(Panel(key="comparison", title="", figure=comparison.draw_comparison(report.comparison)),),
            tables=(comparison.tabulate_comparison(report.comparison),),
            note="Right of zero is worse. Intervals are 95 %, clustered by prompt, uncorrected for the number of rows; "
            "bias is compared by its size. The table has the plain differences, NEW minus OLD.",
        ),
    )
