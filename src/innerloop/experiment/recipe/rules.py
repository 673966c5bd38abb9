"""Rules between settings: each a small function that returns a sentence where it is broken, else None."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, TypeAlias

from pydantic import BaseModel, ValidationInfo, model_validator

from innerloop.core.errors import did_you_mean
from innerloop.core.paths import user_path
from innerloop.learners.entry import KINDS
from innerloop.learners.table import LEARNERS, depends_on_order, entry_of, estimated_rates, reads

if TYPE_CHECKING:
    from innerloop.experiment.recipe.schema import Recipe


def own_setting_problems(method: str, given: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with a learner's own settings."""
    known = entry_of(method).settings
    if method not in LEARNERS and not known:  # a learner of one's own: its factory says what it takes
        return
    for name, value in given.items():
        where = f"inner.settings.{name}"
        if not known:
            yield f"{where}: inner.method={method} has no settings of its own: leave it out."
        elif name not in known:
            hint = did_you_mean(name, known)
            yield f"{where} is no setting of inner.method={method}{hint}: there are {', '.join(known)}."
        elif not _is_a(value, known[name].kind):
            yield f"{where} must be {KINDS[known[name].kind]}, not {value!r}."


def _is_a(value: Any, kind: type) -> bool:
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, (int, float) if kind is float else kind)


Rules: TypeAlias = tuple[Callable[[Any], str | Iterable[str] | None], ...]
"""Functions of the settings: a sentence, or several, where they are broken."""

WITHOUT_RULES = {"rules": False}
"""Validation context in which rules are not asked: the grammar asks them of the good settings itself."""

PICTURES = ("few-shot", "supervised")
"""Families of tasks that are made of pictures."""

WITH_WEIGHTS = ("efficientnet-lite", "hf:", "timm:")
"""Beginnings of ``model.kind`` for networks that others trained, and that say how pictures must look."""

INIT = "pretrained"
"""The value of ``model.init`` that means published weights."""

NOTHING = "none"
"""The value of ``outer.objective`` of runs that train nothing."""


class Ruled(BaseModel):
    """A model with rules between its settings, which hold for whoever makes one."""

    RULES: ClassVar[Rules] = ()

    @model_validator(mode="after")
    def _keeps_its_rules(self, info: ValidationInfo) -> Self:
        if info.context == WITHOUT_RULES:
            return self
        if lines := broken(self):
            raise ValueError("\n".join(lines))
        return self


def broken(model: Ruled) -> list[str]:
    """What the rules say that this model breaks, a line each."""
    said = [rule(model) or () for rule in model.RULES]
    texts = [text for each in said for text in ([each] if isinstance(each, str) else each)]
    return [line for text in texts for line in text.splitlines()]


def _tasks_fit(recipe: Recipe) -> Iterator[str]:
    tasks, wanted, objective = recipe.tasks, recipe.eval, recipe.outer.objective
    if wanted.head != "learner" and tasks.family not in PICTURES:
        yield (
            f"eval.head={wanted.head} classifies pictures, and tasks.family={tasks.family} has none: leave "
            "it out, or set tasks.family=few-shot."
        )
    if any(not 0 < C < float("inf") for C in wanted.C_grid):
        yield "eval.C_grid needs numbers above 0, such as [0.1, 1, 10]."
    elif wanted.head == "finetune" and (wanted.C_grid or wanted.ensemble):
        yield (
            "eval.C_grid and eval.ensemble are for heads on features: leave them out with eval.head=finetune."
        )
    if any(width < 1 for width in recipe.model.hidden):
        yield "model.hidden needs widths of at least 1, such as [40, 40]."
    if recipe.inner.checkpoint and recipe.run.compile == "full":
        yield "inner.checkpoint=true recomputes steps, which run.compile=full cannot: use run.compile=off."
    if tasks.family == "supervised" and objective != "erm":
        yield (
            "tasks.family=supervised gives minibatches without support and query sets, and "
            f"outer.objective={objective} needs tasks: set outer.objective=erm, or tasks.family=few-shot."
        )
    if objective == "multitask" and tasks.n_tasks is None and tasks.family != "few-shot":
        yield "outer.objective=multitask keeps one head per task: set tasks.n_tasks, for example 100."


