"""The copy of the store's keys: listings, changes, breaks."""

from __future__ import annotations

import pytest

from eslurm.core.federation import mirror as module
from eslurm.core.federation.actions import Failure, List, Problem, Watch
from eslurm.core.federation.mirror import Mirror
from eslurm.core.federation.values import VALUE_BYTES_MAX
from eslurm.ports.kv import Changes, Entry, Page

A, B, C = "/eslurm/lab/cells/a", "/eslurm/lab/cells/b", "/eslurm/lab/cells/c"
PREFIX = "/eslurm/lab/cells/"
BROKEN = Failure(Problem.BROKEN, "compacted")


def entry(key: str, version: int, value: bytes = b"x") -> Entry:
    return Entry(key, value, version, version)


def begun() -> tuple[Mirror, List]:
    mirror = Mirror(PREFIX)
    asked = mirror.tick(0, 0.5)
    assert asked == List(PREFIX)
    assert isinstance(asked, List)
    return mirror, asked


def watching(*entries: Entry, revision: int = 10) -> tuple[Mirror, Watch]:
    mirror, asked = begun()
    mirror.listed(asked, Page(entries, revision, more=False), 0)
    watch = mirror.tick(0, 0.5)
    assert watch == Watch(PREFIX, revision)
    assert isinstance(watch, Watch)
    return mirror, watch


def test_lists_page_by_page_at_one_revision_and_shows_nothing_before_the_last() -> None:
    mirror, asked = begun()
    assert mirror.tick(1, 0.5) is None
    mirror.listed(asked, Page((entry(A, 3),), 10, more=True), 5)
    assert not mirror.words and not mirror.is_listed
    second = mirror.tick(5, 0.5)
    assert second == List(PREFIX, A, 10)
    assert isinstance(second, List)
    mirror.listed(second, Page((entry(B, 4),), 10, more=False), 6)
    assert list(mirror.words) == [A, B]
    assert mirror.is_listed and mirror.revision == 10
    assert mirror.tick(6, 0.5) == Watch(PREFIX, 10)
    assert mirror.age_us(16) == 10


def test_changes_replace_and_remove() -> None:
    mirror, watch = watching(entry(A, 3), entry(B, 4))
    mirror.changed(watch, Changes(12, (entry(A, 12, b"new"), entry(C, 11)), (B,)), 70)
    assert {key: word.value for key, word in mirror.words.items()} == {A: b"new", C: b"x"}
    gone = mirror.gone(B)
    assert gone is not None and (gone.at_us, gone.heard_us) == (70, 0)
    mirror.changed(watch, Changes(13, (entry(B, 13),), ()), 80)
    assert mirror.gone(B) is None
    assert mirror.revision == 13


def test_old_changes_and_signs_of_life_change_nothing() -> None:
    mirror, watch = watching(entry(A, 9))
    before = mirror.changes
    mirror.changed(watch, Changes(9, (entry(A, 8, b"old"),), ()), 50)
    mirror.changed(watch, Changes(99), 60)
    assert mirror.words[A].version == 9
    assert (mirror.revision, mirror.changes) == (10, before)
    assert mirror.age_us(60) == 0


@pytest.mark.parametrize("problem", [Problem.BROKEN, Problem.UNAVAILABLE])
def test_a_watch_that_ends_is_followed_by_a_listing_that_replaces_everything(problem: Problem) -> None:
    mirror, watch = watching(entry(A, 3), entry(B, 4))
    mirror.failed(watch, Failure(problem, "gone"), 100)
    assert set(mirror.words) == {A, B} and not mirror.problem
    # With a draw of zero at once, otherwise within the pause.
    assert mirror.tick(100, 0.5) is None
    due_us = mirror.due_us
    assert due_us is not None and due_us <= 100 + module.BACK_OFF_MIN_US
    asked = mirror.tick(due_us, 0.5)
    assert isinstance(asked, List)
    mirror.listed(asked, Page((entry(B, 4), entry(C, 20)), 21, more=False), 300_000)
    assert set(mirror.words) == {B, C}
    assert mirror.words[B].heard_us == 0, "what did not change was not heard of again"
    gone = mirror.gone(A)
    assert gone is not None and gone.at_us == 300_000
    # What the former watch still says is ignored.
    mirror.changed(watch, Changes(30, (entry(A, 30),), ()), 300_000)
    mirror.failed(watch, BROKEN, 300_000)
    assert A not in mirror.words
    assert isinstance(mirror.tick(300_000, 0.5), Watch)


