"""Small functions of the room on known answers."""

from innerloop.cli.demo import conclusion
from innerloop.cli.ls import _takes


def test_takes():
    assert (_takes(77.7), _takes(0.2), _takes(None)) == ("1 h 18 min", "12 s", "")


def test_conclusion():
    baseline = {"words": "nearest mean of pixels", "mean": 0.4, "gain": 0.41, "gain_ci95": 0.03}
    lead = {"mean": 0.02, "ci95": 0.01}
    told = {"method": "protonet", "other": {"method": "r2d2"}, "lead": lead, "baselines": [baseline]}
    assert conclusion(told) == (
        "Learnt: protonet, first in the race, is 2.0 ± 1.0 points better than r2d2 after training; it is "
        "41.0 ± 3.0 points better than the best without training (nearest mean of pixels)."
    )
