"""The two streams: what a terminal is sent."""

import pytest
from rich.table import Table

from dspark_calib_cli import app as cli
from dspark_calib_cli import console


def test_text_cannot_drive_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Escapes, bells and backspaces in a name are dropped from results and messages; the letters stay."""
    table = Table("group")
    table.add_row("a\x1b[2Jb\x07\x9b31mc\x08")
    console.print_table(table)
    console.warn("a\x1b[2Jb\x07")
    console.fail("a\x1b[2Jb\x07")
    captured = capsys.readouterr()
    assert not set(captured.out + captured.err) & set("\x1b\x07\x08\x9b")
    assert "a[2Jb31mc" in captured.out
    assert captured.err == "warning: a[2Jb\nerror: a[2Jb\n"


def test_a_narrow_terminal_loses_no_column(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """At 40 columns a table of 60 is printed whole, its lines running over."""
    monkeypatch.setenv("COLUMNS", "40")
    table = Table(*("0123456789" for _ in range(6)))
    table.add_row(*("abcdefghij" for _ in range(6)))
    console.print_table(table)
    out = capsys.readouterr().out
    assert out.count("0123456789") == 6
    assert out.count("abcdefghij") == 6


def test_ctrl_c_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Code 130, as a shell expects, with one line and no traceback."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dspark_calib.trace.open_trace", interrupted)
    assert cli.run(["drift", "a", "b"]) == 130
    assert capsys.readouterr().err == "error: interrupted; what was not finished was not written\n"