def _losses_and_rates_fit(recipe: Recipe) -> Iterator[str]:
    inner, outer, layer = recipe.inner, recipe.outer, recipe.model.last_layer
    loss = outer.loss or inner.loss
    classes = loss.startswith("cross-entropy")
    if outer.objective == "multitask" and outer.heads == "released" and not classes:
        yield (
            f"outer.heads=released keeps a row per class, and the loss {loss} has no classes: set "
            "outer.heads=independent."
        )
    if outer.teacher is not None and outer.objective == "erm" and not classes:
        yield f"outer.teacher teaches classes, and the loss {loss} has none: set outer.loss=cross-entropy."
    if layer != "linear" and (inner.lr == "auto" or inner.online != "off"):
        asked = "inner.lr=auto" if inner.lr == "auto" else f"inner.online={inner.online}"
        yield (
            f"{asked} estimates a rate from the features as they are, and model.last_layer={layer} reads "
            "them at length one: give inner.lr a number and leave inner.online off."
        )
    if inner.lr == "auto" and recipe.tasks.family == "supervised":
        yield "inner.lr=auto looks at training tasks, and tasks.family=supervised has none: give a number."
    milestones, factors = outer.milestones, outer.factors
    if factors and len(factors) != len(milestones):
        yield (
            f"outer.factors has {len(factors)} shares of the rate and outer.milestones {len(milestones)} "
            "places: give one share for each place."
        )
    elif any(not share > 0 for share in factors):
        yield "outer.factors are shares of outer.lr above 0, such as [0.06, 0.012, 0.0024]."
    elif factors and sorted(milestones) != list(milestones):
        yield "outer.milestones must rise where outer.factors are given, such as [0.33, 0.67, 0.83]."
    if recipe.eval.label_orders != 1 and not classes:
        yield f"eval.label_orders is for tasks with labels, and the loss is {loss}: leave it out."
    envelope = entry_of(inner.method).differentiated == "envelope" and outer.objective == "episodic"
    if envelope and loss != inner.loss:
        yield (
            f"inner.method={inner.method} trains on the minimum of its inner problem, which is of "
            f"inner.loss={inner.loss}, and would ignore outer.loss={loss}: leave out outer.loss, or set "
            "both to the same."
        )


def _hard_tasks_can_be_weighed(recipe: Recipe) -> str | None:
    mixture = recipe.tasks.mixture
    if recipe.outer.hard_weight == 1 or recipe.tasks.family != "few-shot":
        return None
    if recipe.outer.batch == 1:
        return (
            "outer.hard_weight weighs the tasks of a batch against each other, and outer.batch=1 has one: "
            "raise outer.batch, or set tasks.hard_share."
        )
    if not mixture or {kind.hard for kind in mixture} == {True, False}:
        return None
    return (
        "outer.hard_weight weighs hard tasks against others, and the kinds of tasks.mixture are "
        f"{'all' if mixture[0].hard else 'none of them'} hard: set hard=true for some of them."
    )


def _learner_fits(recipe: Recipe) -> Iterator[str]:
    inner, reptile = recipe.inner, recipe.outer.objective == "reptile"
    method, entry = inner.method, entry_of(inner.method)
    if inner.online != "off" and inner.optimiser != "sgd":
        yield "inner.online follows steps of plain gradients: set inner.optimiser=sgd, or inner.online=off."
    elif inner.online != "off" and inner.head_start != "learned":
        yield "inner.online starts from a learned last layer: leave inner.head_start out."
    elif inner.online != "off" and (inner.truncate is not None or inner.checkpoint):
        yield "inner.online differentiates through all steps: leave inner.truncate and inner.checkpoint out."
    if inner.lr == "auto" and method not in estimated_rates():
        yield f"inner.method={method} has no inner rate that can be estimated: set a number for inner.lr."
    if reptile and (entry.adapts != "all" or entry.learns_rates):
        yield "outer.objective=reptile moves all parameters: set inner.method=maml."
    if reptile and inner.head_start != "learned":
        yield "outer.objective=reptile moves all parameters: leave inner.head_start out."
    yield from own_setting_problems(method, inner.settings)


def _nothing_is_trained(recipe: Recipe) -> Iterator[str]:
    kind, head, trains = recipe.model.kind, recipe.eval.head, "outer.objective=none trains nothing"
    if recipe.outer.objective != NOTHING:
        return
    if not kind.startswith(WITH_WEIGHTS):
        yield (
            f"{trains}, and model.kind={kind} comes without weights: set model.kind="
            "efficientnet-lite0, timm:NAME or hf:FOLDER, or judge a run with `innerloop eval RUN`."
        )
    if recipe.tasks.family != "few-shot":
        yield f"{trains} and judges pictures: set tasks.family=few-shot."
    if head in ("learner", "finetune"):
        yield f"{trains} and fits heads on features, which eval.head={head} does not: set logistic."
    if recipe.eval.copies:
        yield f"{trains} and computes features of pictures once: leave eval.copies at 0."
    if recipe.model.init not in (None, INIT):
        yield f"{trains} and takes the weights that come with {kind}: leave model.init out."
    if recipe.run.ranks > 1:
        yield f"{trains}, and one process judges: leave run.ranks at 1."


