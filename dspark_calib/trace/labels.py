"""Dictionary-coded strings: one int32 code a row and the names they stand for."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

NULL = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """A column of repeated strings.

    Attributes:
        codes: Index into `names`, int32, shape [rounds]; -1 stands for null.
        names: The distinct strings, in order of first appearance.
    """

    codes: npt.NDArray[np.int32]
    names: tuple[str, ...]

    @classmethod
    def encode(cls, values: Iterable[str | None]) -> "Labels":
        """Code a sequence of strings; None becomes null.

        >>> Labels.encode(["a", None, "a"]).codes.tolist()
        [0, -1, 0]
        """
        index: dict[str, int] = {}
        codes = [NULL if v is None else index.setdefault(v, len(index)) for v in values]
        return cls(codes=np.array(codes, dtype=np.int32), names=tuple(index))

    @classmethod
    def constant(cls, value: str | None, rows: int) -> "Labels":
        """Repeat one value over all rows."""
        code, names = (NULL, ()) if value is None else (0, (value,))
        return cls(codes=np.full(rows, code, dtype=np.int32), names=names)

    def __len__(self) -> int:
        return len(self.codes)

    def decode(self) -> list[str | None]:
        """Return the strings, None where null."""
        return [None if c == NULL else self.names[c] for c in self.codes.tolist()]

    def take(self, rows: npt.NDArray[np.generic] | slice) -> "Labels":
        """Select rows by index, mask or slice; the names stay as they are."""
        return Labels(codes=self.codes[rows], names=self.names)


def concat_labels(columns: Sequence[Labels]) -> Labels:
    """Join columns row after row, merging their names."""
    index: dict[str, int] = {}
    codes = []
    for column in columns:
        remap = np.array([index.setdefault(name, len(index)) for name in column.names] + [NULL], dtype=np.int32)
        codes.append(remap[column.codes])  # -1 picks the appended null
    return Labels(codes=np.concatenate(codes) if codes else np.empty(0, np.int32), names=tuple(index))
