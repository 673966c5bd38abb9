"""``innerloop train``."""

from __future__ import annotations

from innerloop.cli.launch import start_ranks
from innerloop.cli.options import Json, Quiet, RecipeName, Settings, Trust, check_settings
from innerloop.cli.output import Result, carry_out, pairs, score_value, typed_argv, write
from innerloop.experiment.recipe.library import read_recipe


def train(
    recipe: RecipeName,
    settings: Settings = None,
    trust: Trust = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    r"""Train a recipe in a new run, and evaluate the result.

    \b
    Examples:
      innerloop train sine-maml
      innerloop train sine-maml inner.steps=3 outer.steps=2000 seed=1
      innerloop train sine-maml 'model.hidden=[64,64]' tasks.n_tasks=none
      innerloop show sine-maml > mine.toml   (edit it)   innerloop train mine.toml
      innerloop train sine-maml tasks.family=mine:lines   (code of your own)
      innerloop train photos/   (one folder of pictures per class)
      innerloop train pictures-maml data.name=photos/ tasks.shots=1

    Settings are written section.key=value, in any order. `innerloop show sine-maml --schema` lists them all
    with what they take and what they mean. You are warned about a setting that the recipe does not read.
    After Ctrl-C, `innerloop resume last` goes on. Code that a file names, and not you, is imported only
    with --trust. On a folder of pictures, ways, shots, queries and size follow from the pictures unless you
    set them; pictures-protonet is trained unless you name pictures-maml or pictures-supervised.

    \b
    JSON: run, steps, metrics, tasks_per_second, notes.
    """
    given = check_settings(settings, train)
    start_ranks(lambda: read_recipe(recipe, given).run.ranks)

    def work() -> Result:
        """Reads the recipe, then trains it."""
        from innerloop.experiment.recipe.library import load_recipe
        from innerloop.experiment.recipe.rules import unread
        from innerloop.experiment.recipe.settings import typed_keys

        # before torch is imported: mistakes are answered at once
        typed = load_recipe(recipe, given, trust=trust)
        notes = unread(typed, sorted(typed_keys(given)))
        from innerloop.experiment.training import train as run_recipe

        return run_recipe(typed, argv=typed_argv(), progress=not quiet, notes=notes).as_dict()

    carry_out(json, work, render_training)


def render_training(result: Result) -> None:
    """What training and its evaluation gave, for people."""
    metrics = result.get("metrics") or {}
    run = result["run"]
    if "mean" in metrics:
        render_evaluation(metrics)
    speed = result.get("tasks_per_second")
    rows = {
        "run": run,
        "steps": f"{result['steps']}" + (f", {speed:,.0f} tasks/s" if speed else ""),
        "page": f"innerloop report {run}",
    }
    pairs(rows)


def render_evaluation(evaluation: Result) -> None:
    """A score with its protocol, by inner steps and by heads where these were compared, and its baselines."""
    from innerloop.experiment.recipe.protocols import baselines_line, evaluation_line, grid_lines

    write(evaluation_line(evaluation))
    render_steps(evaluation)
    for line in grid_lines(evaluation):
        write(line)
    if beside := baselines_line(evaluation):
        write(beside)


def render_steps(evaluation: Result) -> None:
    """The score after some numbers of inner steps, where it was measured: at most about seven lines."""
    rows = evaluation.get("by_step") or []
    shown = sorted({round(i * (len(rows) - 1) / 6) for i in range(7)}) if len(rows) > 7 else range(len(rows))
    for row in [rows[i] for i in shown] if len(rows) > 1 else []:
        text = score_value(str(evaluation.get("score") or "score"), row["mean"], row["ci95"])
        write(f"  after {row['steps']:>2} step{' ' if row['steps'] == 1 else 's'}  {text}")
