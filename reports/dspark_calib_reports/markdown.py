"""The report as Markdown for a pull request: the verdict, the table by position, the groups, the findings.

At most 60 KB whatever the trace holds: long lists are cut and say so. Names from the data are escaped,
so that neither markup nor table bars in them act.
"""

from dspark_calib.summary.record import Report
from dspark_calib_reports.chapters import report_sections
from dspark_calib_reports.first_screen import cautions, key_facts, model_name, settings
from dspark_calib_reports.section import Section, Table
from dspark_calib_reports.verdict import HEADLINES, state_verdict

MAX_BYTES = 60_000
ROWS_SHOWN = 60
TABLES = ("comparison", "ece", "temperatures", "groups", "transfer", "acceptance", "lengths", "throughput")
_SPECIAL = str.maketrans({c: f"\\{c}" for c in "\\`*_[]|~#"} | {"<": "&lt;", ">": "&gt;", "&": "&amp;", "\n": " "})


def render_markdown(report: Report) -> str:
    """Return the report in GitHub's Markdown, at most 60 KB."""
    sections = report_sections(report)
    parts = [_head(report), _sentences(sections)]
    parts += [_table_block(section) for section in sections if section.key in TABLES]
    return _fitting(parts)


def escape(text: str) -> str:
    """Return text in which no Markdown or HTML acts."""
    return text.translate(_SPECIAL)


def _head(report: Report) -> str:
    drafter = escape(model_name(report.source.drafter, "unnamed drafter"))
    target = escape(model_name(report.source.target, "an unnamed target"))
    lines = [
        f"## dspark-calib: {HEADLINES[report.verdict.outcome]}",
        "",
        f"**{drafter}** drafting for **{target}**. {escape(state_verdict(report))}",
        "",
        *(f"- {escape(line)}" for line in cautions(report)),
        "",
        *(
            f"- {escape(fact.label)}: **{escape(fact.value)}** {escape(fact.detail)}".rstrip()
            for fact in key_facts(report)
        ),
        "",
        *(f"- {setting.label}: `{setting.text}`" for setting in settings(report.temperatures)),
        "",
        "### Findings",
        "",
        *(f"- **{finding.severity}: {escape(finding.name)}** {escape(finding.message)}" for finding in report.findings),
    ]
    return "\n".join(lines if report.findings else [*lines, "None."])


def _sentences(sections: tuple[Section, ...]) -> str:
    lines = (f"- **{section.title}.** {escape(section.sentence)}" for section in sections)
    return "### What the numbers say\n\n" + "\n".join(lines)


def _table_block(section: Section) -> str:
    table = section.tables[0]
    shown = Table(header=table.header, rows=table.rows[:ROWS_SHOWN])
    rest = len(table.rows) - len(shown.rows)
    more = f"\n\n{rest} more rows in the JSON and on the page." if rest else ""
    return f"<details><summary>{section.title}</summary>\n\n{render_table(shown)}{more}\n\n</details>"


def render_table(table: Table) -> str:
    """Return a table in GitHub's Markdown."""
    head = f"| {' | '.join(map(escape, table.header))} |"
    rule = f"|{' --- |' * len(table.header)}"
    rows = (f"| {' | '.join(map(escape, row))} |" for row in table.rows)
    return "\n".join((head, rule, *rows))


def _fitting(parts: list[str]) -> str:
    text, left_out = "", 0
    for part in parts:
        if len((text + part).encode()) > MAX_BYTES - 200:
            left_out += 1
        else:
            text += part + "\n\n"
    note = f"{left_out} tables left out to stay under 60 KB; the page and the JSON have them.\n" if left_out else ""
    return text.rstrip() + "\n" + (f"\n{note}" if note else "")
