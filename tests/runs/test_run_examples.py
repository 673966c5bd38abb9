"""Known answers of small functions."""

import math

from innerloop.runs.checkpoints import decoded, encoded
from innerloop.runs.progress import pace
from innerloop.runs.tracking import scalars


def test_numbers_that_json_does_not_have():
    kept = {"loss": math.inf, "step": 3}
    assert encoded(kept) == {"loss": {"__float__": "inf"}, "step": 3}
    assert decoded(encoded(kept)) == kept


def test_pace_and_scalars():
    assert pace(12.3, "steps") == "12.3 steps/s"
    assert (pace(0.05, "runs"), pace(0.001, "runs")) == ("3 runs/min", "3.6 runs/h")
    assert scalars({"step": 3, "loss": 0.5, "score": "mse", "improved": True}) == {"loss": 0.5}
