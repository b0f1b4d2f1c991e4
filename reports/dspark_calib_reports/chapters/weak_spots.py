"""The chapter "Where it is bad": bias, groups, slices, transfer."""

from dspark_calib.summary.measures import Group
from dspark_calib.summary.record import Report
from dspark_calib_reports import narrative
from dspark_calib_reports.figures import calibration_error, groups, slices
from dspark_calib_reports.figures.theme import methods_of
from dspark_calib_reports.section import Panel, Section

TITLE = "Where it is bad"
VIEWS = {
    "cumulative": "Predicted minus observed prefix survival, over the observed positions of the rounds in a slice.",
    "conditional": "Cut by a scheduler: predicted minus observed conditional acceptance over judged positions.",
}


def weak_spot_sections(report: Report) -> tuple[Section, ...]:
    """Return bias by position, the group heat map, slices and the transfer matrix."""
    if not report.groups:
        return ()
    return (_bias(report.groups[0]), *_groups(report), *_slices(report), *_transfer(report))


def _bias(group: Group) -> Section:
    return Section(
        key="bias",
        chapter=TITLE,
        title="Signed bias by position",
        sentence=narrative.state_bias(group),
        panels=(Panel(key="bias", title="", figure=calibration_error.draw_bias(group)),),
        tables=(calibration_error.tabulate_bias(group),),
        note="Above zero the drafter promises more than it keeps, and a scheduler verifies too much.",
    )


def _groups(report: Report) -> tuple[Section, ...]:
    if len(report.groups) < 2:
        return ()
    return (
        Section(
            key="groups",
            chapter=TITLE,
            title="Group by position",
            sentence=narrative.state_groups(report.groups[1:]),
            panels=(Panel(key="groups", title="", figure=groups.draw_heat_map(report.groups)),),
            tables=(groups.tabulate_groups(report.groups),),
            note="ECE under the calibration, raw where there is none; colour runs from 0 to 0.10. "
            "Small groups have a high noise floor: the table has it.",
        ),
    )


def _slices(report: Report) -> tuple[Section, ...]:
    if not report.slices:
        return ()
    return (
        Section(
            key="slices",
            chapter=TITLE,
            title="Along the response and the prompt",
            sentence=narrative.state_slices(report.slices),
            panels=tuple(
                Panel(
                    key=f"slices-{s.quantity.replace('_', '-')}",
                    title=slices.TITLES[s.quantity],
                    figure=slices.draw_slices(s),
                )
                for s in report.slices
            ),
            tables=tuple(slices.tabulate_slices(s) for s in report.slices),
            note=VIEWS[report.slices[0].view],
            legend=methods_of(report.groups[0]),
            table_a_panel=True,
        ),
    )


def _transfer(report: Report) -> tuple[Section, ...]:
    if report.transfer is None:
        return ()
    return (
        Section(
            key="transfer",
            chapter=TITLE,
            title="Transfer between groups",
            sentence=narrative.state_transfer(report.transfer),
            panels=(Panel(key="transfer", title="", figure=groups.draw_transfer(report.transfer)),),
            tables=(groups.tabulate_transfer(report.transfer),),
            note="Mean ECE; on the diagonal held out by prompt.",
        ),
    )
