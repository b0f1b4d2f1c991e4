"""The chapter "What the temperatures do": reliability, error, the temperatures themselves, what is left."""

from dspark_calib.summary.measures import Group
from dspark_calib.summary.record import Report
from dspark_calib_reports import narrative
from dspark_calib_reports.figures import calibration_error, groups, reliability, temperature
from dspark_calib_reports.figures.theme import methods_of
from dspark_calib_reports.section import Panel, Section

TITLE = "What the temperatures do"


def effect_sections(report: Report) -> tuple[Section, ...]:
    """Return reliability, ECE, temperature curves and the CORP parts of all rounds together."""
    if not report.groups:
        return ()
    whole = report.groups[0]
    return (_reliability(whole), _error(whole), *_temperatures(report), *_baselines(report), _corp(whole))


def _reliability(group: Group) -> Section:
    after = group.calibrated.positions if group.calibrated else (None,) * len(group.raw.positions)
    pairs = list(zip(group.raw.positions, after, strict=True))
    return Section(
        key="reliability",
        chapter=TITLE,
        title="Reliability by position",
        sentence=narrative.state_all_reliability(group),
        panels=tuple(
            Panel(
                key=f"reliability-{raw.position}",
                title=f"position {raw.position}",
                finding=narrative.state_reliability(raw, new),
                figure=reliability.draw_reliability(raw, new),
            )
            for raw, new in pairs
        ),
        tables=tuple(reliability.tabulate_reliability(raw, new) for raw, new in pairs),
        note="Predicted prefix survival against observed prefix acceptance; on the diagonal a promise is kept. "
        "Bands are 95 % intervals clustered by prompt, grey bars the rounds in each bin of the raw predictions.",
        legend=methods_of(group),
        table_a_panel=True,
    )


def _error(group: Group) -> Section:
    return Section(
        key="ece",
        chapter=TITLE,
        title="Expected calibration error by position",
        sentence=narrative.state_ece(group),
        panels=(Panel(key="ece", title="", figure=calibration_error.draw_ece(group)),),
        tables=(calibration_error.tabulate_scores(group),),
        note="The noise floor is the ECE that a perfectly calibrated drafter would show with as many rounds.",
    )


def _temperatures(report: Report) -> tuple[Section, ...]:
    if report.temperatures is None:
        return ()
    curves = (temperature.tabulate_curves(report.curves),) if report.curves else ()
    return (
        Section(
            key="temperatures",
            chapter=TITLE,
            title="Objective against temperature",
            sentence=narrative.state_curves(report.curves),
            panels=tuple(
                Panel(
                    key=f"temperature-{curve.position}",
                    title=f"position {curve.position}",
                    finding=f"T = {curve.chosen:.3f}",
                    figure=temperature.draw_temperature_curve(curve, report.temperatures.objective or "ece"),
                )
                for curve in report.curves
            ),
            tables=(temperature.tabulate_temperatures(report.temperatures), *curves),
            note="One position at a time, the earlier temperatures fixed; these curves are in-sample. "
            "Solid line: chosen T; strip: its 95 % interval; dotted line: T = 1. "
            "Cross-fits: smallest and largest T fitted without a fold of prompts.",
        ),
    )


def _corp(group: Group) -> Section:
    return Section(
        key="corp",
        chapter=TITLE,
        title="What recalibration can and cannot remove",
        sentence=narrative.state_corp(group),
        panels=(
            Panel(
                key="miscalibration",
                title="miscalibration, less is better",
                figure=calibration_error.draw_miscalibration(group),
            ),
            Panel(
                key="discrimination",
                title="discrimination, more is better",
                figure=calibration_error.draw_discrimination(group),
            ),
        ),
        tables=(calibration_error.tabulate_corp(group),),
        note="CORP: Brier = miscalibration − discrimination + uncertainty, with an isotonic curve for the truth.",
    )


def _baselines(report: Report) -> tuple[Section, ...]:
    if not report.baselines:
        return ()
    return (
        Section(
            key="baselines",
            chapter=TITLE,
            title="Against other ways of fitting",
            sentence=narrative.state_baselines(report.baselines),
            panels=(Panel(key="baselines", title="", figure=groups.draw_baselines(report.baselines)),),
            tables=(groups.tabulate_baselines(report.baselines),),
            note="ECE held out by prompt on the trace of the fit; Platt and isotonic show what is beyond temperatures; "
            "a constant has hardly an ECE and ranks nothing. "
            "Colour runs from 0 to 0.10.",
        ),
    )
