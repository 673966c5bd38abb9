"""Which tasks a recipe asks for, which evaluation of a run counts first, what another one did differently."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from innerloop.core.errors import UserError
from innerloop.core.formatting import score_text
from innerloop.evaluation.episodes import FEW_SHOT, Episodes, TaskKind
from innerloop.experiment.recipe.problems import known_settings
from innerloop.experiment.recipe.rules import has_hard_tasks as has_hard_tasks
from innerloop.experiment.recipe.schema import KindSettings, Recipe
from innerloop.learners.table import LEARNERS, takes_steps, uses_head

IMAGE_FAMILIES = ("few-shot", "supervised")
"""Values of ``tasks.family`` whose tasks are drawn from pictures; held-out tasks are few-shot in both."""


def kinds_asked(recipe: Recipe, training: bool) -> list[KindSettings]:
    """The kinds of tasks; in evaluation ``eval.ways``, ``eval.shots`` and ``eval.queries`` come first."""
    tasks, wanted = recipe.tasks, recipe.eval
    if tasks.mixture:
        return list(tasks.mixture)
    return [
        KindSettings(
            ways=tasks.ways if training else wanted.ways or tasks.ways,
            shots=tasks.shots if training else wanted.shots or tasks.shots,
            queries=tasks.queries if training else wanted.queries or tasks.queries,
            choice=tasks.choice,
            groups=tasks.groups,
        )
    ]


def refuse_mixed_ways(recipe: Recipe, training: bool) -> None:
    """Refuses a mixture of unequal ways where the network's own last layer predicts."""
    tasks, method = recipe.tasks, recipe.inner.method
    ways = sorted({kind.ways for kind in tasks.mixture})
    if tasks.family not in IMAGE_FAMILIES or len(ways) < 2 or not uses_head(method):
        return
    by_rows = training and tasks.family == FEW_SHOT and recipe.outer.objective != "multitask"
    if not by_rows and recipe.eval.head != "learner":
        return
    listed = f"{', '.join(map(str, ways[:-1]))} and {ways[-1]}"
    free = ", ".join(name for name, entry in LEARNERS.items() if entry.own_head)
    heads = "" if by_rows else ", or fit a head to every task with eval.head=logistic"
    raise UserError(
        f"inner.method={method} predicts with the network's last layer, which fixes the ways, and the kinds "
        f"of tasks.mixture have {listed}: give all kinds the same ways, or set inner.method to a learner "
        f"that makes its own head ({free}){heads}."
    )


def pictures_asked(recipe: Recipe, split: str, pictures: str, grouping: str | None) -> Episodes:
    """The held-out episodes of a recipe whose tasks are drawn from pictures."""
    kinds = tuple(
        TaskKind(kind.shots, kind.queries, kind.ways, kind.choice, tuple(kind.groups), kind.share)
        for kind in kinds_asked(recipe, training=False)
    )
    return Episodes(
        FEW_SHOT,
        kinds,
        _count(recipe, split),
        recipe.eval.seed,
        split,
        pictures=pictures,
        grouping=grouping if any(kind.grouped for kind in kinds) else None,
        rotations=recipe.data.rotations,
        balanced=recipe.tasks.balanced,
    )


def shapes_asked(recipe: Recipe) -> dict[str, Any]:
    """Ways, shots and queries of the tasks that are judged; of a mixture, lists over its kinds."""
    tasks, wanted = recipe.tasks, recipe.eval
    if tasks.family not in IMAGE_FAMILIES:
        return {"shots": wanted.shots or tasks.shots, "queries": wanted.queries or tasks.queries}
    kinds = kinds_asked(recipe, training=False)
    shapes = {name: [getattr(kind, name) for kind in kinds] for name in ("ways", "shots", "queries")}
    if len(kinds) == 1:
        return {name: values[0] for name, values in shapes.items()}
    return {**shapes, "shares": [kind.share for kind in kinds]}


def family_asked(recipe: Recipe, split: str, family: str, settings: Mapping[str, Any]) -> Episodes:
    """The held-out episodes of a recipe whose tasks come from a family of functions."""
    shots = recipe.eval.shots or recipe.tasks.shots
    queries = recipe.eval.queries or recipe.tasks.queries
    return Episodes(
        family,
        (TaskKind(shots, queries),),
        _count(recipe, split),
        recipe.eval.seed,
        split,
        noise=recipe.tasks.noise,
        settings=tuple(settings.items()),
    )


