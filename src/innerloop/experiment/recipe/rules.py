"""Rules between settings: each a small function that returns a sentence where it is broken, else None."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias

from pydantic import BaseModel, ValidationInfo, model_validator

from innerloop.core.errors import did_you_mean
from innerloop.learners.entry import KINDS, Entry
from innerloop.learners.table import LEARNERS, estimated_rates

if TYPE_CHECKING:
    from innerloop.experiment.recipe.schema import Recipe


def method_problems(inner: Mapping[str, Any], objective: str) -> Iterator[str]:
    """What is wrong with the settings of a learner, one sentence each.

    >>> inner = {"method": "none", "lr": "auto", "online": "off", "head_start": "learned", "settings": {}}
    >>> list(method_problems(inner, "erm"))
    ['inner.method=none has no inner rate: leave inner.lr=auto out.']
    """
    method = inner["method"]
    entry = LEARNERS[method]
    if inner["online"] != "off":
        yield from _online_problems(inner, entry)
    if inner["lr"] == "auto" and method not in estimated_rates():
        yield (
            f"inner.method={method} has no inner rate that can be estimated: set a number for inner.lr."
            if "lr" in entry.reads
            else f"inner.method={method} has no inner rate: leave inner.lr=auto out."
        )
    if objective == "reptile" and (entry.adapts != "all" or entry.learns_rates):
        yield "outer.objective=reptile moves all parameters: set inner.method=maml."
    if objective == "reptile" and inner["head_start"] != "learned":
        yield "outer.objective=reptile moves all parameters: leave inner.head_start out."
    yield from own_setting_problems(method, inner["settings"])


def _online_problems(inner: Mapping[str, Any], entry: Entry) -> Iterator[str]:
    if "online" not in entry.reads or inner["optimiser"] != "sgd":
        those = " or ".join(name for name, each in LEARNERS.items() if "online" in each.reads)
        yield (
            f"inner.online follows the last layer's features: set inner.method={those} and "
            "inner.optimiser=sgd, or inner.online=off."
        )
    elif inner["head_start"] != "learned":
        yield "inner.online starts from a learned last layer: leave inner.head_start out."
    elif inner["truncate"] is not None or inner["checkpoint"]:
        yield "inner.online differentiates through all steps: leave inner.truncate and inner.checkpoint out."


def own_setting_problems(method: str, given: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with a learner's own settings.

    >>> list(own_setting_problems("maml", {"penalty": 1.0}))
    ['inner.settings.penalty: inner.method=maml has no settings of its own: leave it out.']
    """
    known = LEARNERS[method].settings
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


Rules: TypeAlias = tuple[Callable[[Any], str | None], ...]
"""Functions of the settings: a sentence where they are broken, else None."""

WITHOUT_RULES = {"rules": False}
"""Validation context in which rules are not asked: the grammar asks them of the good settings itself."""

PICTURES = ("few-shot", "supervised")
"""Families of tasks that are made of pictures."""

WITH_WEIGHTS = ("efficientnet-lite", "hf:", "timm:")
"""Beginnings of ``model.kind`` for networks that others trained, and that say how pictures must look."""


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
    return [line for rule in model.RULES for line in (rule(model) or "").splitlines()]


def _heads_are_for_pictures(recipe: Recipe) -> str | None:
    family, head = recipe.tasks.family, recipe.eval.head
    if head == "learner" or family in PICTURES:
        return None
    return (
        f"eval.head={head} classifies pictures, and tasks.family={family} has none: leave it out, or set "
        "tasks.family=few-shot."
    )


def _grids_are_of_penalties(recipe: Recipe) -> str | None:
    wanted = recipe.eval
    if any(not 0 < C < float("inf") for C in wanted.C_grid):
        return "eval.C_grid needs numbers above 0, such as [0.1, 1, 10]."
    if wanted.head == "finetune" and (wanted.C_grid or wanted.ensemble):
        return (
            "eval.C_grid and eval.ensemble are for heads on features: leave them out with eval.head=finetune."
        )
    return None


def _widths_are_positive(recipe: Recipe) -> str | None:
    if all(width >= 1 for width in recipe.model.hidden):
        return None
    return "model.hidden needs widths of at least 1, such as [40, 40]."


def _recomputing_cannot_be_compiled(recipe: Recipe) -> str | None:
    if not recipe.inner.checkpoint or recipe.run.compile != "full":
        return None
    return "inner.checkpoint=true recomputes steps, which run.compile=full cannot: use run.compile=off."


def _minibatches_are_for_erm(recipe: Recipe) -> str | None:
    objective = recipe.outer.objective
    if recipe.tasks.family != "supervised" or objective == "erm":
        return None
    return (
        "tasks.family=supervised gives minibatches without support and query sets, and "
        f"outer.objective={objective} needs tasks: set outer.objective=erm, or tasks.family=few-shot."
    )


def _heads_need_a_number_of_tasks(recipe: Recipe) -> str | None:
    tasks = recipe.tasks
    if recipe.outer.objective != "multitask" or tasks.n_tasks is not None or tasks.family == "few-shot":
        return None
    return "outer.objective=multitask keeps one head per task: set tasks.n_tasks, for example 100."


