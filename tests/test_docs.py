"""The documentation is true: its commands run, its links resolve, its reference is that of the app.

A page's `console` and `python` blocks are run in order in a folder of its own. Before a block may stand
`<!-- not run: the reason -->`; at a page's top `<!-- needs: trace curve … -->` names what lies in the folder
(see `INGREDIENTS`). Hub names such as Qwen/Qwen3-4B are folders there that hold the demo pair.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer

from dspark_calib_cli import app

ROOT = Path(__file__).resolve().parents[1]
DEMO = ROOT / "examples" / "demo"
TRACES = ROOT / "tests" / "data" / "traces"
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "examples").rglob("*.md")), *DOCS]
PAGES = [page for page in PAGES if ".cache" not in page.parts]

FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
NOT_RUN = re.compile(r"<!-- not run: (?P<reason>.+?) -->\s*\Z", re.DOTALL)
NEEDS = re.compile(r"<!-- needs: (.+?) -->")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
UNDECIDED = {"gate": (0, 1, 3), "drift": (0, 1, 3)}


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, text, and the reason why it is not run."""

    language: str
    text: str
    not_run: str | None

    def commands(self) -> Iterator[str]:
        """The lines typed after `$ `, continuation lines joined."""
        for line in re.sub(r"\\\n\s*>? ?", " ", self.text).splitlines():
            if line.strip().startswith("$ "):
                yield line.strip()[2:]


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in FENCE.finditer(text):
        excuse = NOT_RUN.search(text[: match.start()])
        body = re.sub(rf"^{match[1]}", "", match[3], flags=re.MULTILINE)
        found.append(Block(match[2], body, excuse["reason"] if excuse else None))
    return found


def lay_trace(folder: Path) -> None:
    """A recorded trace of the demo pair, in loop rounds."""
    shutil.copytree(TRACES / "demo", folder / "trace")


def lay_trace_of_all_anchors(folder: Path) -> None:
    """A recorded trace with every anchor of the demo pair's responses."""
    shutil.copytree(TRACES / "demo-all", folder / "trace-all")


def lay_second_trace(folder: Path) -> None:
    """The same again under another name: last week's."""
    shutil.copytree(TRACES / "demo", folder / "last-week")


def lay_pair(folder: Path) -> None:
    """The demo pair under the names of hub models, and two prompts of each domain."""
    (folder / "Qwen").mkdir()
    (folder / "Qwen" / "Qwen3-4B").symlink_to(DEMO / ".cache" / "target")
    (folder / "deepseek-ai").mkdir()
    (folder / "deepseek-ai" / "dspark_qwen3_4b_block7").symlink_to(DEMO / "drafter")
    for prompts in (DEMO / "prompts").glob("*.jsonl"):
        lines = prompts.read_text().splitlines(keepends=True)
        (folder / prompts.name).write_text("".join(lines[:2]))
    (folder / "dspark-calib.toml").write_text("[collect]\nmax-new-tokens = 24\n")


def lay_demo(folder: Path) -> None:
    """The demo's own folder with two prompts a domain."""
    lay_pair(folder)
    configuration = (DEMO / "dspark-calib.toml").read_text()
    (folder / "dspark-calib.toml").write_text(configuration.replace("max-new-tokens = 96", "max-new-tokens = 24"))
    (folder / "prompts").mkdir()
    for prompts in folder.glob("*.jsonl"):
        prompts.rename(folder / "prompts" / prompts.name)
    (folder / ".cache").mkdir()
    (folder / ".cache" / "target").symlink_to(DEMO / ".cache" / "target")
    (folder / "drafter").symlink_to(DEMO / "drafter")


def lay_shards(folder: Path) -> None:
    """SGLang shards with the rounds of the recorded trace."""
    import torch

    from dspark_calib.survival import prefix_labels
    from dspark_calib.trace import open_trace

    rounds = open_trace(TRACES / "demo").read()
    labels = prefix_labels(rounds.accepted, rounds.gamma)
    (folder / "shards").mkdir()
    for i, rows in enumerate((slice(0, 600), slice(600, 1200))):
        shard = {"logits": rounds.confidence_logits[rows], "prefix_mask": labels[rows].astype("float32")}
        torch.save({k: torch.from_numpy(v.copy()) for k, v in shard.items()}, folder / "shards" / f"sts.{i}.pt")


def lay_curve(folder: Path) -> None:
    """A profiled SPS curve in SGLang's format."""
    shutil.copy(ROOT / "examples" / "sps" / "curve.json", folder / "sps.json")


def lay_calibration(folder: Path) -> None:
    """A calibration fitted on the recorded trace."""
    assert app.run(["fit-sts", str(folder / "trace"), "--out", str(folder / "calibration.json"), "--quiet"]) == 0


