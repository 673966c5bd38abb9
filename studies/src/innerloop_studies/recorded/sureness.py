"""How right and how sure a pretrained backbone is.

What ``innerloop_studies.measurements.sureness`` has measured.
"""

from __future__ import annotations

from innerloop_studies.measurements import sureness as measure_sureness
from innerloop_studies.recorded.files import required
from innerloop_studies.recorded.text import interval


def sureness(name: str) -> str:
    """The table of one measurement, a line for each set of pictures."""
    return measure_sureness.table(required("measurements", name)["rows"])


def sure(name: str, pictures: str, what: str) -> str:
    """One number with its interval, in per cent, for a line of text."""
    rows = required("measurements", name)["rows"]
    (one,) = (row[what] for title, row in rows.items() if title.startswith(pictures))
    return f"{interval(one, 100)} %"
