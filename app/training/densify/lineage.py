"""Who descends from whom: uids are handed out once and never again, so a selection survives densification."""

from __future__ import annotations

import numpy as np


class Lineage:
    """Parent and birth iteration of every uid; -1 = was there from the start."""

    def __init__(self, uids: np.ndarray) -> None:
        self.first_born = self.next_uid = int(uids.max()) + 1 if len(uids) else 0   # smaller uids were there from the start
        self._parents = np.full(max(self.next_uid, 1024), -1, np.int64)
        self._born = np.zeros(len(self._parents), np.int32)

    @staticmethod
    def of(first_born: int, parents: np.ndarray, born: np.ndarray) -> Lineage:
        """As arrays() gave it."""
        lineage = Lineage(np.empty(0, np.int64))
        lineage.first_born, lineage.next_uid = first_born, len(parents)
        lineage._parents, lineage._born = np.array(parents, np.int64), np.array(born, np.int32)
        return lineage

    def arrays(self) -> dict[str, np.ndarray]:
        """Copies of parent and birth iteration, by uid."""
        return {"parents": self._parents[:self.next_uid].copy(), "born": self._born[:self.next_uid].copy()}

    def give_birth(self, parents: np.ndarray, iteration: int) -> np.ndarray:
        """New uids, one for each parent uid given."""
        first, self.next_uid = self.next_uid, self.next_uid + len(parents)
        if self.next_uid > len(self._parents):
            grow = max(self.next_uid, 2 * len(self._parents)) - len(self._parents)
            self._parents = np.concatenate([self._parents, np.full(grow, -1, np.int64)])
            self._born = np.concatenate([self._born, np.zeros(grow, np.int32)])
        self._parents[first:self.next_uid] = parents
        self._born[first:self.next_uid] = iteration
        return np.arange(first, self.next_uid, dtype=np.int64)

    def parent(self, uid: int) -> int | None:
        """The uid it was cloned or split from; None for one that was there from the start."""
        parent = int(self._parents[uid]) if 0 <= uid < self.next_uid else -1
        return None if parent < 0 else parent

    def children(self, uid: int) -> list[int]:
        """The uids cloned or split from it, oldest first, whether or not they are still there."""
        return np.flatnonzero(self._parents[:self.next_uid] == uid).tolist()

    def born(self, uid: int) -> int:
        """The iteration of its birth; 0 for one that was there from the start."""
        return int(self._born[uid]) if 0 <= uid < self.next_uid else 0

    def births(self, uids: np.ndarray) -> np.ndarray:
        """The iterations of birth of many."""
        return self._born[uids]

    def ancestors(self, uids: np.ndarray, before: int) -> np.ndarray:
        """For each uid the ancestor, or itself, that was there when `before` was the next uid; -1 where there is none."""
        found, before = np.array(uids, np.int64), max(before, 0)
        while (late := np.flatnonzero(found >= before)).size:
            found[late] = self._parents[found[late]]
        return found
