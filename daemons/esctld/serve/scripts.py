"""The call `JobScript`: the script of a job, from the store.

Invariant: a script is given out to the job's user and to operators alone, because scripts hold what their authors wrote in.
"""

from __future__ import annotations

from collections.abc import Callable

from esctld.lead.dispatcher import Dispatcher
from eslurm.core.control.privacy import Visibility
from eslurm.core.control.rights import is_operator
from eslurm.core.model.job import Job, Principal
from eslurm.core.model.messages import RefusalCode, Refused
from eslurm.core.state.rows import decode_job
from eslurm.ports.api import Caller
from eslurm.ports.store import BlobMissing, Store
from eslurm.v1 import controller_pb2 as pb


class Scripts:
    """`sight` is what a caller may see."""

    def __init__(
        self, dispatcher: Dispatcher, store: Store, owner: str, sight: Callable[[Caller], Visibility]
    ) -> None:
        self._dispatcher = dispatcher
        self._store = store
        self._owner = owner
        self._sight = sight

    async def call(self, request: pb.JobScriptRequest, caller: Caller) -> pb.JobScriptReply:
        """The script. Raises `Refused` when there is none, or it is another user's."""
        job_id = request.job.job_id
        job = await self._find(job_id)
        if job is None or not self._sight(caller).job(job):
            raise Refused(
                RefusalCode.NOT_FOUND, f"job {job_id} does not exist or has ended long ago: see esacct"
            )
        self._check(caller.principal, job)
        if job.spec.no_script:
            text = f"job {job_id} is an allocation without a script: there is nothing to write"
            raise Refused(RefusalCode.CONFLICT, text)
        try:
            script = await self._store.get_blob(self._owner, job.spec.script_hash)
        except BlobMissing:
            raise Refused(
                RefusalCode.NOT_FOUND,
                f"the script of job {job_id} is not kept any more: it has ended long ago",
            ) from None
        return pb.JobScriptReply(script=script)

    async def _find(self, job_id: int) -> Job | None:
        job = self._dispatcher.view.find_named(job_id)
        if job is not None:
            return job
        rows = await self._store.find_jobs(self._owner, [job_id])
        return decode_job(rows[0].blob) if rows else None

    def _check(self, who: Principal, job: Job) -> None:
        if who.uid != job.spec.user.uid and not is_operator(self._dispatcher.view, who):
            raise Refused(
                RefusalCode.DENIED,
                f"job {job.job_id} belongs to {job.spec.user.name}: only its user and operators read its script",
            )