def _count(recipe: Recipe, split: str) -> int:
    if split not in ("test", "validation"):
        raise ValueError(f"held-out episodes are of the split test or validation, not of '{split}'.")
    return recipe.eval.episodes if split == "test" else recipe.eval.validation_episodes


CHANGED = "changed"
"""Entry of an evaluation: settings that were given to it and are not the run's own."""

_NO_MATTER = (
    *(
        "name",
        "description",
        "outer.",
        "run.",
        "data.augment",
        "tasks.n_tasks",
        "tasks.resample",
        "tasks.hard",
    ),
    *("eval.curve", "eval.every", "eval.patience", "eval.predictions", "eval.validation_episodes"),
)
_SEEN = {"yes": "classes seen in pretraining", "perhaps": "classes perhaps seen in pretraining"}
"""What tables say of weights that others had trained on what they are judged on."""
_BUT = ("outer.loss", "run.dtype", "run.bfloat16")


def changed_settings(recipe: Mapping[str, Any], trained: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of an evaluation that are not those of the training and may change its result."""
    ours, theirs, defaults = _flat(recipe), _flat(trained), _defaults()
    return {
        key: ours.get(key)
        for key in {**theirs, **ours}
        if (key in ours or key not in defaults)  # else the evaluation has no such setting
        and ours.get(key) != theirs.get(key, defaults.get(key))
        and (key in _BUT or not key.startswith(_NO_MATTER))
    }


def own_evaluation(
    recipe: Mapping[str, Any], evaluations: Sequence[dict[str, Any]]
) -> tuple[dict[str, Any] | None, bool]:
    """The newest evaluation by the recipe's protocol, else the oldest; and whether it is by that one."""
    own = [evaluation for evaluation in evaluations if is_own(recipe, evaluation)]
    wanted = (_flat(recipe).get("eval.weights") or "best") + " "
    best = [each for each in own if str((each.get("protocol") or {}).get("weights", "")).startswith(wanted)]
    if own:
        return (best or own)[-1], True
    return (evaluations[0], False) if evaluations else (None, False)


def is_own(recipe: Mapping[str, Any], evaluation: Mapping[str, Any]) -> bool:
    """Whether an evaluation is by the recipe's own protocol."""
    changed = evaluation.get(CHANGED)
    if isinstance(changed, Mapping):
        return not changed
    protocol = evaluation.get("protocol")  # a file of an earlier version: its protocol has to do
    told = protocol if isinstance(protocol, Mapping) else {}
    return all(told[key] == value for key, value in expected_protocol(recipe).items() if key in told) and (
        ("head" in told) == (_flat(recipe).get("eval.head", "learner") != "learner") or not told
    )


def expected_protocol(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """What the protocol of a recipe's own evaluation says, as far as the recipe tells it."""
    flat = {**_defaults(), **_flat(recipe)}
    steps = flat["inner.steps"] if flat["inner.test_steps"] is None else flat["inner.test_steps"]
    adapts = takes_steps(flat["inner.method"])
    protocol = {
        "tasks": flat["tasks.family"],
        "data": flat["data.name"],
        **{name: flat[f"eval.{name}"] or flat[f"tasks.{name}"] for name in ("ways", "shots", "queries")},
        "episodes": flat["eval.episodes"],
        "seed": flat["eval.seed"],
    }
    if flat["tasks.mixture"]:
        protocol = {key: value for key, value in protocol.items() if key not in ("ways", "shots", "queries")}
    if flat["eval.head"] == "learner":
        protocol |= {"method": flat["inner.method"], "inner_steps": steps if adapts else 0}
        return protocol if flat["inner.lr"] == "auto" else {**protocol, "inner_lr": flat["inner.lr"]}
    settings = {"C": "C", "normalise": "normalise_features", "copies": "copies"}
    settings |= {"lr": "head_lr", "steps": "head_steps", "head": "head"}
    return protocol | {key: flat[f"eval.{name}"] for key, name in settings.items()}


def brief(evaluation: Mapping[str, Any]) -> str:
    """How a number came about, in a few words: method or head, shots, data."""
    told = evaluation.get("protocol")
    if not isinstance(told, Mapping) or not told:
        return ""
    words = [f"{told['head']} head" if "head" in told else str(told.get("method", ""))]
    if told.get("ensemble"):
        words = [f"ensemble of {told['head']} heads"]
    if told.get("inner_steps"):
        words.append(f"{told['inner_steps']} inner step{'' if told['inner_steps'] == 1 else 's'}")
    if "label_orders" in told:
        words.append(f"mean of {told['label_orders']} label orders")
    if "ways" in told:
        words.append(f"{_span(told['ways'])}-way {_span(told.get('shots'))}-shot")
    elif "shots" in told:
        words.append(f"{told['shots']} shots")
    words.append(Path(str(told["data"])).name if "data" in told else str(told.get("tasks", "")))
    words.append(_SEEN.get(str(told.get("seen", "")), ""))
    words.append("transductive" if str(told.get("kind", "")).startswith("transductive") else "")
    return ", ".join(word for word in words if word)


def _span(values: Any) -> str:
    """A number; of the numbers of a mixture, the smallest and the largest."""
    if not (isinstance(values, list) and values and all(isinstance(value, int) for value in values)):
        return str(values)
    least, most = min(values), max(values)
    return str(least) if least == most else f"{least} to {most}"


def evaluation_line(evaluation: Mapping[str, Any]) -> str:
    """One number with its interval and its protocol."""
    protocol = evaluation.get("protocol") or {}
    parts = ["95 % CI", f"{evaluation.get('episodes', '?')} tasks"]
    parts += [brief(evaluation)] if protocol else []
    parts += [f"norm={protocol['norm']}"] if protocol.get("norm") not in (None, "none") else []
    parts += [f"weights: {protocol['weights']}"] if "weights" in protocol else []
    lost = evaluation.get("unconverged_heads")
    parts += [f"{lost} heads not solved to 1e-6: try eval.normalise_features=true"] if lost else []
    score = score_text(evaluation.get("score") or "score", evaluation["mean"], evaluation.get("ci95"))
    return f"{score} ({', '.join(parts)})"


def grid_lines(evaluation: Mapping[str, Any]) -> list[str]:
    """A line for every setting of a head that was judged beside, and for the mean of their probabilities."""
    rows = evaluation.get("grid") or []
    named = [
        (f"C={row['C']:g}, {'unit length' if row['normalise'] else 'as they come'}", row) for row in rows
    ]
    named += [("mean of probabilities", evaluation["ensemble"])] if rows else []
    told = [
        score_text("accuracy", row["accuracy"], row["ci95"]).removeprefix("accuracy ") for _, row in named
    ]
    return [f"  {name:<21} {said:>14}" for (name, _), said in zip(named, told, strict=True)]


def baselines_line(evaluation: Mapping[str, Any]) -> str:
    """What needs no training, beside a result on pictures; nothing where it was not judged."""
    rows = evaluation.get("baselines") or []
    if not rows:
        return ""
    told = [score_text("accuracy", row["mean"], row["ci95"]).removeprefix("accuracy ") for row in rows]
    listed = ", ".join(f"{row['words']} {said}" for row, said in zip(rows, told, strict=True))
    text = f"without training, on the first {rows[0]['episodes']} of these tasks: {listed}"
    best = max(rows, key=lambda row: row["mean"])
    gain, half = best["gain"], best["gain_ci95"]
    if gain is None or half is None or not math.isfinite(half) or gain - half > 0:
        return text
    beaten = "better than" if gain + half < 0 else "as good as"
    whose = "pretrained" if "backbone" in (evaluation.get("protocol") or {}) else "trained"
    return f"{text}. The {best['words']} is {beaten} the {whose} network"


def _flat(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        if isinstance(value, Mapping) and value:
            flat |= _flat(value, f"{prefix}{key}.")
        elif not isinstance(value, Mapping):
            flat[f"{prefix}{key}"] = value
    return flat


@cache
def _defaults() -> dict[str, Any]:
    """Every setting's default, whatever the method, the network and the family."""
    return {key: field.default for key, field in known_settings().items() if field.default != {}}
