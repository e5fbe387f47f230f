"""Bin packing of a stream of items with a lookback, as in Iceberg's `BinPacking.PackingIterable`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")


class _Bin(Generic[Item]):
    def __init__(self) -> None:
        self.items: list[Item] = []
        self.weight = 0


def packed(
    items: Iterable[Item], target: int, lookback: int, weight: Callable[[Item], int]
) -> Iterator[list[Item]]:
    """The items in bins of at most `target`, except for a heavier item, which has a bin of its own.

    An item goes into the first open bin that has room. At most `lookback` bins are open; when another one is
    needed, the heaviest is closed. What is left at the end comes in the order in which bins were opened. With
    a `lookback` of 0 the only open bin is closed for the next one, so that all items keep their order.
    """
    if lookback == 0:
        yield from _in_order(items, target, weight)
        return
    bins: list[_Bin[Item]] = []
    for item in items:
        size = weight(item)
        found = next((each for each in bins if each.weight + size <= target), None)
        if found is None:
            found = _Bin()
            bins.append(found)
        found.items.append(item)
        found.weight += size
        if len(bins) > lookback:
            # The heaviest, of equal ones the first.
            yield bins.pop(max(range(len(bins)), key=lambda at: (bins[at].weight, -at))).items
    for each in bins:
        yield each.items


def _in_order(items: Iterable[Item], target: int, weight: Callable[[Item], int]) -> Iterator[list[Item]]:
    last: _Bin[Item] = _Bin()
    for item in items:
        size = weight(item)
        if last.items and last.weight + size > target:
            yield last.items
            last = _Bin()
        last.items.append(item)
        last.weight += size
    if last.items:
        yield last.items
