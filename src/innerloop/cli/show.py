"""``innerloop show``."""

from __future__ import annotations

import contextlib
from operator import attrgetter
from typing import Annotated, Any

import typer

from innerloop.cli.options import Json, Settings, check_settings
from innerloop.cli.output import Result, carry_out, pairs, table, write
from innerloop.cli.train import render_steps
from innerloop.core.errors import UserError
from innerloop.core.paths import user_path
from innerloop.runs.manifest import actual_status

Name = Annotated[
    str | None, typer.Argument(metavar="[NAME]", help="A recipe, a TOML file, or a run (`last`).")
]
Schema = Annotated[
    bool, typer.Option("--schema", help="Every setting: what it takes, its value, what it means.")
]


def show(name: Name = None, settings: Settings = None, schema: Schema = False, json: Json = False) -> None:
    r"""Print a recipe, every setting there is, or the summary of a run.

    \b
    Examples:
      innerloop show sine-maml               the recipe
      innerloop show sine-maml > mine.toml   a copy to change
      innerloop show sine-maml inner.lr=0.1  the complete recipe with settings applied
      innerloop show sine-maml --schema      every setting: what it takes, its value, its meaning
      innerloop show last                    how the newest run went

    \b
    JSON: recipe and toml; or settings (key, takes, default, value, description, unread); or run, status,
    evaluations.
    """
    given = check_settings(settings, show)

    def work() -> Result:
        """Gathers what is asked for."""
        if schema:
            return {"settings": _settings(name or "sine-maml", given), "recipe": name or "sine-maml"}
        if name is None:
            raise UserError(
                "show what? A recipe (`innerloop show sine-maml`), a run (`innerloop show last`) or --schema."
            )
        return _recipe(name, given) if _is_recipe(name) else _run(name, given)

    carry_out(json, work, _render)


def _is_recipe(name: str) -> bool:
    from innerloop.experiment.recipe.library import named, shipped_names
    from innerloop.runs.directory import MANIFEST, RECIPE, is_run

    path = user_path(name)
    with contextlib.suppress(UserError):
        if name in shipped_names() or named(name).kind != "recipe":
            return True
    return path.is_file() and path.name not in (MANIFEST, RECIPE) and not is_run(path)


def _recipe(name: str, given: list[str]) -> Result:
    from innerloop.experiment.recipe.library import named, read_recipe, resolved_text
    from innerloop.experiment.recipe.settings import recipe_to_toml

    recipe = read_recipe(name, given)
    if given or named(name).kind != "recipe":
        text = recipe_to_toml(recipe, header=f"innerloop train {name} {' '.join(given)}")
    else:
        text = resolved_text(name)
    return {"recipe": recipe.model_dump(), "toml": text}


def _settings(name: str, given: list[str]) -> list[dict[str, Any]]:
    from innerloop.experiment.recipe.library import read_recipe
    from innerloop.experiment.recipe.problems import allowed, known_settings
    from innerloop.experiment.recipe.schema import absent

    typed = read_recipe(name, given)
    lacks = absent(typed, known_settings())
    return [
        {
            "key": key,
            "takes": allowed(field),
            "default": field.default,
            "value": attrgetter(key)(typed),
            "description": field.description,
            "unread": lacks[key][1] if key in lacks else None,
        }
        for key, field in known_settings().items()
    ]


def _run(name: str, given: list[str]) -> Result:
    from innerloop.experiment.recipe.library import shipped_names
    from innerloop.experiment.recipe.protocols import is_own
    from innerloop.report.read_run import headline, load_run, others
    from innerloop.report.reproduction_page import found_words
    from innerloop.runs.directory import find_run

    if given:
        raise UserError(
            f"a run has its settings: `innerloop eval {name} {' '.join(given)}` judges it by others."
        )
    try:
        path = find_run(name)
    except UserError as error:
        from innerloop.core.errors import did_you_mean

        hint = did_you_mean(name, shipped_names())
        raise UserError(f"'{name}' is neither a recipe{hint} nor a run: {error}") from None
    run = load_run(path)
    return {
        "run": str(path),
        "recipe": run.name,
        "seed": run.seed,
        "status": actual_status(run.manifest),
        "reason": run.manifest.get("reason"),
        "diverged": bool(run.manifest.get("diverged")),
        "started": run.manifest.get("started"),
        "ended": run.manifest.get("ended"),
        "command": " ".join(map(str, run.manifest.get("argv") or [])),
        "versions": run.manifest.get("versions"),
        "plan": run.manifest.get("plan"),
        "steps": run.steps_done,
        "evaluations": [
            {
                **{k: v for k, v in evaluation.items() if k != "scores"},
                "own_protocol": is_own(run.recipe, evaluation),
            }
            for evaluation in [headline(run), *others(run)]
            if evaluation
        ],
        "problems": run.problems,
        "kind": run.kind,
        "found": found_words(run),
    }


def _render(result: Result) -> None:
    if "toml" in result:
        write(result["toml"])
    elif "settings" in result:
        _render_settings(result)
    else:
        _render_run(result)


def _render_settings(result: Result) -> None:
    from innerloop.experiment.recipe.problems import show as typed

    rows = []
    for row in result["settings"]:
        value, default = (typed(row[name]).strip("'") for name in ("value", "default"))
        changed = value != default and row["key"] not in ("name", "description")
        shown = f"{value} (default {default})" if changed else value
        unread = " (not read here)" if row["unread"] else ""
        rows.append((row["key"], shown, row["takes"], f"{row['description']}{unread}"))
    table(f"settings, with their values in {result['recipe']}", ("key", "value", "takes", "meaning"), rows)


def _render_run(result: Result) -> None:
    from innerloop.experiment.recipe.protocols import evaluation_line

    plan = result["plan"] or {}
    trained = result["kind"] == "train"
    rows = {
        "run": result["run"],
        "recipe": f"{result['recipe']}, seed {result['seed']}" if trained else "",
        "status": result["status"] + (f": {result['reason']}" if result["reason"] else ""),
        "started": result["started"],
        "ended": result["ended"],
        "command": result["command"],
        "found": result["found"],
        "steps": result["steps"] if trained else "",
        "execution": ", ".join(
            f"{key} {plan[key]}" for key in ("mode", "threads", "chunk", "compile") if plan.get(key)
        ),
    }
    pairs({name: value for name, value in rows.items() if value not in (None, "")})
    for evaluation in result["evaluations"]:
        other = "" if evaluation["own_protocol"] else "by another protocol than the recipe's: "
        write(f"\n{other}{evaluation_line(evaluation)}")
        render_steps(evaluation)
    for problem in result["problems"]:
        write(f"note: {problem}")
    if not trained:
        write(f"\n`innerloop report {result['run']}` makes its page")
    elif result["status"] in ("killed", "interrupted", "failed", "pruned") and not result["diverged"]:
        write(f"\n`innerloop resume {result['run']}` goes on from its last checkpoint")
