"""`collect` and `doctor` on the command line: exit codes, streams and messages, on a tiny pair."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dspark_calib.trace.store import open_trace
from dspark_calib_cli.app import run

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "collection"))
from disk_pair import save_drafter, save_target, write_prompts


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a target, two drafters, prompts and defaults for them."""
    home = tmp_path_factory.mktemp("pair")
    save_target(home / "target")
    save_drafter(home / "drafter")
    save_drafter(home / "headless", head=False)
    write_prompts(home / "math.jsonl", 4)
    (home / "dspark-calib.toml").write_text(
        '[collect]\ntarget = "target"\ndrafter = "drafter"\nprompts = ["math.jsonl"]\ndomain = ["math=math"]\n'
        'max-new-tokens = 8\nbatch-tokens = 64\ndevice = "cpu"\n'
    )
    return home


def collect(home: Path, *arguments: object) -> int:
    """Run `collect` with the defaults of the folder."""
    return run(["collect", "--config", str(home / "dspark-calib.toml"), *map(str, arguments)])


def test_a_trace_comes_of_the_defaults_in_the_file(home: Path, tmp_path: Path, capsys: Any) -> None:
    """stdout carries the result alone, as JSON where asked; a second run says that nothing is to do."""
    out = tmp_path / "trace"
    assert collect(home, "--out", out, "--format", "json") == 0
    written = capsys.readouterr()
    result = json.loads(written.out)
    trace = open_trace(out)
    assert (result["trace"], result["rounds"], result["prompts"]) == (str(out), trace.num_rounds, 4)
    assert result["findings"] == {}
    assert trace.read().domain.names == ("math",)
    assert written.err == ""
    assert collect(home, "--out", out) == 0
    again = capsys.readouterr()
    assert "finished; nothing to do" in " ".join(again.err.split())
    assert f"{trace.num_rounds} rounds of 4 prompts" in again.out
    assert collect(home, "--out", out, "--quiet") == 0
    assert capsys.readouterr().err == ""


def test_proxies_replicates_and_all_anchors(home: Path, tmp_path: Path) -> None:
    """A drafter without a head is collected by a named proxy; options reach the trace."""
    out = tmp_path / "trace"
    options = ("--confidence", "margin", "--replicates", 2, "--anchors", "all", "--temperature", 0.5, "--seed", 3)
    assert collect(home, "--drafter", home / "headless", "--out", out, *options) == 0
    trace = open_trace(out)
    provenance = trace.provenance
    assert (provenance.confidence_source, provenance.anchor_policy, provenance.temperature) == ("margin", "all", 0.5)
    assert provenance.seed == 3
    rounds = trace.read()
    assert set(rounds.replicate) == {0, 1}
    assert (rounds.confidence_logits == rounds.draft_margin).all()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--drafter", "headless"), "no confidence head"),
        (("--drafter", "none"), "none"),
        (("--target", "none"), "no such folder"),
        (("--prompts", "none.jsonl", "--domain", "none=x"), "none.jsonl: cannot be read"),
        (("--prompts", "broken.jsonl", "--domain", "broken=x"), "broken.jsonl, line 1"),
        (("--domain", "nobody=math"), "no prompt file is called so"),
        (("--device", "warp"), "--device warp"),
        (("--dtype", "int8"), "--dtype int8"),
        (("--responses", "none.jsonl"), "none.jsonl"),
        (("--workers", "none"), "--workers"),
        (("--responses", "a.jsonl", "--responses-from", "http://localhost:1"), "--responses-from"),
        (("--max-new-tokens", "1"), "--max-new-tokens"),
        (("--responses-from", "http://127.0.0.1:9"), "127.0.0.1:9"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(
    home: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
) -> None:
    """Exit code 2, the culprit named, no traceback, no output folder."""
    monkeypatch.chdir(home)
    monkeypatch.setattr("time.sleep", lambda _: None)  # retries of the server
    (home / "broken.jsonl").write_text("{")
    assert collect(home, "--out", tmp_path / "trace", *arguments) == 2
    written = capsys.readouterr()
    assert said in written.err
    assert "Traceback" not in written.err
    assert written.out == ""
    assert not (tmp_path / "trace").exists()


def test_ctrl_c_is_exit_code_2_and_says_how_to_go_on(
    home: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not 1, which says that a gate failed."""

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dspark_calib.collection.collect.collect", interrupted)
    assert collect(home, "--out", tmp_path / "trace") == 2
    assert "go on with --resume" in capsys.readouterr().err


def test_doctor_says_that_a_pair_fits(home: Path, capsys: Any) -> None:
    """γ, the head and the layers, before any weights of the target are loaded."""
    assert (
        run(["doctor", "--target", str(home / "target"), "--drafter", str(home / "drafter"), "--format", "json"]) == 0
    )
    found = {check["subject"]: check for check in json.loads(capsys.readouterr().out)}
    assert found["drafter"]["detail"].startswith("fits the target; γ = 3; confidence head; reads target layers 0, 1")
    assert "vocabulary 260" in found["target"]["detail"]
    assert found["torch"]["state"] == "ok"


def test_doctor_says_what_is_in_the_way(home: Path, tmp_path: Path, capsys: Any) -> None:
    """Exit code 2, the field named; the headless drafter is told its option."""
    wrong = save_drafter(tmp_path / "wrong", hidden_size=20)
    assert run(["doctor", "--target", str(home / "target"), "--drafter", str(wrong)]) == 2
    assert "hidden_size" in capsys.readouterr().out
    assert run(["doctor", "--target", str(tmp_path / "none")]) == 2
    assert run(["doctor", "--drafter", str(wrong)]) == 2
    capsys.readouterr()
    assert (
        run(["doctor", "--target", str(home / "target"), "--drafter", str(home / "headless"), "--format", "json"]) == 0
    )
    assert "no confidence head: pass --confidence draft-prob" in capsys.readouterr().out


def test_doctor_answers_without_torch() -> None:
    """On a base install it names the extra, and only asks for it where models are to be looked at."""
    program = (
        "import importlib.metadata as m, sys\n"
        "real = m.version\n"
        "def version(name):\n"
        "    if name in ('torch', 'transformers'):\n"
        "        raise m.PackageNotFoundError(name)\n"
        "    return real(name)\n"
        "m.version = version\n"
        "sys.modules['torch'] = sys.modules['transformers'] = None\n"
        "from dspark_calib_cli.app import run\n"
        "print(run(['doctor', '--format', 'json']), run(['doctor', '--target', 'x', '--drafter', 'y']))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "pip install 'dspark-calib[collect]'" in done.stdout
    assert done.stdout.rstrip().endswith("0 2")
