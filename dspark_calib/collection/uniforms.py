"""Random numbers keyed by what they are for, not by the order in which they are drawn.

Every coupling has its own two uniforms, found by (seed, dataset, prompt, replicate, anchor, position), so a
batch of another size, another anchor policy or another worker draws the same ones.
"""

import hashlib
import json

import numpy as np
import numpy.typing as npt


def keyed_generator(seed: int, *key: str | int) -> np.random.Generator:
    """Return a counter-based generator (Philox) whose stream depends on the seed and the key alone."""
    text = json.dumps([seed, *key], ensure_ascii=True).encode()
    digest = hashlib.blake2b(text, digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=np.frombuffer(digest, dtype=np.uint64)))


def coupling_uniforms(
    seed: int, dataset: str, prompt_id: str, replicate: int, anchors: int, gamma: int
) -> npt.NDArray[np.float32]:
    """Return the uniforms of one trajectory, in [0, 1).

    Args:
        seed: Of the collection.
        dataset: Evaluation set.
        prompt_id: Prompt.
        replicate: Trajectory number.
        anchors: Anchors of the response; the first rows do not depend on it.
        gamma: γ.

    Returns:
        float32 [anchors, γ, 2]: by anchor offset and position, one to accept by and one to draw by.
    """
    generator = keyed_generator(seed, "coupling", dataset, prompt_id, replicate)
    return generator.random((anchors, gamma, 2), dtype=np.float32)
