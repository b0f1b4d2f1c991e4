"""The page in a real browser: quiet, offline, drawn, usable, accessible."""

from pathlib import Path

import plotly.offline
import pytest
from example_record import example_report
from page_visit import Visit
from playwright.sync_api import Browser

from dspark_calib_reports.chapters import report_sections
from dspark_calib_reports.figure_files import render_fragment

AXE = Path(__file__).parent / "node_modules" / "axe-core" / "axe.min.js"


def test_page_is_quiet_and_asks_for_nothing(visit: Visit, page_file: Path) -> None:
    """No console message, no error, and the only request is the file itself."""
    assert visit.complaints == []
    assert visit.requests == [page_file.as_uri()]


def test_every_figure_is_drawn(visit: Visit) -> None:
    """Every plot holds marks and its alternative text states a finding."""
    plots = visit.page.locator(".plot")
    assert plots.count() > 25
    for index in range(plots.count()):
        plot = plots.nth(index)
        assert plot.locator(".main-svg").count() > 0
        assert plot.locator(".trace, .hm, .point, .bars").count() > 0
        assert len(plot.get_attribute("aria-label") or "") > 20


def test_every_figure_is_followed_by_its_data(visit: Visit) -> None:
    """Each figure family has a table that opens."""
    families = visit.page.locator(".figure-family")
    assert families.count() > 10
    for index in range(families.count()):
        details = families.nth(index).locator("details").first
        details.locator("summary").click()
        assert details.locator("tbody tr").count() > 0
        assert details.locator("table").is_visible()


def test_copy_buttons_copy(visit: Visit) -> None:
    """The clipboard holds the tuple, and a person who cannot see is told."""
    visit.page.get_by_role("button", name="Copy temperatures, position 1 first").click()
    visit.page.get_by_text("Copied to the clipboard").wait_for(state="attached")
    assert visit.page.evaluate("navigator.clipboard.readText()") == "1.6, 1.55, 1.5, 1.45, 1.4, 1.35, 1.3"


def test_copying_works_where_the_clipboard_is_withheld(dark_visit: Visit) -> None:
    """Without the clipboard interface the text is selected and copied, or the button says what to do."""
    dark_visit.page.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined, configurable: true})")
    button = dark_visit.page.locator("button[data-copy=deepinfer-text]")
    assert button.get_attribute("aria-label") == "Copy DeepInfer"
    button.click()
    said = button.text_content()
    assert said in {"Copied", "Select and copy"}
    assert button.get_attribute("aria-label") == f"{said} DeepInfer"
    assert "DEEPINFER" in dark_visit.page.evaluate("window.getSelection().toString()")


def test_no_sideways_scroll_on_a_phone(dark_visit: Visit) -> None:
    """At 390 px nothing is wider than the screen, names of 300 characters and open tables included."""
    toggle = "(open) => document.querySelectorAll('details').forEach((d) => { d.open = open; })"
    dark_visit.page.evaluate(toggle, True)
    assert dark_visit.page.evaluate("document.documentElement.scrollWidth") <= 390
    dark_visit.page.evaluate(toggle, False)
    assert dark_visit.page.evaluate("document.documentElement.scrollWidth") <= 390


def test_dark_mode_is_dark_and_follows_the_system(dark_visit: Visit) -> None:
    """Page and figures change together, also while the page is open."""
    page = dark_visit.page
    paper = "getComputedStyle(document.body).backgroundColor"
    ink = "getComputedStyle(document.querySelector('#plot-ece .xtick text')).fill"
    assert (page.evaluate(paper), page.evaluate(ink)) == ("rgb(18, 22, 28)", "rgb(230, 233, 237)")
    page.emulate_media(color_scheme="light")
    page.wait_for_selector("html[data-theme=light]", state="attached")
    assert (page.evaluate(paper), page.evaluate(ink)) == ("rgb(255, 255, 255)", "rgb(28, 35, 44)")
    page.emulate_media(color_scheme="dark")
    page.wait_for_selector("html[data-theme=dark]", state="attached")


def test_printing_is_light(dark_visit: Visit) -> None:
    """A page read in the dark prints on white, over several sheets."""
    dark_visit.page.emulate_media(media="print")
    assert dark_visit.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert dark_visit.page.pdf(format="A4").count(b"/Type /Page") > 3
    dark_visit.page.emulate_media(media="screen")


def test_names_from_data_are_text(visit: Visit) -> None:
    """A data set called <script>… is shown and does not run."""
    assert visit.page.title() != "owned"
    assert visit.page.get_by_text("<script>document.title='owned'").count() > 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_has_no_serious_finding(dark_visit: Visit, scheme: str) -> None:
    """axe-core finds nothing serious or critical, in either theme, with a table open."""
    if not AXE.is_file():
        pytest.skip("axe-core is not installed (npm install --prefix tests/browser)")
    page = dark_visit.page
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    page.wait_for_selector(f"html[data-theme={scheme}]", state="attached")
    page.locator("summary").first.click()
    page.add_script_tag(content=AXE.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run(document)")["violations"]
    assert [f"{v['id']}: {v['nodes'][0]['html'][:200]}" for v in found if v["impact"] in {"serious", "critical"}] == []
    page.locator("summary").first.click()
    page.emulate_media(color_scheme="dark")


def test_fragment_draws_itself_in_another_page(browser: Browser) -> None:
    """A fragment in a page that has loaded plotly.js draws without anything else."""
    section = next(s for s in report_sections(example_report()) if s.key == "ece")
    page = browser.new_page()
    page.set_content(f"<script>{plotly.offline.get_plotlyjs()}</script>{render_fragment(section, section.panels[0])}")
    assert page.locator("#dspark-ece .trace").count() == 3
    page.close()
