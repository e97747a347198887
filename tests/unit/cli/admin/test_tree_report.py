"""`esctl tree report`: no share without what it was counted from, and always the random baseline beside it (E-b)."""

from __future__ import annotations

from escli.admin.tree_report import report
from eslurm.v1 import controller_pb2 as pb


def _reply(*predictors: pb.PredictorReport) -> pb.TreeReportReply:
    return pb.TreeReportReply(
        predictors=predictors, broadcasts=12, failed_nodes=7, since_us=1, grouping="balanced", width=16
    )


def test_the_baseline_stands_beside_the_share() -> None:
    share = pb.Share(value=0.817, low=0.796, high=0.836, of=1423)
    text = report(
        _reply(
            pb.PredictorReport(
                name="union", state="on", leaf_share=share, random_leaf_share=0.82, lift=0.817 / 0.82
            )
        )
    )
    line = next(line for line in text.splitlines() if line.startswith("union"))
    assert "81.7% (80-84)" in line
    assert "82.0%" in line
    assert line.endswith("1.00")
    assert "12 broadcasts" in text
    assert "7 failed nodes" in text


def test_what_was_not_counted_is_not_a_number() -> None:
    text = report(_reply(pb.PredictorReport(name="alerts", state="on", predicted_now=3)))
    line = next(line for line in text.splitlines() if line.startswith("alerts"))
    assert line.split() == ["alerts", "on", "3", "-", "-", "-", "-", "-", "-"]


def test_a_predictor_that_is_off_says_why() -> None:
    text = report(_reply(pb.PredictorReport(name="site", state="ValueError: no\ndata")))
    assert "site does not count: ValueError: no\\ndata" in text


def test_measured_widths_are_shown() -> None:
    reply = _reply()
    reply.width = 0
    reply.widths.append(pb.WidthScore(nodes_up_to=4096, width=32, median_us=140_000, samples=9, chosen=True))
    text = report(reply)
    assert "width automatic" in text
    assert any(line.split() == ["<=4096", "32", "140", "ms", "9", "chosen"] for line in text.splitlines())
