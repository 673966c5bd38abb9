"""Learners turn a support set into a predictor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from innerloop.core.lazy import lazy

if TYPE_CHECKING:
    from innerloop.learners.base import Adapted as Adapted
    from innerloop.learners.base import Learner as Learner
    from innerloop.learners.embedding import embedding_learner as embedding_learner
    from innerloop.learners.entry import Entry as Entry
    from innerloop.learners.entry import Setting as Setting
    from innerloop.learners.fine_tuning import fine_tune as fine_tune
    from innerloop.learners.gradient import anil as anil
    from innerloop.learners.gradient import boil as boil
    from innerloop.learners.gradient import gradient_learner as gradient_learner
    from innerloop.learners.gradient import maml as maml
    from innerloop.learners.gradient import maml_lslr as maml_lslr
    from innerloop.learners.gradient import meta_sgd as meta_sgd
    from innerloop.learners.gradient import non_adaptive as non_adaptive
    from innerloop.learners.heads import logistic_head as logistic_head
    from innerloop.learners.heads import metaoptnet_ridge as metaoptnet_ridge
    from innerloop.learners.heads import metaoptnet_svm as metaoptnet_svm
    from innerloop.learners.heads import r2d2 as r2d2
    from innerloop.learners.kernel import kernel_learner as kernel_learner
    from innerloop.learners.kernel import regression_tasks as regression_tasks
    from innerloop.learners.metric import matching as matching
    from innerloop.learners.metric import protonet as protonet
    from innerloop.learners.objectives.base import Objective as Objective
    from innerloop.learners.objectives.distillation import distilled as distilled
    from innerloop.learners.objectives.distillation import teacher_of as teacher_of
    from innerloop.learners.objectives.episodic import episodic as episodic
    from innerloop.learners.objectives.episodic import erm as erm
    from innerloop.learners.objectives.mixed_precision import Choice as Choice
    from innerloop.learners.objectives.mixed_precision import at_precision as at_precision
    from innerloop.learners.objectives.multitask import multitask as multitask
    from innerloop.learners.objectives.multitask import task_head as task_head
    from innerloop.learners.objectives.reptile import reptile as reptile
    from innerloop.learners.orders import label_averaged as label_averaged
    from innerloop.learners.proximal import imaml as imaml
    from innerloop.learners.proximal import minibatchprox as minibatchprox
    from innerloop.learners.table import LEARNERS as LEARNERS
    from innerloop.learners.updates import UpdateRule as UpdateRule
    from innerloop.learners.updates import adam as adam
    from innerloop.learners.updates import momentum as momentum
    from innerloop.learners.updates import sgd as sgd
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "innerloop.learners.metric": "matching protonet",
            "innerloop.learners.base": "Adapted Learner",
            "innerloop.learners.heads": "logistic_head metaoptnet_ridge metaoptnet_svm r2d2",
            "innerloop.learners.embedding": "embedding_learner",
            "innerloop.learners.entry": "Entry Setting",
            "innerloop.learners.fine_tuning": "fine_tune",
            "innerloop.learners.gradient": "anil boil gradient_learner maml maml_lslr meta_sgd non_adaptive",
            "innerloop.learners.kernel": "kernel_learner regression_tasks",
            "innerloop.learners.objectives.base": "Objective",
            "innerloop.learners.objectives.distillation": "distilled teacher_of",
            "innerloop.learners.objectives.episodic": "episodic erm",
            "innerloop.learners.objectives.mixed_precision": "Choice at_precision",
            "innerloop.learners.objectives.multitask": "multitask task_head",
            "innerloop.learners.objectives.reptile": "reptile",
            "innerloop.learners.orders": "label_averaged",
            "innerloop.learners.proximal": "imaml minibatchprox",
            "innerloop.learners.table": "LEARNERS",
            "innerloop.learners.updates": "UpdateRule adam momentum sgd",
        },
    )
