"""Cumulative measures of rounds that a scheduler cut: composed from the conditional curve.

Which rounds carry a label at position k then depends on their confidence, so their prefix acceptance says
nothing of all rounds, and filling the unknown labels with zeros says less. Conditional acceptance on judged
drafts stays valid for a policy that does not look ahead.
"""

from dataclasses import replace

from dspark_calib.metrics.scores import Scores


def compose_cumulative(scores: Scores) -> Scores:
    """Mark the cumulative view as composed."""
    return replace(scores, composed=True)
