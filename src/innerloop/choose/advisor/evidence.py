"""How well short races, rankings and scores did where they were tried, for sentences of the advice.

The numbers are those of ``results``; tests compare them.
"""

from __future__ import annotations

RACES = {
    "pictures": (
        "A race of a minute on one core was tried on ten problems: on 8 of 10 its first choice was within a "
        "point of the best method of a race ten times as long (5.2 points below at worst), and 6 of 8 leads "
        "that were more than chance lasted (`innerloop reproduce advice-race`)."
    ),
    "numbers": (
        "A race of 18 seconds on one core was tried on ten problems: on 8 of 10 its first choice had an "
        "error at most a tenth above that of the best method of a race ten times as long (55% above at "
        "worst), and 2 of 3 leads that were more than chance lasted (`innerloop reproduce advice-numbers`)."
    ),
}
"""By what targets are."""

GROUPS = (
    "such a ranking agreed with that of trained networks on groups they had not seen with rank "
    "correlations of 0.68 and 0.70 on Omniglot, 0.61 and 0.43 on CIFAR-100"
)
"""Of hard groups of classes (``innerloop reproduce advice-hardness``)."""

GAIN = (
    "of 30 random environments of linear tasks such a gain was within its interval after training in 25, and "
    "off by 10% at most (`innerloop reproduce advice-landscape`)"
)
"""Of the closed-form gain of linear models."""

SEARCH = (
    "A search for another network is worth starting only if it may train its candidates: on CIFAR-FS and "
    "Omniglot no score of untrained networks ranked 40 random cells beyond chance on both, and a random cell "
    "was 2.0 and 7.5 points below the best of them (`innerloop search --validate`)."
)
"""What ``search --validate`` has shown; the whole table is in docs/scores.md."""
