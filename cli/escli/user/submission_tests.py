"""Answers of `essubmit --test-only`: whether and when a job would start, its nodes, and its waiting reasons."""

from __future__ import annotations

from escli import clock, exits, program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from escli.options import Words

COMMAND = "essubmit"


def tell_test(answer: bytes, options: Words) -> int:
    """Print whether and when each job would start, its nodes, and its waiting reasons."""
    from eslurm.v1 import controller_pb2 as pb

    tests = tests_of(pb.SubmitReply.FromString(answer))
    if options.has("json"):
        import json

        found = [test_fields(one) for one in tests]
        program.say(json.dumps(found[0] if len(found) == 1 else {"jobs": found}))
    else:
        for number, one in enumerate(tests, 1):
            tell_one_test(one, f"job {number} of {len(tests)}: " if len(tests) > 1 else "")
    return exits.FAILED if any(one.refused for one in tests) else exits.OK


def tests_of(reply: Any) -> list[Any]:
    """The answer about each job."""
    return list(reply.tests) or [_of_older(reply)]


def _of_older(reply: Any) -> Any:
    """The answer of an older controller, which knows one job in a test."""
    from eslurm.v1 import controller_pb2 as pb

    return pb.TestAnswer(
        answer=reply.test_answer,
        start_us=reply.test_start_us,
        nodes=reply.test_nodes,
        reasons=reply.test_reasons,
        earliest_us=reply.test_earliest_us,
        latest_us=reply.test_latest_us,
    )


def test_fields(one: Any) -> dict[str, Any]:
    """An answer as JSON."""
    from escli.as_json import fields_of

    return {
        "answer": one.answer,
        "refused": one.refused,
        "start_us": one.start_us or None,
        "earliest_us": one.earliest_us or None,
        "latest_us": one.latest_us or None,
        "nodes": one.nodes,
        "reasons": [fields_of(reason) for reason in one.reasons],
    }


def tell_one_test(one: Any, which: str) -> None:
    """Print an answer; `which` names what it is about."""
    from escli.user.why import interval, reason_lines
    from eslurm.compat.moments import format_moment

    when = f" (planned start {format_moment(one.start_us, clock.local_offset_s)})" if one.start_us else ""
    where = f" on {one.nodes}" if one.nodes else ""
    between = interval(one.earliest_us, one.latest_us, clock.now_us())
    program.say(f"{COMMAND}: {which}{one.answer or 'the job could run'}{when}{where}{between}")
    blocking = [reason for reason in one.reasons if not reason.nodes_of]
    for line in reason_lines(blocking, clock.now_us()):
        program.say(line)
