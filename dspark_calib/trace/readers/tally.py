"""Adds up windows of one log into acceptance counts."""

from dspark_calib.errors import TraceFormatError
from dspark_calib.trace.readers.acceptance import AcceptanceCounts, check_counts
from dspark_calib.trace.readers.imported import RefusedRows
from dspark_calib.trace.readers.rates import counts_from_rates


class Tally:
    """Sums of per-position counts over the windows of one or more logs.

    Args:
        decimals: Decimals of the rates, as fractions.
    """

    def __init__(self, decimals: int) -> None:
        self.refused = RefusedRows()
        self.windows = 0
        self._decimals = decimals
        self._rounds = 0
        self._accepted: list[int] = []

    def add(self, rates: list[float], drafted: int, accepted: int, where: str) -> None:
        """Add one window, or refuse it with a reason.

        Raises:
            TraceFormatError: If it has another number of positions than the windows before.
        """
        counts = counts_from_rates(rates, drafted, accepted, self._decimals)
        if isinstance(counts, str):
            self.refused.refuse(counts)
            return
        if self._accepted and len(self._accepted) != len(counts):
            raise TraceFormatError(
                f"{where}: {len(counts)} positions where earlier lines have {len(self._accepted)}; "
                "runs of different block size must be imported one by one"
            )
        self.windows += 1
        self._rounds += drafted // len(counts)
        self._accepted = [a + b for a, b in zip(self._accepted or [0] * len(counts), counts, strict=True)]

    def counts(self, source: str, where: str, notes: tuple[str, ...]) -> AcceptanceCounts:
        """Return the sums.

        Raises:
            TraceFormatError: If no window could be used.
        """
        account = self.refused.account(self.windows)
        if not self.windows:
            reasons = ", ".join(f"{reason}: {count}" for reason, count in account.refused) or "no such line"
            raise TraceFormatError(f"{where}: no usable window ({reasons})")
        counts = AcceptanceCounts(
            source=source,
            rounds=self._rounds,
            verified=(self._rounds,) * len(self._accepted),
            accepted=tuple(self._accepted),
            account=account,
            notes=notes,
        )
        return check_counts(counts, where)
