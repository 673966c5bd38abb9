"""How sure a head on a few examples may be: what it reaches, how probable it is, what it does not know."""

from innerloop.evaluation.sureness.assured import Sureness as Sureness
from innerloop.evaluation.sureness.assured import sureness_of as sureness_of
from innerloop.evaluation.sureness.calibration import calibration_error as calibration_error
from innerloop.evaluation.sureness.calibration import fitted_temperature as fitted_temperature
from innerloop.evaluation.sureness.copies import copies_of as copies_of
from innerloop.evaluation.sureness.curve import CurvePoint as CurvePoint
from innerloop.evaluation.sureness.curve import learning_curve as learning_curve
from innerloop.evaluation.sureness.expected import Expected as Expected
from innerloop.evaluation.sureness.expected import expected_accuracy as expected_accuracy
from innerloop.evaluation.sureness.heldout import HeldOut as HeldOut
from innerloop.evaluation.sureness.heldout import Way as Way
from innerloop.evaluation.sureness.heldout import hold_out as hold_out
from innerloop.evaluation.sureness.novelty import Novelty as Novelty
from innerloop.evaluation.sureness.novelty import novelty_of as novelty_of
