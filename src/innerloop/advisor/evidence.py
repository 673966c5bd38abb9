"""How often a short race was right where it was tried, for sentences of the advice.

The numbers are those of ``results/reproductions``; tests compare them.
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