INGREDIENTS: dict[str, Callable[[Path], None]] = {
    "trace": lay_trace,
    "trace-all": lay_trace_of_all_anchors,
    "last-week": lay_second_trace,
    "pair": lay_pair,
    "demo": lay_demo,
    "shards": lay_shards,
    "curve": lay_curve,
    "calibration": lay_calibration,
}


def is_run(page: Path) -> bool:
    """Whether a page has a block to run."""
    return any(b.language in ("console", "python") and not b.not_run for b in blocks(page))


@pytest.mark.parametrize("page", [p for p in PAGES if is_run(p)], ids=lambda p: str(p.relative_to(ROOT)))
def test_the_blocks_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command and Python block of a page does what it says, in the order of the page."""
    names = NEEDS.search(page.read_text())
    for name in names[1].split() if names else ():
        INGREDIENTS[name](tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    namespace: dict[str, object] = {"__name__": "__docs__"}
    for block in blocks(page):
        if block.not_run:
            continue
        if block.language == "python":
            exec(compile(block.text, f"{page.name} (python block)", "exec"), namespace)  # noqa: S102 (our own page)
        elif block.language == "console":
            for command in block.commands():
                run_command(command)


def run_command(command: str) -> None:
    """Run one shell line; plain lines of the tool in this process, which is faster."""
    words = shlex.split(command, comments=True)
    plain = words[0] == "dspark-calib" and not re.search(r"[|;&><$`]", command)
    allowed = UNDECIDED.get(words[1], (0,)) if words[0] == "dspark-calib" else (0,)
    code = app.run(words[1:]) if plain else subprocess.run(["bash", "-ec", command], check=False).returncode
    assert code in allowed, f"$ {command}\nexit code {code}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_of_a_page_resolve(page: Path) -> None:
    """Every relative link and picture points to a file that is there."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for match in LINK.finditer(text):
        link = match[1] or match[2]
        if not link.startswith(("http:", "https:", "mailto:", "#")):
            assert (page.parent / link.partition("#")[0]).exists(), f"{page.name}: {link}"


def test_what_is_not_run_has_a_reason() -> None:
    """A block that is left out says why in words."""
    reasons = [b.not_run for page in PAGES for b in blocks(page) if b.not_run]
    assert all(len(reason.split()) >= 3 for reason in reasons)


def commands() -> dict[str, object]:
    """The commands of the app by name."""
    return dict(typer.main.get_command(app.app).commands)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", sorted(commands()))
def test_every_command_and_option_is_explained(name: str) -> None:
    """Each command has help with an example, each option has help, and README and reference name the command."""
    command = commands()[name]
    assert f"dspark-calib {name}" in (command.help or ""), "help without an example"
    assert all(parameter.help for parameter in command.params)
    assert f"`{name}`" in (ROOT / "README.md").read_text()
    assert f"\n## {name}\n" in (ROOT / "docs" / "reference" / "cli.md").read_text()


@pytest.mark.parametrize("generator", ["cli_reference.py", "report_reference.py"])
def test_generated_pages_are_current(generator: str) -> None:
    """The command line and report pages are what the app and the schema say now."""
    subprocess.run([sys.executable, ROOT / "docs" / generator, "--check"], check=True)


def test_every_decision_is_listed() -> None:
    """docs/decisions/index.md links to each decision."""
    index = (ROOT / "docs" / "decisions" / "index.md").read_text()
    for decision in (ROOT / "docs" / "decisions").glob("0*.md"):
        assert f"({decision.name})" in index


def test_configuration_examples_are_accepted(tmp_path: Path) -> None:
    """Every TOML block on a page that configures commands uses only tables and keys that exist."""
    from dspark_calib_cli.config_file import OptionTable, load_defaults

    tables = {name: OptionTable(command.params) for name, command in commands().items()}
    shown = [b.text for page in PAGES for b in blocks(page) if b.language == "toml" and "--8<--" not in b.text]
    for text in [*shown, (DEMO / "dspark-calib.toml").read_text()]:
        (tmp_path / "dspark-calib.toml").write_text(text)
        load_defaults(tmp_path / "dspark-calib.toml", tables)


def test_the_built_pages_load_nothing_from_elsewhere(tmp_path: Path) -> None:
    """The strict build succeeds, and no script, style sheet or picture of a page lies on another host."""
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    tool = [Path(sys.executable).parent / "mkdocs", "build", "--strict", "--quiet", "--site-dir", tmp_path / "site"]
    subprocess.run(tool, cwd=ROOT, env=env, check=True)
    for page in (tmp_path / "site").rglob("*.html"):
        assert not re.findall(r'(?:src|srcset)="https?:|<link[^>]+href="https?:', page.read_text(encoding="utf-8")), (
            page
        )
