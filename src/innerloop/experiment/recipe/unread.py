"""Settings of a recipe that its training or judging does not read: one table, and what is said about them.

A typed setting that is not read is warned about, because sweeps over methods share settings; keys of the free
tables ``model.settings`` and ``tasks.settings`` that nothing reads are refused. Importing this file does not
import torch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from innerloop.core.errors import UserError
from innerloop.core.place import user_path
from innerloop.experiment.recipe.flat import Readers, When, unread_keys
from innerloop.experiment.recipe.protocols import has_hard_tasks
from innerloop.experiment.recipe.rules import PICTURES
from innerloop.experiment.recipe.schema import Data, Recipe
from innerloop.learners.table import LEARNERS, depends_on_order, reads


def _by_method(argument: str) -> When:
    return When("learners that take inner steps", lambda r: reads(r.inner.method, argument))


def _one_of(setting: str, *values: str) -> When:
    """Read if a setting has one of these values."""
    section, _, name = setting.partition(".")
    words = f"{setting}={' or '.join(values)}"
    return When(words, lambda r: getattr(getattr(r, section), name) in values)


def _none_in_eval(name: str) -> When:
    return When(f"judging where eval.{name} is none", lambda r: getattr(r.eval, name) is None)


def _is_learner_judged(recipe: Recipe) -> bool:
    return recipe.eval.head == "learner"


_PICTURES = _one_of("tasks.family", *PICTURES)
_FEW_SHOT = _one_of("tasks.family", "few-shot")
_FOLDER = When("a folder of pictures", lambda r: user_path(r.data.name).is_dir())
_DRAWN = When("tasks that are drawn from a family", lambda r: r.tasks.family not in PICTURES)
_ONE_KIND = When(
    "tasks without a tasks.mixture", lambda r: not (r.tasks.mixture and r.tasks.family in PICTURES)
)
_HARD = (_FEW_SHOT, _ONE_KIND, When("training with tasks.hard_share or outer.hard_weight", has_hard_tasks))
_UNNAMED = When("training without tasks.hard_groups", lambda r: not r.tasks.hard_groups)
_MLP = _one_of("model.kind", "mlp")
_CONV4 = _one_of("model.kind", "conv4")
_HEADS = When("heads on frozen features (eval.head)", lambda r: not _is_learner_judged(r))
_NO_ENSEMBLE = When("heads without eval.ensemble", lambda r: not r.eval.ensemble)
_LEARNER = When(
    "learners, and here eval.head judges features",
    lambda r: r.outer.objective in ("episodic", "reptile") or _is_learner_judged(r),
)
_LEARNER_JUDGED = When("eval.head=learner", _is_learner_judged)
_THROUGH = When(
    "training that differentiates through inner steps",
    lambda r: r.outer.objective == "episodic" and LEARNERS[r.inner.method].differentiated == "through",
)
_QUERIES = When(
    "learners that are judged on queries in training",
    lambda r: r.outer.objective != "episodic" or LEARNERS[r.inner.method].differentiated != "envelope",
)
_INNER_STEPS = When(
    "training with inner steps, and inner.test_steps is given for the judging",
    lambda r: r.outer.objective in ("episodic", "reptile") or r.inner.test_steps is None,
)
_INNER_LOSS = When(
    "learners that take inner steps, and outer.loss is given",
    lambda r: r.outer.loss is None or (reads(r.inner.method, "loss") and _LEARNER.holds(r)),
)
_ONE_FACTOR = When(
    "schedules without outer.factors", lambda r: r.outer.schedule == "plateau" or not r.outer.factors
)
_LABELS = When(
    "an outer loss of cross-entropy", lambda r: (r.outer.loss or r.inner.loss).startswith("cross-entropy")
)
_HELD_BY_STEPS = When("learners of MAML's family", lambda r: reads(r.inner.method, "head_start"))
_ORDERED = When(
    "learners whose last layer starts with a row per label",
    lambda r: depends_on_order(r.inner.method) and r.inner.head_start not in ("one-vector", "zero"),
)
_OTHER_NETWORK = When("networks of pictures and your own", lambda r: r.model.kind != "mlp")
_TRAINED = When("networks that are trained", lambda r: r.outer.objective != "none")
_NO_SCALE = When(
    "networks without a scale of their own",
    lambda r: not r.model.kind.startswith(("efficientnet-lite", "hf:")),
)

_TEACHER = When(
    "training with an outer.teacher",
    lambda r: r.outer.objective == "erm" and r.outer.teacher is not None,
)
_LAST_LAYER = When(
    "training and judging that use the network's own last layer",
    lambda r: (
        r.outer.objective in ("erm", "multitask") or r.inner.method == "none" or reads(r.inner.method, "loss")
    ),
)

READERS: Readers = {
    **{f"data.{name}": (_PICTURES,) for name in Data.model_fields},
    "data.splits": (_PICTURES, When("data without a data.split_file", lambda r: r.data.split_file is None)),
    "data.on_bad": (_PICTURES, _FOLDER),
    "data.leave_out": (_PICTURES, _FOLDER),
    "data.standardise": (_PICTURES, _NO_SCALE),
    "tasks.ways": (_PICTURES, _ONE_KIND),
    "tasks.shots": (_ONE_KIND,),
    "tasks.queries": (_ONE_KIND,),
    "tasks.choice": (_PICTURES, _ONE_KIND),
    "tasks.groups": (_PICTURES, _ONE_KIND),
    "tasks.balanced": (_PICTURES,),
    "tasks.mixture": (_PICTURES,),
    "tasks.hard_share": (_FEW_SHOT, _ONE_KIND),
    "tasks.hard_groups": _HARD,
    "tasks.hardest": (*_HARD, _UNNAMED),
    "tasks.minibatch": (_one_of("tasks.family", "supervised"),),
    "tasks.n_tasks": (_DRAWN,),
    "tasks.resample": (_DRAWN, When("a given tasks.n_tasks", lambda r: r.tasks.n_tasks is not None)),
    "tasks.noise": (_DRAWN,),
    "model.hidden": (_MLP,),
    "model.activation": (_MLP,),
    "model.parametrisation": (_MLP,),
    "model.weight_var": (_MLP,),
    "model.bias": (_one_of("model.kind", "mlp", "conv4"),),
    "model.filters": (_CONV4,),
    "model.pooling": (_CONV4,),
    "model.norm": (_OTHER_NETWORK, _TRAINED),
    # the other networks refuse it when they are built
    "model.last_layer": (_LAST_LAYER,),
    "model.cosine_scale": (_LAST_LAYER, _one_of("model.last_layer", "cosine")),
    "model.head": (When("timm:NAME, hf:NAME and modules of your own", lambda r: r.model.kind != "mlp"),),
    "inner.method": (_LEARNER,),
    "inner.lr": (_by_method("lr"), _LEARNER),
    "inner.steps": (_by_method("steps"), _LEARNER, _INNER_STEPS),
    "inner.test_steps": (_by_method("test_steps"), _LEARNER_JUDGED),
    "inner.optimiser": (_by_method("optimiser"), _LEARNER),
    "inner.momentum": (_by_method("momentum"), _LEARNER, _one_of("inner.optimiser", "momentum")),
    "inner.loss": (_INNER_LOSS,),
    "inner.truncate": (_by_method("truncate"), _THROUGH),
    "inner.checkpoint": (_by_method("checkpoint"), _THROUGH),
    "inner.head_start": (_HELD_BY_STEPS, _LEARNER),
    "inner.split": (_one_of("outer.objective", "episodic"), _QUERIES),
    "outer.heads": (_one_of("outer.objective", "multitask"),),
    "outer.teacher": (_one_of("outer.objective", "erm"),),
    **{f"outer.{name}": (_TEACHER,) for name in ("label_weight", "teacher_weight", "temperature")},
    "outer.milestones": (_one_of("outer.schedule", "step"),),
    "outer.factor": (_one_of("outer.schedule", "step", "plateau"), _ONE_FACTOR),
    "outer.factors": (_one_of("outer.schedule", "step"),),
    "outer.hard_weight": (_FEW_SHOT,),
    "outer.label_smoothing": (_LABELS, _QUERIES),
    "outer.plateau_patience": (_one_of("outer.schedule", "plateau"),),
    "eval.ways": (_PICTURES, _ONE_KIND),
    "eval.shots": (_ONE_KIND,),
    "eval.queries": (_ONE_KIND,),
    "eval.C": (_one_of("eval.head", "logistic", "svm", "svc", "ridge"), _NO_ENSEMBLE),
    "eval.normalise_features": (_HEADS, _NO_ENSEMBLE),
    "eval.C_grid": (_HEADS,),
    "eval.ensemble": (_HEADS,),
    "eval.copies": (_HEADS,),
    "eval.head_lr": (_one_of("eval.head", "finetune"),),
    "eval.head_steps": (_one_of("eval.head", "finetune"),),
    "eval.label_orders": (_LEARNER_JUDGED, _ORDERED),
    "eval.curve": (_by_method("test_steps"), _LEARNER_JUDGED),
    "eval.baselines": (_PICTURES,),
    "eval.predictions": (_PICTURES,),
    "run.chunk": (_one_of("run.execution", "auto", "vmap"),),
    "run.project": (_one_of("run.track", "trackio", "wandb"),),
}
"""What training and the judging after it read."""

_TRAINING = When("training", lambda _: False)
_FIXED_RATE = When(
    "learners whose rate is not learned",
    lambda r: not LEARNERS[r.inner.method].learns_rates and r.inner.online not in ("h3", "h15"),
)
_ONLY_TRAINING = (
    *("data.augment", "data.auto", "tasks.minibatch", "tasks.n_tasks", "tasks.resample", "model.init"),
    *("tasks.hard_share", "tasks.hard_groups", "tasks.hardest"),
    *("inner.truncate", "inner.checkpoint", "inner.split"),
    *(f"outer.{name}" for name in type(Recipe().outer).model_fields if name != "loss"),
    *("eval.every", "eval.patience", "eval.validation_episodes"),
    *("run.seed", "run.bfloat16", "run.compile", "run.log_every", "run.save_every", "run.folder"),
    *("run.tensorboard", "run.track", "run.project"),
)
JUDGED: Readers = {
    **{f"tasks.{name}": (_none_in_eval(name),) for name in ("ways", "shots", "queries")},
    **dict.fromkeys(_ONLY_TRAINING, (_TRAINING,)),
    "inner.lr": (_LEARNER_JUDGED, _FIXED_RATE),
    "inner.head_start": (_LEARNER_JUDGED,),
    "inner.method": (_LEARNER_JUDGED,),
    "inner.optimiser": (_LEARNER_JUDGED,),
    "inner.momentum": (_LEARNER_JUDGED,),
    "inner.steps": (When("judging where inner.test_steps is none", lambda r: r.inner.test_steps is None),),
}
"""What judging a finished run reads: conditions besides those of :data:`READERS`."""


def unread(recipe: Recipe, typed: Iterable[str], *, judging: bool = False) -> list[str]:
    """Sentences on settings that were typed and that this recipe does not read.

    >>> unread(Recipe(), ["model.hidden", "model.filters"])
    ['model.filters is not read: it is for model.kind=conv4.']
    >>> unread(Recipe(), ["outer.lr"]), unread(Recipe(), ["outer.lr"], judging=True)
    ([], ['outer.lr is not read: it is for training.'])
    """
    keys = list(dict.fromkeys(typed))
    purposes = unread_keys(READERS, keys, recipe)
    if recipe.outer.objective == "none":  # the run is made and judged, and nothing is trained
        made = [key for key in keys if key not in ("outer.objective", "model.init", "run.seed", "run.folder")]
        purposes = unread_keys(JUDGED, made, recipe) | purposes
    elif judging:
        purposes = unread_keys(JUDGED, keys, recipe) | purposes
    return [f"{key} is not read: it is for {purposes[key]}." for key in keys if key in purposes]


def stray_tables(recipe: Recipe) -> dict[str, str]:
    """Keys of the free tables that nothing reads, with a sentence each.

    >>> from innerloop.experiment.recipe.schema import Model
    >>> stray_tables(Recipe(model=Model(settings={"depth": 3})))["model.settings.depth"][:58]
    'model.settings.depth is not read, since model.kind=mlp has'
    """
    kind, family = recipe.model.kind, recipe.tasks.family
    own = {
        "mlp": "model.hidden, model.activation, model.parametrisation, model.bias and model.weight_var",
        "conv4": "model.filters, model.pooling and model.bias",
    }
    told: dict[str, str] = {}
    if kind in own:
        told |= _stray("model.settings", recipe.model.settings, f"model.kind={kind} has {own[kind]} instead")
    if family in PICTURES:
        told |= _stray("tasks.settings", recipe.tasks.settings, f"tasks.family={family} has none of its own")
    return told


def _stray(table: str, settings: Mapping[str, Any], why: str) -> dict[str, str]:
    return {f"{table}.{key}": f"{table}.{key} is not read, since {why}: leave it out." for key in settings}


def refuse_stray_tables(recipe: Recipe) -> None:
    """Refuses a recipe that is to be trained and has settings in its free tables that nothing reads."""
    if told := stray_tables(recipe):
        raise UserError("\n".join(told.values()))


def rate_warning(recipe: Recipe) -> str | None:
    """What to say of a negative inner rate before it is used; None where there is none.

    Negative rates are allowed: AdaptLR H.5 trains and tests with them.
    """
    inner = recipe.inner
    if not reads(inner.method, "lr") or inner.lr == "auto" or inner.lr >= 0:
        return None
    return (
        f"inner.lr={inner.lr:g} is negative: inner steps climb the loss of the support set, which usually "
        "diverges; leave out the sign unless negative rates are what you study (as AdaptLR H.5 does)."
    )


def doubts(recipe: Recipe, typed: Collection[str]) -> list[str]:
    """Warnings about settings that were typed: not wrong, but perhaps not meant."""
    rate = rate_warning(recipe) if "inner.lr" in typed else None
    return [*unread(recipe, typed), *([rate] if rate else [])]
