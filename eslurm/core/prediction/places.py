"""The constructor's placement of a node of a list, without building the list.

Invariant: agrees with `construct.share_out` followed by `construct.arrange` of each share.
"""

from __future__ import annotations

from eslurm.core.relay.construct import TreeShape, leaves_of, place
from eslurm.core.relay.grouping import POSITIONAL


class Forest:
    """The trees of one broadcast: `count` nodes, `predicted` of them predicted, in at most `shares` shares.

    Making one costs a few look-ups per share and each size's leaf pattern. Raises ValueError when there
    are more predicted nodes than nodes, or a width or `shares` is out of range.
    """

    def __init__(self, count: int, predicted: int, shape: TreeShape, shares: int = 1) -> None:
        sizes = POSITIONAL.sizes(count, shares)
        each, more = divmod(predicted, len(sizes) or 1)
        self._kinds = [(size, each + (index < more)) for index, size in enumerate(sizes)]
        self._placements = {kind: place(*kind, shape) for kind in set(self._kinds)}
        self._leaves = sum(leaves_of(size, shape) for size in sizes)
        self._count = count

    @property
    def is_flat(self) -> bool:
        """Check whether every position is a leaf's, so that placement has no effect."""
        return self._leaves == self._count

    @property
    def leaf_share(self) -> float:
        """The share of leaf positions: the expected share of a random placement (E-b). Raises on an empty list."""
        return self._leaves / self._count

    def leaf_flags(self, is_predicted: bool) -> bytes:
        """For each predicted (or each other) node in list order 1 when it is put on a leaf, else 0."""
        flags = {kind: placement.leaf_flags(is_predicted) for kind, placement in self._placements.items()}
        return b"".join([flags[kind] for kind in self._kinds])
