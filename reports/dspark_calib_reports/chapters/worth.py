"""The chapter "What it is worth": the replay under a scheduler."""

from dspark_calib.summary.record import Report
from dspark_calib_reports import narrative
from dspark_calib_reports.figures import throughput
from dspark_calib_reports.numerals import shown_name
from dspark_calib_reports.section import Panel, Section

TITLE = "What it is worth"


def worth_sections(report: Report) -> tuple[Section, ...]:
    """Return the replay, if an SPS curve was given."""
    if not report.throughput:
        return ()
    policies = tuple(dict.fromkeys(run.policy for run in report.throughput))
    panels: list[Panel] = []
    for index, policy in enumerate(policies):
        runs = tuple(run for run in report.throughput if run.policy == policy)
        name = shown_name(policy)
        panels.append(
            Panel(key=f"throughput-{index}", title=f"{name}: throughput", figure=throughput.draw_throughput(runs))
        )
        panels.append(Panel(key=f"front-{index}", title=f"{name}: Pareto front", figure=throughput.draw_front(runs)))
    return (
        Section(
            key="throughput",
            chapter=TITLE,
            title="Replay under a scheduler",
            sentence=narrative.state_throughput(report.throughput),
            panels=tuple(panels),
            tables=(throughput.tabulate_advice(report.advice), throughput.tabulate_throughput(report.throughput)),
            note="Replay of this trace with the speed curve given; intervals are clustered by prompt.",
            legend=tuple(
                m for kind, m in throughput.METHODS.items() if any(r.confidences == kind for r in report.throughput)
            ),
        ),
    )
