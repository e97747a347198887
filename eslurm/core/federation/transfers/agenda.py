"""Jobs by the time at which a machine looks at them next."""

from __future__ import annotations

import heapq


class Agenda:
    """One time for each job; a later one replaces the earlier one."""

    def __init__(self) -> None:
        self._at_us: dict[int, int] = {}
        self._heap: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._at_us)

    def put(self, job_id: int, at_us: int) -> None:
        """Look at the job then."""
        if self._at_us.get(job_id) != at_us:
            self._at_us[job_id] = at_us
            heapq.heappush(self._heap, (at_us, job_id))

    def put_by(self, job_id: int, at_us: int) -> None:
        """Look at the job then, or at the time that it has if that is earlier."""
        self.put(job_id, min(at_us, self._at_us.get(job_id, at_us)))

    def drop(self, job_id: int) -> None:
        """Look at it no more."""
        self._at_us.pop(job_id, None)
        if len(self._heap) > 4 * len(self._at_us) + 64:
            self._heap = [(at_us, one) for one, at_us in self._at_us.items()]
            heapq.heapify(self._heap)

    def take(self, now_us: int, most: int) -> list[int]:
        """The jobs that are due, at most so many; they are no longer on the agenda."""
        taken: list[int] = []
        while self._heap and self._heap[0][0] <= now_us and len(taken) < most:
            at_us, job_id = heapq.heappop(self._heap)
            if self._at_us.get(job_id) == at_us:
                del self._at_us[job_id]
                taken.append(job_id)
        return taken

    @property
    def due_us(self) -> int | None:
        """The time of the first one; None: there is none."""
        while self._heap and self._at_us.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None