def test_pauses_grow_up_to_a_bound_and_end_with_a_word() -> None:
    mirror, asked = begun()
    now_us, pauses = 0, []
    for _ in range(10):
        mirror.failed(asked, Failure(Problem.UNAVAILABLE, "no member answers"), now_us)
        assert mirror.problem == "no member answers"
        if (again := mirror.tick(now_us, 0.999)) is None:
            assert mirror.due_us is not None
            pauses.append(mirror.due_us - now_us)
            now_us = mirror.due_us
            again = mirror.tick(now_us, 0.999)
        assert isinstance(again, List)
        asked = again
    assert pauses == sorted(pauses)
    assert pauses[0] < module.BACK_OFF_MIN_US and pauses[-1] < module.BACK_OFF_MAX_US
    assert pauses[-1] > module.BACK_OFF_MAX_US * 0.9
    mirror.listed(asked, Page((), 5, more=False), now_us)
    assert not mirror.problem
    watch = mirror.tick(now_us, 0.5)
    assert isinstance(watch, Watch)
    mirror.changed(watch, Changes(5), now_us)
    mirror.failed(watch, BROKEN, now_us)
    mirror.tick(now_us, 0.999)
    assert mirror.due_us is not None and mirror.due_us - now_us < module.BACK_OFF_MIN_US


def test_a_store_that_went_back_is_not_taken() -> None:
    mirror, watch = watching(entry(A, 3))
    mirror.failed(watch, BROKEN, 0)
    asked = mirror.tick(0, 0.0)
    assert isinstance(asked, List)
    mirror.listed(asked, Page((), 2, more=False), 0)
    assert set(mirror.words) == {A}
    assert mirror.problem.startswith("the store is at revision 2, but was at 10")
    assert isinstance(mirror.tick(0, 0.0), List)


@pytest.mark.parametrize(
    ("second", "problem"),
    [
        (Page((entry(C, 5),), 11, more=False), "a page of revision 11 in a listing at 10"),
        (Page((entry(A, 5),), 10, more=False), "the store lists"),
        (Page((), 10, more=True), "does not list it"),
    ],
)
def test_pages_that_do_not_fit_are_listed_again(second: Page, problem: str) -> None:
    mirror, asked = begun()
    mirror.listed(asked, Page((entry(B, 4),), 10, more=True), 0)
    following = mirror.tick(0, 0.0)
    assert isinstance(following, List)
    mirror.listed(following, second, 0)
    assert problem in mirror.problem
    assert mirror.tick(0, 0.0) == List(PREFIX)
    assert not mirror.is_listed


def test_doubt_lists_again_and_keeps_what_there_is() -> None:
    mirror, watch = watching(entry(A, 3))
    mirror.doubt()
    assert isinstance(mirror.tick(1, 0.9), List)
    mirror.changed(watch, Changes(20, (), (A,)), 2)
    assert set(mirror.words) == {A}


def test_large_values_foreign_keys_and_too_many_keys_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ENTRIES_MAX", 2)
    large = b"x" * (VALUE_BYTES_MAX + 1)
    mirror, asked = begun()
    page = Page((entry(A, 1, large), entry(B, 2), entry(C, 3), entry("/other/z", 1)), 10, more=False)
    mirror.listed(asked, page, 0)
    assert set(mirror.words) == {A, B}
    assert (mirror.words[A].value, mirror.words[A].size) == (b"", len(large))
    assert mirror.skipped == 2
    watch = mirror.tick(0, 0.0)
    assert isinstance(watch, Watch)
    # A key that goes makes room: what was left out comes with the next listing.
    mirror.changed(watch, Changes(11, (), (A,)), 0)
    assert mirror.tick(0, 0.0) is None
    assert isinstance(mirror.tick(module.BACK_OFF_MAX_US, 0.0), List)
