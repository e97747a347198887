"""The messages about jobs: what the committed state owes is sent, and its end is a message to the state.

`core.dispatch.mail_queue` decides what to send and when. Invariant: what goes wrong with a message ends that one alone, and
none of it holds the loop. A message that was on its way when its leader ended may be sent again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from esctld.lead.mail_message import MailWriter
from eslurm.config.mail import MailSection
from eslurm.core.dispatch.mail_queue import FAILED, REFUSED, SENT, MailQueue, SendMail
from eslurm.core.model.messages import Message, NoteMailTold
from eslurm.core.model.units import SECOND_US
from eslurm.core.state.cluster import State
from eslurm.ports.mailer import Mailer, MailRefused, MailUnavailable
from eslurm.telemetry.metrics import ControllerMetrics

log = logging.getLogger("esctld.mail")

CLOSE_S = 0.5
"""For the messages on their way when the leader stops: its successor waits."""
GIVEN_UP = "given up"


class Mails:
    """`post` takes the messages about their ends. With no mailer all that is owed is given up."""

    def __init__(
        self,
        state: State,
        mailer: Mailer | None,
        section: MailSection,
        metrics: ControllerMetrics,
        now_us: Callable[[], int],
        post: Callable[[Message], None],
    ) -> None:
        self._state = state
        self._mailer = mailer
        self._section = section
        self._metrics = metrics
        self._now_us = now_us
        self._post = post
        self._queue = MailQueue(state, section.user_hourly_max)
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def on_committed(self) -> None:
        """A batch is durable."""
        if self._is_closed or not (self._state.mailing or self._queue.next_us):
            return
        now_us = self._now_us()
        for action in self._queue.follow(now_us):
            if isinstance(action, SendMail) and self._mailer is not None:
                task = asyncio.create_task(self._send(action, self._mailer))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
                continue
            why = "no mail is sent any more" if isinstance(action, SendMail) else action.why
            log.info("job %d: its message %r is left out: %s", action.job.job_id, action.note.event, why)
            self._over(action.job.job_id, action.note.number, GIVEN_UP)
            if isinstance(action, SendMail):
                self._queue.done(action.job.job_id, action.note.number, REFUSED, now_us)
        self._arm(now_us)

    async def close(self) -> None:
        """Wait a moment for the messages on their way. The next leader sends the others, and the late ones again."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_S)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _arm(self, now_us: int) -> None:
        """Look again when a message is to be tried again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._queue.next_us:
            delay_s = max(0, self._queue.next_us - now_us) / SECOND_US
            self._timer = asyncio.get_running_loop().call_later(delay_s, self.on_committed)

    async def _send(self, action: SendMail, mailer: Mailer) -> None:
        job, note = action.job, action.note
        end = SENT
        try:
            names = self._state.node_names(note.nodes)
            writer = MailWriter(self._section, self._state.config.cluster)
            await mailer.send(writer.write(job, note, names))
        except MailUnavailable as error:
            end = FAILED
            log.warning("job %d: its message %r could not be sent: %s", job.job_id, note.event, error)
        except MailRefused as error:
            end = REFUSED
            log.warning("job %d: its message %r is refused: %s", job.job_id, note.event, error)
        except Exception:
            end = REFUSED
            log.exception("job %d: its message %r cannot be made", job.job_id, note.event)
        if self._queue.done(job.job_id, note.number, end, self._now_us()):
            self._over(job.job_id, note.number, end)
        else:
            self._metrics.mails.labels(FAILED).inc()
            self.on_committed()

    def _over(self, job_id: int, number: int, end: str) -> None:
        self._metrics.mails.labels(end).inc()
        self._post(NoteMailTold(job_id, number))
