"""Batches made of groups of near-duplicate captions: by seed and epoch, else by nothing."""

import dataclasses
import threading

import numpy as np

from hnclip_jax import types

PER_MEMBER = 16
"""So many neighbours are needed for each further member of a group: most are taken already."""


def check(size: int, together: int) -> None:
    """Checks that groups lie whole in what negatives are taken from.

    Args:
      size: captions of a group.
      together: pairs that stand one behind the other there.

    Raises:
      types.UserError: if they do not.
    """
    if together % size:
        raise types.UserError(
            f"groups of data.group_size={size} captions do not fit whole into {together} pairs, "
            "which is what a batch has, or with train.micro_batches a device's part of one; choose "
            "train.global_batch_size so that this is a multiple of the group"
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Groups:
    """A list whose rows come in groups of near-duplicate captions, other ones in every epoch.

    neighbours: [n, k] int32, rows that are near to each row, the nearest first; -1 = no more.
    pair_ids: [n] int; rows with equal ids are not put into one group, since they are no negatives.
    size: rows of a group.
    seed: of the order.
    """

    neighbours: np.ndarray
    pair_ids: np.ndarray
    size: int
    seed: int

    @property
    def per_epoch(self) -> int:
        """Rows of an epoch: all but the remainder that makes no group, another one each time."""
        return len(self.pair_ids) // self.size * self.size

    def order(self, epoch: int) -> np.ndarray:
        """Returns the rows of an epoch, [per_epoch] int64, group behind group.

        The rows are walked through in random order; each that is still free takes its nearest that
        are free. Those that find too few are joined, in the order of the walk; there equal ids can
        meet, as in any batch. Then the groups are shuffled.
        """
        random = np.random.default_rng((self.seed, epoch))
        free = np.ones(len(self.pair_ids), bool)
        whole: list[int] = []
        rest: list[int] = []
        for row in random.permutation(len(free)).tolist():
            if free[row]:
                group = self._around(row, free)
                free[group] = False
                (whole if len(group) == self.size else rest).extend(group)
        groups = np.array((whole + rest)[: self.per_epoch], np.int64).reshape(-1, self.size)
        return random.permutation(groups).ravel()

    def _around(self, row: int, free: np.ndarray) -> list[int]:
        """Returns a row and its nearest that are free, all of different pictures."""
        group, ids = [row], {int(self.pair_ids[row])}
        near = self.neighbours[row]
        near = near[near >= 0]
        for other in near[free[near]].tolist():
            if len(group) == self.size:
                break
            if self.pair_ids[other] not in ids:
                group.append(other)
                ids.add(int(self.pair_ids[other]))
        return group


class Order:
    """The endless order of a grouped list: place -> row.

    Threads of one process share it, and processes that load data get a copy.
    """

    def __init__(self, groups: Groups) -> None:
        """Computes nothing yet; an epoch's order is made when it is first asked for."""
        self._groups = groups
        self._lock = threading.Lock()
        self._epochs: dict[int, np.ndarray] = {}

    def __reduce__(self) -> tuple:
        """Leaves out the lock, which cannot be sent to another process."""
        return Order, (self._groups,)

    def __call__(self, place: int) -> int:
        """Returns the row at a place, counted from 0 over all epochs."""
        epoch, inside = divmod(place, self._groups.per_epoch)
        with self._lock:
            if epoch not in self._epochs:
                # Where an epoch ends, threads are in two of them.
                for known in sorted(self._epochs)[:-1]:
                    del self._epochs[known]
                self._epochs[epoch] = self._groups.order(epoch)
            return int(self._epochs[epoch][inside])
