"""What a step uses, put together from its nodes' measurements."""

from __future__ import annotations

import msgspec

from eslurm.core.model.step_usage import (
    MEASURED_BYTES_MAX,
    PIDS_TOLD_MAX,
    STEPS_MEASURED_MAX,
    Amount,
    Measured,
    StepUse,
    amount_of,
    merged,
    read_measured,
)


def test_an_amount_names_the_first_of_equal_tasks() -> None:
    assert amount_of([(4, 10), (5, 30), (6, 30), (7, 10)]) == Amount(80, 30, 5, 10, 4)
    assert amount_of([]) == Amount()


def test_nodes_add_up_and_the_extremes_have_their_places() -> None:
    first = StepUse(0, 2, amount_of([(0, 5), (1, 9)]), amount_of([(0, 100), (1, 1)]), pids=(11, 12))
    second = StepUse(0, 1, amount_of([(2, 3)]), amount_of([(2, 100)]), is_partial=True)
    # Its tasks ended while it was asked: its zeros are of no task.
    ended = StepUse(0, 0)
    usage = merged([(7, first), (8, second), (9, ended)])
    assert (usage.nodes, usage.tasks, usage.is_partial) == ((7, 8, 9), 3, True)
    cpu, memory = usage.cpu_us, usage.memory_kib
    assert (cpu.total, cpu.most, cpu.most_task, cpu.most_node) == (17, 9, 1, 7)
    assert (cpu.least, cpu.least_task, cpu.least_node) == (3, 2, 8)
    assert (memory.most, memory.most_task, memory.most_node) == (100, 0, 7)
    assert usage.named == ((7, first),)
    assert merged([(9, ended)]).cpu_us.most_node == -1


def test_the_longest_answer_is_read_and_nonsense_is_not() -> None:
    large = Amount(2**63 - 1, 2**63 - 1, 2**31, 2**63 - 1, 2**31)
    uses = [StepUse(2**31 - 1, 2**31, large, large, large, large) for _ in range(STEPS_MEASURED_MAX - 1)]
    pids = tuple(range(2**22 - PIDS_TOLD_MAX, 2**22))
    ranks = (2**31 - 1,) * PIDS_TOLD_MAX
    uses.append(StepUse(2**31 - 1, 2**31, large, large, large, large, pids, True, ranks, 2**31))
    longest = msgspec.msgpack.encode(Measured(tuple(uses)))
    assert len(longest) <= MEASURED_BYTES_MAX
    assert read_measured(longest) == Measured(tuple(uses))
    for payload in (b"", b"\xff", msgspec.msgpack.encode([["x"]]), longest + bytes(MEASURED_BYTES_MAX)):
        assert read_measured(payload) is None