def _rates_are_for_linear_layers(recipe: Recipe) -> str | None:
    inner, layer = recipe.inner, recipe.model.last_layer
    if layer == "linear" or (inner.lr != "auto" and inner.online == "off"):
        return None
    asked = "inner.lr=auto" if inner.lr == "auto" else f"inner.online={inner.online}"
    return (
        f"{asked} estimates a rate from the features as they are, and model.last_layer={layer} reads them at "
        "length one: give inner.lr a number and leave inner.online off."
    )


def _class_rows_need_classes(recipe: Recipe) -> str | None:
    outer, loss = recipe.outer, recipe.outer.loss or recipe.inner.loss
    if outer.objective != "multitask" or outer.heads != "released" or loss.startswith("cross-entropy"):
        return None
    return (
        f"outer.heads=released keeps a row per class, and the loss {loss} has no classes: set "
        "outer.heads=independent."
    )


def _teachers_are_for_classes(recipe: Recipe) -> str | None:
    outer, loss = recipe.outer, recipe.outer.loss or recipe.inner.loss
    if outer.teacher is None or outer.objective != "erm" or loss.startswith("cross-entropy"):
        return None
    return f"outer.teacher teaches classes, and the loss {loss} has none: set outer.loss=cross-entropy."


def _auto_needs_tasks(recipe: Recipe) -> str | None:
    if recipe.inner.lr != "auto" or recipe.tasks.family != "supervised":
        return None
    return "inner.lr=auto looks at training tasks, and tasks.family=supervised has none: give a number."


def _factors_go_with_milestones(recipe: Recipe) -> str | None:
    milestones, factors = recipe.outer.milestones, recipe.outer.factors
    if factors and len(factors) != len(milestones):
        return (
            f"outer.factors has {len(factors)} shares of the rate and outer.milestones {len(milestones)} "
            "places: give one share for each place."
        )
    if any(not share > 0 for share in factors):
        return "outer.factors are shares of outer.lr above 0, such as [0.06, 0.012, 0.0024]."
    if factors and sorted(milestones) != list(milestones):
        return "outer.milestones must rise where outer.factors are given, such as [0.33, 0.67, 0.83]."
    return None


def _orders_are_of_labels(recipe: Recipe) -> str | None:
    loss = recipe.outer.loss or recipe.inner.loss
    if recipe.eval.label_orders == 1 or loss.startswith("cross-entropy"):
        return None
    return f"eval.label_orders is for tasks with labels, and the loss is {loss}: leave it out."


def _an_envelope_is_of_the_inner_loss(recipe: Recipe) -> str | None:
    method, inside, outside = recipe.inner.method, recipe.inner.loss, recipe.outer.loss
    if LEARNERS[method].differentiated != "envelope" or recipe.outer.objective != "episodic":
        return None
    if outside in (None, inside):
        return None
    return (
        f"inner.method={method} trains on the minimum of its inner problem, which is of inner.loss={inside}, "
        f"and would ignore outer.loss={outside}: leave out outer.loss, or set both to the same."
    )


def _weights_need_hard_tasks(recipe: Recipe) -> str | None:
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


def _settings_are_the_learners(recipe: Recipe) -> str | None:
    return "\n".join(method_problems(dict(recipe.inner), recipe.outer.objective)) or None


def _nothing_is_trained(recipe: Recipe) -> str | None:
    kind, head = recipe.model.kind, recipe.eval.head
    if recipe.outer.objective != "none":
        return None
    lines, trains = [], "outer.objective=none trains nothing"
    if not kind.startswith(WITH_WEIGHTS):
        lines.append(
            f"{trains}, and model.kind={kind} comes without weights: set model.kind="
            "efficientnet-lite0, timm:NAME or hf:FOLDER, or judge a run with `innerloop eval RUN`."
        )
    if recipe.tasks.family != "few-shot":
        lines.append(f"{trains} and judges pictures: set tasks.family=few-shot.")
    if head in ("learner", "finetune"):
        lines.append(f"{trains} and fits heads on features, which eval.head={head} does not: set logistic.")
    if recipe.eval.copies:
        lines.append(f"{trains} and computes features of pictures once: leave eval.copies at 0.")
    if recipe.model.init not in (None, "pretrained"):
        lines.append(f"{trains} and takes the weights that come with {kind}: leave model.init out.")
    if recipe.run.ranks > 1:
        lines.append(f"{trains}, and one process judges: leave run.ranks at 1.")
    return "\n".join(lines) or None


RECIPE_RULES: Rules = (
    _heads_are_for_pictures,
    _grids_are_of_penalties,
    _widths_are_positive,
    _recomputing_cannot_be_compiled,
    _minibatches_are_for_erm,
    _heads_need_a_number_of_tasks,
    _class_rows_need_classes,
    _teachers_are_for_classes,
    _rates_are_for_linear_layers,
    _auto_needs_tasks,
    _factors_go_with_milestones,
    _orders_are_of_labels,
    _an_envelope_is_of_the_inner_loss,
    _weights_need_hard_tasks,
    _settings_are_the_learners,
    _nothing_is_trained,
)
