"""Which evaluation of a run counts first, and what another one did differently. Imports no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from innerloop.core.words import score_text
from innerloop.experiment.recipe.schema import Recipe
from innerloop.learners.table import takes_steps

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
    """Settings of an evaluation that are not those of the training and may change its result.

    >>> changed_settings({"eval": {"shots": 5, "curve": True}}, {"eval": {"shots": 1, "curve": False}})
    {'eval.shots': 5}
    """
    ours, theirs = _flat(recipe), _flat(trained)
    return {
        key: ours.get(key)
        for key in {**theirs, **ours}
        if ours.get(key) != theirs.get(key) and (key in _BUT or not key.startswith(_NO_MATTER))
    }


def own_evaluation(
    recipe: Mapping[str, Any], evaluations: Sequence[dict[str, Any]]
) -> tuple[dict[str, Any] | None, bool]:
    """The evaluation that a run is known by, and whether it is by the recipe's own protocol.

    The newest one by that protocol; where there is none, the oldest by any other.
    """
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
    """How a number came about, in a few words: method or head, shots, data.

    >>> brief({"protocol": {"tasks": "few-shot", "data": "a/leaves", "ways": 5, "shots": 1, "head": "svm"}})
    'svm head, 5-way 1-shot, leaves'
    >>> brief({"protocol": {"tasks": "sine", "shots": 10, "method": "maml", "inner_steps": 5}})
    'maml, 5 inner steps, 10 shots, sine'
    >>> brief({"protocol": {"data": "glyphs", "ways": [5, 3], "shots": [1, 4], "method": "r2d2"}})
    'r2d2, 3 to 5-way 1 to 4-shot, glyphs'
    """
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
    """A line for every setting of a head that was judged beside, and for the mean of their probabilities.

    >>> rows = [{"C": 1.0, "normalise": True, "accuracy": 0.7, "ci95": 0.01}]
    >>> for line in grid_lines({"grid": rows, "ensemble": {"accuracy": 0.71, "ci95": 0.01}}):
    ...     print(line.strip())
    C=1, unit length      70.0 ± 1.0 %
    mean of probabilities  71.0 ± 1.0 %
    """
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


def _defaults() -> dict[str, Any]:
    return _flat(Recipe().model_dump())
