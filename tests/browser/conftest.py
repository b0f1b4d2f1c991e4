"""A headless Chromium for the page tests; where there is none they skip and say why."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from example_record import example_report
from page_visit import Visit
from playwright.sync_api import Browser, sync_playwright

from dspark_calib_reports.page.render import render_page

CHROMIUM = next(filter(None, (shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A Chromium of this machine; nothing is downloaded."""
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed (apt-get install chromium)")
    # a container's root may not use Chromium's sandbox; the pages are our own
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=sandbox)
        yield started
        started.close()


@pytest.fixture(scope="session")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a report in which every section is filled and names are hostile."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    names = ("chat", "<script>document.title='owned'</script>", "x" * 300)
    path.write_text(render_page(example_report(names=names)), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def visit(browser: Browser, page_file: Path) -> Iterator[Visit]:
    """The page open on a wide light screen; tests leave it as they found it."""
    context = browser.new_context(
        viewport={"width": 1280, "height": 900},
        color_scheme="light",
        permissions=["clipboard-read", "clipboard-write"],
    )
    yield Visit(context.new_page(), page_file)
    context.close()


@pytest.fixture(scope="session")
def dark_visit(browser: Browser, page_file: Path) -> Iterator[Visit]:
    """The page open on a phone in dark mode, without its content policy so that a test may add a script."""
    context = browser.new_context(viewport={"width": 390, "height": 844}, color_scheme="dark", bypass_csp=True)
    yield Visit(context.new_page(), page_file)
    context.close()
