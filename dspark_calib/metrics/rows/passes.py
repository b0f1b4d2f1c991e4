"""Passes over rows: parts are made on threads and added up in row order, so that no sum depends on the threads."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, TypeVar

A = TypeVar("A")
B = TypeVar("B")
Item = TypeVar("Item")
ItemIn_contra = TypeVar("ItemIn_contra", contravariant=True)
Part = TypeVar("Part")
Total = TypeVar("Total")
Progress = Callable[[str, int], None]


class Pass(Protocol[ItemIn_contra, Part, Total]):
    """A sum over rows. It can be pickled, so that workers elsewhere run it over rows of their own."""

    def zero(self) -> Total:
        """Return the total of no rows."""

    def part(self, item: ItemIn_contra) -> Part:
        """Return what a block of rows adds; runs on threads."""

    def add(self, total: Total, part: Part) -> None:
        """Add a part in place."""

    def merge(self, total: Total, other: Total) -> None:
        """Add the total of later rows in place."""


def run_pass(pass_: Pass[Item, Part, Total], items: Iterable[Item], threads: int = 2) -> Total:
    """Return the total over all items."""
    total = pass_.zero()
    for part in map_in_order(pass_.part, items, threads):
        pass_.add(total, part)
    return total


def map_in_order(function: Callable[[A], B], items: Iterable[A], threads: int = 2) -> Iterator[B]:
    """Yield function(item) in the order of the items, a few computed ahead on threads (numpy frees the lock)."""
    if threads < 2:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(threads) as pool:
        ahead: deque[Future[B]] = deque()
        try:
            for item in items:
                ahead.append(pool.submit(function, item))
                if len(ahead) > threads:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            for future in ahead:
                future.cancel()
