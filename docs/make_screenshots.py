"""Take the pictures of the README from the demo's report: `make demo`, then `make screenshots`.

They are small PNG files: the first screen, and the reliability diagrams before and after calibration.
"""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import Locator, Page, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
PICTURES = Path(__file__).parent / "images"
WIDTH, HEIGHT = 1120, 780


def take(page: Page, name: str, part: Locator | None = None) -> None:
    """Write the window, or one part of the page, to `name`.png."""
    path = PICTURES / f"{name}.png"
    if part is None:
        page.screenshot(path=path)
    else:
        part.screenshot(path=path)
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size // 1024} KB")


def main(report: Path) -> None:
    """Open the report in an installed Chromium and photograph it."""
    browser_path = shutil.which("chromium") or shutil.which("google-chrome")
    if not report.is_file() or browser_path is None:
        sys.exit(f"needs Chromium and {report}: run `make demo` first")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        page.goto(report.resolve().as_uri())
        page.wait_for_selector("html[data-drawn]", state="attached", timeout=60_000)
        take(page, "report-first-screen")
        take(page, "report-reliability", page.locator("section.figure-family", has=page.locator("#plot-reliability-1")))
        browser.close()


if __name__ == "__main__":
    demo = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "examples" / "demo"
    main(demo / "report" / "report.html")
