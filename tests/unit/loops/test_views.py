"""Measures of imbalance, and the picture of a loop's course."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from eslurm.loops import imbalance, picture
from eslurm.loops.record import Chunk, Record

SVG = "{http://www.w3.org/2000/svg}"


def test_max_over_mean() -> None:
    assert imbalance.max_over_mean([5.0, 5.0, 5.0]) == 1.0
    assert imbalance.max_over_mean([4.0, 0.0, 0.0, 0.0]) == 4.0
    assert imbalance.max_over_mean([10.0, 8.0, 6.0]) == pytest.approx(1.25)
    assert imbalance.max_over_mean([]) == imbalance.max_over_mean([0.0]) == 1.0


def test_other_measures() -> None:
    assert imbalance.coefficient_of_variation([4.0, 6.0]) == pytest.approx(0.2)
    assert imbalance.coefficient_of_variation([]) == 0.0
    assert imbalance.idle_share([4.0, 8.0]) == pytest.approx(0.25)
    assert imbalance.idle_share([]) == imbalance.idle_share([0.0]) == 0.0


def record(chunks: int) -> Record:
    found = Record("FAC2", 2 * chunks)
    found.joined(1, "<node>/1")
    found.joined(2, "node/2")
    for at in range(chunks):
        outcome = "failed" if at == 1 else "done"
        found.add(Chunk(1 + at % 2, 2 * at, 2 * at + 2, at, at + 1.0, 0.5, 1, outcome))
    return found


def test_a_box_for_each_chunk_in_its_workers_row() -> None:
    tree = ElementTree.fromstring(picture.draw(record(4)))
    boxes = [each for each in tree.iter(f"{SVG}rect") if each.find(f"{SVG}title") is not None]
    assert len(boxes) == 4
    assert len({each.get("y") for each in boxes}) == 2
    titles = [each.findtext(f"{SVG}title") for each in boxes]
    assert "2 to 3 (2), 1.000 to 2.000 s, failed" in titles
    texts = [each.text for each in tree.iter(f"{SVG}text")]
    assert "<node>/1" in texts
    assert any(text and text.startswith("FAC2: 8 iterations in 4 chunks on 2 workers") for text in texts)


def test_the_picture_is_bounded() -> None:
    many = picture.draw(record(50_000))
    assert many.count("<title>") < 4000
    ElementTree.fromstring(many)
    crowd = Record("SS", 1)
    for worker in range(1000):
        crowd.joined(worker, "w")
    assert picture.draw(crowd).count('text-anchor="end"') == picture.ROWS_MAX
    ElementTree.fromstring(picture.draw(Record("SS", 0)))
