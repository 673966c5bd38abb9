"""innerloop: meta-learning in PyTorch that tells you before you train.

>>> import innerloop
>>> innerloop.maml.__name__
'maml'

Names are loaded when they are first used, so that ``import innerloop`` and the command start at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from innerloop._version import __version__ as __version__
from innerloop.core.lazy import lazy

if TYPE_CHECKING:
    from innerloop.core.errors import UserError as UserError
    from innerloop.core.losses import get_loss as get_loss
    from innerloop.core.random import Draws as Draws
    from innerloop.core.types import Task as Task
    from innerloop.core.types import TaskBatch as TaskBatch
    from innerloop.estimator.head import FewShotHead as FewShotHead
    from innerloop.evaluation.comparison import compare as compare
    from innerloop.evaluation.episodes import Episodes as Episodes
    from innerloop.evaluation.frozen import evaluate_head as evaluate_head
    from innerloop.evaluation.pretrained import evaluate_backbone as evaluate_backbone
    from innerloop.evaluation.protocol import Protocol as Protocol
    from innerloop.evaluation.scores import evaluate as evaluate
    from innerloop.execution import Plan as Plan
    from innerloop.execution import choose_plan as choose_plan
    from innerloop.execution import meta_gradient as meta_gradient
    from innerloop.experiment.experiment import Experiment as Experiment
    from innerloop.experiment.judged import Judged as Judged
    from innerloop.experiment.trained import Run as Run
    from innerloop.experiment.trained import judge_backbone as judge_backbone
    from innerloop.experiment.trained import load as load
    from innerloop.features import Backbone as Backbone
    from innerloop.features import Features as Features
    from innerloop.features import Preprocessing as Preprocessing
    from innerloop.features import extract as extract
    from innerloop.features import open_backbone as open_backbone
    from innerloop.learners import Learner as Learner
    from innerloop.learners import anil as anil
    from innerloop.learners import boil as boil
    from innerloop.learners import maml as maml
    from innerloop.learners import maml_lslr as maml_lslr
    from innerloop.learners import meta_sgd as meta_sgd
    from innerloop.learners import non_adaptive as non_adaptive
    from innerloop.nets import Network as Network
    from innerloop.nets import from_module as from_module
    from innerloop.nets.conv4 import conv4 as conv4
    from innerloop.nets.mlp import mlp as mlp
    from innerloop.objectives import Objective as Objective
    from innerloop.objectives import episodic as episodic
    from innerloop.objectives import erm as erm
    from innerloop.objectives import multitask as multitask
    from innerloop.objectives import reptile as reptile
    from innerloop.tasks import Sampler as Sampler
    from innerloop.tasks import get_family as get_family
    from innerloop.tasks import make_sampler as make_sampler
    from innerloop.training import initial_state as initial_state
    from innerloop.training import make_optimiser as make_optimiser
    from innerloop.training.fit import fit as fit

_HOMES = {
    "innerloop.core.errors": ("UserError",),
    "innerloop.core.losses": ("get_loss",),
    "innerloop.core.random": ("Draws",),
    "innerloop.core.types": ("Task", "TaskBatch"),
    "innerloop.estimator.head": ("FewShotHead",),
    "innerloop.evaluation": (
        *("Episodes", "Protocol", "compare", "evaluate", "evaluate_backbone", "evaluate_head"),
    ),
    "innerloop.execution": ("Plan", "choose_plan", "meta_gradient"),
    "innerloop.experiment.experiment": ("Experiment",),
    "innerloop.experiment.judged": ("Judged",),
    "innerloop.experiment.trained": ("Run", "judge_backbone", "load"),
    "innerloop.features": ("Backbone", "Features", "Preprocessing", "extract", "open_backbone"),
    "innerloop.learners": ("Learner", "anil", "boil", "maml", "maml_lslr", "meta_sgd", "non_adaptive"),
    "innerloop.nets": ("Network", "conv4", "from_module", "mlp"),
    "innerloop.objectives": ("Objective", "episodic", "erm", "multitask", "reptile"),
    "innerloop.tasks": ("Sampler", "get_family", "make_sampler"),
    "innerloop.training": ("fit", "initial_state", "make_optimiser"),
}
__getattr__, __dir__ = lazy(__name__, _HOMES)
