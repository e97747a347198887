"""The board: who is asked about again and when, and that nothing is kept of what is over."""

from __future__ import annotations

from esestd.live_jobs import Board, Known
from eslurm.core.model.forecast import Submitted, exactly

LONG_S = 10**6


def running(board: Board, job_id: int, at_s: int, estimate_s: int) -> Known:
    """A job that has started and was asked about then."""
    known = board.submitted(Submitted(job_id, at_s))
    board.started(known, at_s)
    board.asked(known, at_s)
    assert board.answered(known, exactly(estimate_s))
    return known


def due(board: Board, at_s: int, most: int = 100) -> list[int]:
    return [known.job.job_id for known in board.due(at_s, LONG_S, most)]


def kept(board: Board) -> int:
    """Entries of all tables."""
    return sum(len(table) for table in (board._jobs, board._waiting, board._ends))


def test_running_jobs_are_due_once_they_have_outlived_their_estimates() -> None:
    board = Board()
    running(board, 1, 0, 500)
    running(board, 2, 0, 100)
    assert due(board, 100) == []
    assert due(board, 101) == [2]
    assert due(board, 10_000) == [1]
    assert due(board, 20_000) == []


def test_only_the_newest_forecast_says_when() -> None:
    board = Board()
    known = running(board, 1, 0, 100)
    board.asked(known, 50)
    board.answered(known, exactly(5_000))
    assert due(board, 101) == []
    assert due(board, 5_001) == [1]


def test_a_better_model_is_asked_about_all_in_any_order() -> None:
    board = Board()
    for job_id in (9, 3, 7, 1):
        running(board, job_id, 0, 50_000)
    waiting = board.submitted(Submitted(20, 0))
    board.asked(waiting, 10)
    board.renew(60)
    assert sorted(due(board, 60)) == [1, 3, 7, 9, 20]
    assert due(board, 60) == [20], "it still waits for its answer"
    for job_id in (9, 3, 7, 1):
        known = board.find(job_id)
        assert known is not None
        board.asked(known, 60)
        board.answered(known, exactly(50_000))
    board.asked(waiting, 61)
    assert due(board, 70) == []


def test_what_is_over_takes_no_memory() -> None:
    """Short jobs with estimates of weeks: the instants at which they would have been due do not gather."""
    board = Board()
    most = 0
    for job_id in range(20_000):
        known = running(board, job_id, job_id, LONG_S)
        board.ended(known, 0, 1)
        most = max(most, kept(board))
    assert most < 1_100
    assert len(board) == 0 and due(board, 10 * LONG_S) == []


def test_an_answer_about_what_was_changed_since_is_not_told() -> None:
    board = Board()
    before = board.submitted(Submitted(1, 0, limit_s=100))
    board.asked(before, 0)
    now = board.submitted(Submitted(1, 5, limit_s=200))
    board.asked(now, 5)
    assert not board.answered(before, exactly(100))
    assert board.answered(now, exactly(103))
    assert now.sent == exactly(103) and before.sent is None


def test_an_answer_that_comes_after_the_end_counts_as_the_first() -> None:
    board = Board()
    known = board.submitted(Submitted(1, 0))
    board.ended(known, 0, 7)
    assert not board.answered(known, exactly(9))
    assert (known.first_s, known.ran_s) == (9, 7)
