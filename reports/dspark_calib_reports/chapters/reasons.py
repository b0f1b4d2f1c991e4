"""The chapter "Why: ranking and acceptance": what the confidence can tell and what the target accepts."""

from dspark_calib.summary.measures import Group
from dspark_calib.summary.record import Report
from dspark_calib_reports import narrative
from dspark_calib_reports.figures import acceptance, ranking, sweep
from dspark_calib_reports.figures.theme import ACCEPTED, RATE, REJECTED
from dspark_calib_reports.numerals import shown_name
from dspark_calib_reports.section import Panel, Section

TITLE = "Why: ranking and acceptance"
SWEEPS_SHOWN = 6


def reason_sections(report: Report) -> tuple[Section, ...]:
    """Return AUROC, the free proxies, acceptance of every drafter, accepted lengths and the threshold sweep."""
    ranked = (_ranking(report.groups[0]), *_proxies(report, report.groups[0])) if report.groups else ()
    return (*ranked, *_acceptance(report), *_sweep(report))


def _ranking(group: Group) -> Section:
    return Section(
        key="auroc",
        chapter=TITLE,
        title="Ranking: AUROC by position",
        sentence=narrative.state_auroc(group),
        panels=(Panel(key="auroc", title="", figure=ranking.draw_auroc(group)),),
        tables=(ranking.tabulate_auroc(group),),
        note="Temperatures keep the order within a position, but not that of the product across rounds.",
    )


def _proxies(report: Report, group: Group) -> tuple[Section, ...]:
    if not report.proxies:
        return ()
    return (
        Section(
            key="proxies",
            chapter=TITLE,
            title="The confidence against free proxies",
            sentence=narrative.state_proxies(group, report.proxies),
            panels=(Panel(key="proxies", title="", figure=ranking.draw_proxies(group, report.proxies)),),
            tables=(ranking.tabulate_proxies(group, report.proxies),),
            note="AUROC among rounds whose earlier drafts were accepted; "
            "draft probability, margin and entropy cost nothing.",
        ),
    )


def _acceptance(report: Report) -> tuple[Section, ...]:
    if not report.drafters:
        return ()
    return (
        Section(
            key="acceptance",
            chapter=TITLE,
            title="Conditional acceptance by position",
            sentence=narrative.state_acceptance(report.drafters),
            panels=(Panel(key="acceptance", title="", figure=acceptance.draw_conditional_acceptance(report.drafters)),),
            tables=(acceptance.tabulate_acceptance(report.drafters),),
            note="P(draft k accepted | the first k − 1 were); a falling line is suffix decay.",
        ),
        Section(
            key="lengths",
            chapter=TITLE,
            title="Accepted length",
            sentence=narrative.state_lengths(report.drafters),
            panels=(Panel(key="lengths", title="", figure=acceptance.draw_lengths(report.drafters)),),
            tables=(acceptance.tabulate_lengths(report.drafters),),
        ),
    )


def _sweep(report: Report) -> tuple[Section, ...]:
    swept = tuple(group for group in report.groups if group.sweep is not None)
    if not swept:
        return ()
    shown = swept[:SWEEPS_SHOWN]
    rest = (
        "" if len(shown) == len(swept) else f" Drawn: the first {len(shown)} of {len(swept)} groups; the table has all."
    )
    return (
        Section(
            key="sweep",
            chapter=TITLE,
            title="Threshold sweep",
            sentence=narrative.state_sweep(swept),
            panels=tuple(
                Panel(key=f"sweep-{i}", title=shown_name(group.name), figure=sweep.draw_sweep(group.sweep.raw))
                for i, group in enumerate(shown)
                if group.sweep is not None
            ),
            tables=(sweep.tabulate_sweep(swept),),
            note="Raw confidences; the first c_k below the threshold cuts the block; tokens count the bonus token."
            + rest,
            legend=(ACCEPTED, REJECTED, RATE),
        ),
    )