RECIPE_RULES: Rules = (
    _tasks_fit,
    _losses_and_rates_fit,
    _hard_tasks_can_be_weighed,
    _learner_fits,
    _nothing_is_trained,
)


# ---- what was typed and is not used this time: told, not refused ----


class When(NamedTuple):
    """A condition under which a setting is used."""

    words: str
    holds: Callable[..., bool]


Readers: TypeAlias = Mapping[str, tuple[When, ...]]
"""Settings by key, with all conditions that must hold; a setting that is not named is always used."""


def unread_keys(readers: Readers, keys: Iterable[str], *about: Any) -> dict[str, str]:
    """Of some settings those that nothing reads, with what they are for (the first condition that fails)."""
    failed = {key: [when.words for when in readers.get(key, ()) if not when.holds(*about)] for key in keys}
    return {key: words[0] for key, words in failed.items() if words}


def has_hard_tasks(recipe: Recipe) -> bool:
    """Whether training draws tasks of hard groups apart from others."""
    tasks = recipe.tasks
    if tasks.family != "few-shot" or tasks.mixture:
        return False
    return tasks.hard_share is not None or recipe.outer.hard_weight != 1


def _is_learner_judged(recipe: Recipe) -> bool:
    return recipe.eval.head == "learner"


_FOLDER = When("a folder of pictures", lambda r: user_path(r.data.name).is_dir())
_ONE_KIND = When("tasks without a tasks.mixture", lambda r: not r.tasks.mixture)
_HARD = (_ONE_KIND, When("training with tasks.hard_share or outer.hard_weight", has_hard_tasks))
_UNNAMED = When("training without tasks.hard_groups", lambda r: not r.tasks.hard_groups)
_NO_ENSEMBLE = When("heads without eval.ensemble", lambda r: not r.eval.ensemble)
_LEARNER = When(
    "learners, and here eval.head judges features",
    lambda r: r.outer.objective in ("episodic", "reptile") or _is_learner_judged(r),
)
_LEARNER_JUDGED = When("eval.head=learner", _is_learner_judged)
_THROUGH = When(
    "training that differentiates through inner steps",
    lambda r: r.outer.objective == "episodic" and entry_of(r.inner.method).differentiated == "through",
)
_QUERIES = When(
    "learners that are judged on queries in training",
    lambda r: r.outer.objective != "episodic" or entry_of(r.inner.method).differentiated != "envelope",
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
_ORDERED = When(
    "learners whose last layer starts with a row per label",
    lambda r: depends_on_order(r.inner.method) and r.inner.head_start not in ("one-vector", "zero"),
)
_TRAINED = When("networks that are trained", lambda r: r.outer.objective != "none")
_NO_SCALE = When(
    "networks without a scale of their own",
    lambda r: not r.model.kind.startswith(("efficientnet-lite", "hf:")),
)
_TEACHER = When("training with an outer.teacher", lambda r: r.outer.teacher is not None)
_LAST_LAYER = When(
    "training and judging that use the network's own last layer",
    lambda r: (
        r.outer.objective in ("erm", "multitask") or r.inner.method == "none" or reads(r.inner.method, "loss")
    ),
)

_SHAPE = ("ways", "shots", "queries")
_NONE_IN_EVAL = {
    f"tasks.{name}": When(
        f"judging where eval.{name} is none", lambda r, name=name: getattr(r.eval, name) is None
    )
    for name in _SHAPE
}

UNUSED: Readers = {
    "data.splits": (When("data without a data.split_file", lambda r: r.data.split_file is None),),
    "data.standardise": (_NO_SCALE,),
    **dict.fromkeys(("data.on_bad", "data.leave_out"), (_FOLDER,)),
    **{f"tasks.{name}": (_ONE_KIND,) for name in (*_SHAPE, "choice", "groups", "hard_share")},
    **{f"eval.{name}": (_ONE_KIND,) for name in _SHAPE},
    "tasks.hard_groups": _HARD,
    "tasks.hardest": (*_HARD, _UNNAMED),
    "tasks.resample": (When("a given tasks.n_tasks", lambda r: r.tasks.n_tasks is not None),),
    "model.norm": (_TRAINED,),
    # the other networks refuse it when they are built
    **dict.fromkeys(("model.last_layer", "model.cosine_scale"), (_LAST_LAYER,)),
    **{f"inner.{name}": (_LEARNER,) for name in ("method", "lr", "optimiser", "momentum", "head_start")},
    "inner.steps": (_LEARNER, _INNER_STEPS),
    "inner.test_steps": (_LEARNER_JUDGED,),
    "inner.loss": (_INNER_LOSS,),
    **dict.fromkeys(("inner.truncate", "inner.checkpoint"), (_THROUGH,)),
    "inner.split": (_QUERIES,),
    **{f"outer.{name}": (_TEACHER,) for name in ("label_weight", "teacher_weight", "temperature")},
    "outer.factor": (_ONE_FACTOR,),
    "outer.label_smoothing": (_LABELS, _QUERIES),
    **dict.fromkeys(("eval.C", "eval.normalise_features"), (_NO_ENSEMBLE,)),
    "eval.label_orders": (_ORDERED,),
    "eval.curve": (
        When("learners that take inner steps", lambda r: reads(r.inner.method, "test_steps")),
        _LEARNER_JUDGED,
    ),
}
"""Settings that a recipe has, and that other settings may make idle."""

_FIXED_RATE = When(
    "learners whose rate is not learned",
    lambda r: not entry_of(r.inner.method).learns_rates and r.inner.online not in ("h3", "h15"),
)
_ONLY_TRAINING = (
    *("data.augment", "data.auto", "tasks.minibatch", "tasks.n_tasks", "tasks.resample", "model.init"),
    *("tasks.hard_share", "tasks.hard_groups", "tasks.hardest"),
    *("inner.truncate", "inner.checkpoint", "inner.split"),
    *("eval.every", "eval.patience", "eval.validation_episodes"),
    *("run.seed", "run.bfloat16", "run.compile", "run.log_every", "run.save_every", "run.folder"),
    *("run.tensorboard", "run.track", "run.project"),
)
JUDGED: Readers = {
    **{key: (when,) for key, when in _NONE_IN_EVAL.items()},
    "inner.lr": (_LEARNER_JUDGED, _FIXED_RATE),
    **{f"inner.{name}": (_LEARNER_JUDGED,) for name in ("head_start", "method", "optimiser", "momentum")},
    "inner.steps": (When("judging where inner.test_steps is none", lambda r: r.inner.test_steps is None),),
}
"""What judging a finished run uses: conditions besides those of :data:`UNUSED`."""


def unread(recipe: Recipe, typed: Iterable[str], *, judging: bool = False) -> list[str]:
    """Sentences on settings that were typed and that this recipe does not use, or does not have."""
    from innerloop.experiment.recipe.schema import absent

    keys = list(dict.fromkeys(typed))
    purposes = {key: words for key, (_, words) in absent(recipe, keys).items()}
    purposes = unread_keys(UNUSED, keys, recipe) | purposes
    if recipe.outer.objective == "none":  # the run is made and judged, and nothing is trained
        made = [key for key in keys if key not in ("outer.objective", "model.init", "run.seed", "run.folder")]
        purposes = _not_judged(made, recipe) | purposes
    elif judging:
        purposes = _not_judged(keys, recipe) | purposes
    return [f"{key} is not read: it is for {purposes[key]}." for key in keys if key in purposes]


def _not_judged(keys: Iterable[str], recipe: Recipe) -> dict[str, str]:
    def trains(key: str) -> bool:
        return key in _ONLY_TRAINING or (key.startswith("outer.") and key != "outer.loss")

    return unread_keys(JUDGED, keys, recipe) | {key: "training" for key in keys if trains(key)}


def rate_warnings(recipe: Recipe) -> list[str]:
    """What to say of a negative inner rate, which is allowed: AdaptLR H.5 trains and tests with them."""
    inner = recipe.inner
    if not reads(inner.method, "lr") or inner.lr == "auto" or inner.lr >= 0:
        return []
    return [
        f"inner.lr={inner.lr:g} is negative: inner steps climb the loss of the support set, which usually "
        "diverges; leave out the sign unless negative rates are what you study (as AdaptLR H.5 does)."
    ]


def doubts(recipe: Recipe, typed: Collection[str]) -> list[str]:
    """Warnings about settings that were typed: not wrong, but perhaps not meant."""
    return [*unread(recipe, typed), *(rate_warnings(recipe) if "inner.lr" in typed else [])]
