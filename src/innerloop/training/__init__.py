"""The one training loop, its state, optimisers and schedules."""

from innerloop.training.fit import Validation as Validation
from innerloop.training.fit import fit as fit
from innerloop.training.optimisers import make_optimiser as make_optimiser
from innerloop.training.reweighted import hard_weights as hard_weights
from innerloop.training.schedules import make_schedule as make_schedule
from innerloop.training.state import TrainState as TrainState
from innerloop.training.state import initial_state as initial_state
