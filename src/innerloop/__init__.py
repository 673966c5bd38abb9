"""innerloop: meta-learning in PyTorch that tells you before you train.

>>> import innerloop as il
>>> il.maml.__name__, il.kernels.mlp_kernel.__name__
('maml', 'mlp_kernel')

What one needs every day is here by its name; everything else is in a room, as ``il.kernels`` and
``il.theory.rate``. Names and rooms are loaded when they are first used, so that ``import innerloop`` and the
command start at once. What is listed here and in the rooms is public, and nothing else is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from innerloop._version import __version__ as __version__
from innerloop.core.lazy import lazy

if TYPE_CHECKING:
    from innerloop import choose as choose
    from innerloop import classify as classify
    from innerloop import core as core
    from innerloop import data as data
    from innerloop import evaluation as evaluation
    from innerloop import experiment as experiment
    from innerloop import kernels as kernels
    from innerloop import learners as learners
    from innerloop import nets as nets
    from innerloop import report as report
    from innerloop import runs as runs
    from innerloop import solvers as solvers
    from innerloop import tasks as tasks
    from innerloop import testing as testing
    from innerloop import theory as theory
    from innerloop import training as training
    from innerloop.choose import Advice as Advice
    from innerloop.choose import RateAdvice as RateAdvice
    from innerloop.choose import advise as advise
    from innerloop.choose import advise_rate as advise_rate
    from innerloop.classify import Backbone as Backbone
    from innerloop.classify import Features as Features
    from innerloop.classify import FewShotClassifier as FewShotClassifier
    from innerloop.classify import FewShotHead as FewShotHead
    from innerloop.classify import Preprocessing as Preprocessing
    from innerloop.classify import evaluate_backbone as evaluate_backbone
    from innerloop.classify import extract as extract
    from innerloop.classify import open_backbone as open_backbone
    from innerloop.core import Draws as Draws
    from innerloop.core import Interval as Interval
    from innerloop.core import NonFiniteError as NonFiniteError
    from innerloop.core import Task as Task
    from innerloop.core import TaskBatch as TaskBatch
    from innerloop.core import Trusted as Trusted
    from innerloop.core import UserError as UserError
    from innerloop.core import get_loss as get_loss
    from innerloop.data import ImageSource as ImageSource
    from innerloop.data import from_arrays as from_arrays
    from innerloop.data import from_dataset as from_dataset
    from innerloop.data import open_source as open_source
    from innerloop.data.glyphs import glyphs as glyphs
    from innerloop.evaluation import Comparison as Comparison
    from innerloop.evaluation import Episodes as Episodes
    from innerloop.evaluation import Evaluation as Evaluation
    from innerloop.evaluation import Protocol as Protocol
    from innerloop.evaluation import compare as compare
    from innerloop.evaluation import evaluate as evaluate
    from innerloop.evaluation import evaluate_features as evaluate_features
    from innerloop.evaluation import evaluate_head as evaluate_head
    from innerloop.evaluation import fit_heads as fit_heads
    from innerloop.experiment import Experiment as Experiment
    from innerloop.experiment import Judged as Judged
    from innerloop.experiment import Recipe as Recipe
    from innerloop.experiment import Run as Run
    from innerloop.experiment import judge_backbone as judge_backbone
    from innerloop.experiment import load as load
    from innerloop.experiment import load_recipe as load_recipe
    from innerloop.experiment import sweep as sweep
    from innerloop.learners import Learner as Learner
    from innerloop.learners import Objective as Objective
    from innerloop.learners import anil as anil
    from innerloop.learners import boil as boil
    from innerloop.learners import distilled as distilled
    from innerloop.learners import episodic as episodic
    from innerloop.learners import erm as erm
    from innerloop.learners import fine_tune as fine_tune
    from innerloop.learners import gradient_learner as gradient_learner
    from innerloop.learners import imaml as imaml
    from innerloop.learners import kernel_learner as kernel_learner
    from innerloop.learners import logistic_head as logistic_head
    from innerloop.learners import maml as maml
    from innerloop.learners import maml_lslr as maml_lslr
    from innerloop.learners import matching as matching
    from innerloop.learners import meta_sgd as meta_sgd
    from innerloop.learners import metaoptnet_ridge as metaoptnet_ridge
    from innerloop.learners import metaoptnet_svm as metaoptnet_svm
    from innerloop.learners import minibatchprox as minibatchprox
    from innerloop.learners import multitask as multitask
    from innerloop.learners import non_adaptive as non_adaptive
    from innerloop.learners import protonet as protonet
    from innerloop.learners import r2d2 as r2d2
    from innerloop.learners import reptile as reptile
    from innerloop.nets import Network as Network
    from innerloop.nets import backbone as backbone
    from innerloop.nets import from_module as from_module
    from innerloop.nets.convolutional import conv4 as conv4
    from innerloop.nets.mlp import mlp as mlp
    from innerloop.nets.resnet12 import resnet12 as resnet12
    from innerloop.nets.wide_resnet import wide_resnet as wide_resnet
    from innerloop.report import write_page as write_page
    from innerloop.tasks import Kind as Kind
    from innerloop.tasks import Sampler as Sampler
    from innerloop.tasks import few_shot_sampler as few_shot_sampler
    from innerloop.tasks import get_family as get_family
    from innerloop.tasks import make_sampler as make_sampler
    from innerloop.tasks import read_table as read_table
    from innerloop.tasks import supervised_sampler as supervised_sampler
    from innerloop.tasks import table_sampler as table_sampler
    from innerloop.training import Plan as Plan
    from innerloop.training import TrainState as TrainState
    from innerloop.training import Validation as Validation
    from innerloop.training import choose_plan as choose_plan
    from innerloop.training import fit as fit
    from innerloop.training import initial_state as initial_state
    from innerloop.training import make_optimiser as make_optimiser
    from innerloop.training import make_schedule as make_schedule
    from innerloop.training import map_tasks as map_tasks
    from innerloop.training import meta_gradient as meta_gradient
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "innerloop.choose": "Advice RateAdvice advise advise_rate",
            "innerloop.classify": (
                "Backbone Features FewShotClassifier FewShotHead Preprocessing evaluate_backbone "
                "extract open_backbone"
            ),
            "innerloop.core": "Draws Interval NonFiniteError Task TaskBatch Trusted UserError get_loss",
            "innerloop.data": "ImageSource from_arrays from_dataset glyphs open_source",
            "innerloop.evaluation": (
                "Comparison Episodes Evaluation Protocol compare evaluate evaluate_features "
                "evaluate_head fit_heads"
            ),
            "innerloop.experiment": "Experiment Judged Recipe Run judge_backbone load load_recipe sweep",
            "innerloop.learners": (
                "Learner Objective anil boil distilled episodic erm fine_tune gradient_learner "
                "imaml kernel_learner logistic_head maml maml_lslr matching meta_sgd "
                "metaoptnet_ridge metaoptnet_svm minibatchprox multitask non_adaptive protonet r2d2 "
                "reptile"
            ),
            "innerloop.nets": "Network backbone conv4 from_module mlp resnet12 wide_resnet",
            "innerloop.report": "write_page",
            "innerloop.tasks": (
                "Kind Sampler few_shot_sampler get_family make_sampler read_table "
                "supervised_sampler table_sampler"
            ),
            "innerloop.training": (
                "Plan TrainState Validation choose_plan fit initial_state make_optimiser make_schedule "
                "map_tasks meta_gradient"
            ),
        },
        rooms=(
            "choose classify core data evaluation experiment kernels learners nets report runs solvers "
            "tasks testing theory training"
        ),
    )
