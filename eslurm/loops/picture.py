"""A picture of a loop's course as SVG: a row for each worker, a box for each chunk from its grant to its end.

Bounds: `ROWS_MAX` rows; boxes of less than half a pixel are drawn as one with their neighbours.
"""

from __future__ import annotations

from html import escape

from eslurm.loops.record import DONE, Chunk, Record

__all__ = ["draw"]

ROWS_MAX = 256
_WIDTH, _LEFT, _RIGHT, _TOP, _ROW, _GAP = 960, 150, 20, 46, 18, 4
_COLOURS = ("#2b6cb0", "#63a4dd")
"""By turns, so that neighbours are told apart."""
_ENDED = "#c53030"
"""A chunk that failed or lost its worker."""


def draw(record: Record) -> str:
    """The picture's text. Chunks say their iterations and times when they are pointed at."""
    workers = sorted(record.labels)[:ROWS_MAX]
    span = max([record.makespan, *(each.ended for each in record.chunks)], default=0.0) or 1.0
    scale = (_WIDTH - _LEFT - _RIGHT) / span
    rows = {worker: _TOP + at * (_ROW + _GAP) for at, worker in enumerate(workers)}
    height = _TOP + len(workers) * (_ROW + _GAP) + 34
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="{_LEFT}" y="20" font-size="14">{escape(_title(record))}</text>',
    ]
    for worker in workers:
        y = rows[worker]
        lines.append(
            f'<text x="{_LEFT - 8}" y="{y + 13}" text-anchor="end">{escape(record.labels[worker][-24:])}</text>'
        )
        lines.append(
            f'<rect x="{_LEFT}" y="{y}" width="{_WIDTH - _LEFT - _RIGHT}" height="{_ROW}" fill="#edf2f7"/>'
        )
    of_worker: dict[int, list[Chunk]] = {worker: [] for worker in workers}
    for chunk in record.chunks:
        if chunk.worker in of_worker:
            of_worker[chunk.worker].append(chunk)
    lines += [line for worker in workers for line in _boxes(of_worker[worker], rows[worker], scale)]
    lines += _axis(span, scale, height - 30)
    if len(record.labels) > ROWS_MAX:
        lines.append(f'<text x="8" y="20">{ROWS_MAX} of {len(record.labels)} workers</text>')
    lines.append("</svg>")
    return "\n".join(lines) + "\n"


def _title(record: Record) -> str:
    return (
        f"{record.technique}: {record.n} iterations in {record.handed_out} chunks on {len(record.labels)} workers, "
        f"{record.makespan:.3g} s, max / mean {record.imbalance:.3f}"
    )


def _boxes(chunks: list[Chunk], y: int, scale: float) -> list[str]:
    found: list[str] = []
    drawn_to = 0.0
    for at, chunk in enumerate(chunks):
        start, end = chunk.granted * scale, chunk.ended * scale
        if end - drawn_to < 0.5 and chunk.outcome == DONE:
            continue
        left = max(start, drawn_to) if end - start < 0.5 else start
        drawn_to = end
        colour = _COLOURS[at % 2] if chunk.outcome == DONE else _ENDED
        found.append(
            f'<rect x="{_LEFT + left:.1f}" y="{y}" width="{max(end - left, 0.5):.1f}" height="{_ROW}" '
            f'fill="{colour}"><title>{_said(chunk)}</title></rect>'
        )
    return found


def _said(chunk: Chunk) -> str:
    size = chunk.stop - chunk.start
    again = f", attempt {chunk.attempt}" if chunk.attempt > 1 else ""
    return (
        f"{chunk.start} to {chunk.stop - 1} ({size}), {chunk.granted:.3f} to {chunk.ended:.3f} s, "
        f"{chunk.outcome}{again}"
    )


def _axis(span: float, scale: float, y: int) -> list[str]:
    return [
        f'<text x="{_LEFT + part * span * scale:.1f}" y="{y + 18}" text-anchor="middle" fill="#4a5568">'
        f"{part * span:.3g} s</text>"
        for part in (0, 0.25, 0.5, 0.75, 1)
    ]
