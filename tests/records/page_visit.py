"""A page opened in a browser, with everything it complained about or asked for."""

from pathlib import Path

from playwright.sync_api import Page


class Visit:
    """One open page; waits until every figure is drawn."""

    def __init__(self, page: Page, path: Path) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))
        page.set_default_timeout(120_000)  # two cores may be shared by everything else a test run does
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-drawn]", state="attached", timeout=180_000)
