"""Bridge's picture tables: what rows are made of, and that they can come out either way."""

import math
from pathlib import Path

import pytest

from innerloop.experiment.recipe.library import load_recipe
from innerloop.experiment.recipe.schema import Recipe
from innerloop.testing.closeness import ROUNDED
from innerloop_studies.papers.bridge import fig2 as bridge_fig2
from innerloop_studies.papers.bridge import table3 as bridge_table3
from innerloop_studies.papers.bridge import table4 as bridge_table4
from innerloop_studies.papers.bridge import table5 as bridge_table5
from innerloop_studies.papers.bridge.pictures import (
    METHODS,
    PENALTIES,
    SIZES,
    PictureRun,
    Watch,
    Work,
    best_validation,
    difference,
    mean,
    over_seeds,
    percent,
    recipe_for,
    settings_of,
    smoke_counts,
    time_to_reach,
    trained,
)
from innerloop_studies.reproduce.rows import Row

TASKS = 40


def a_run(accuracy: float, seconds: float = 100.0, rise: float = 10.0) -> PictureRun:
    """A run whose validation accuracy rises to ``accuracy`` by a point every ``rise`` seconds."""
    points = [accuracy - 0.01 * k for k in range(9, -1, -1)]
    curve = [
        {"step": i + 1, "validation": value, "ci95": 0.01, "seconds": rise * (i + 1)}
        for i, value in enumerate(points)
    ]
    wobble = [0.01 * ((7 * i) % 5 - 2) for i in range(TASKS)]
    return PictureRun(
        curve,
        seconds,
        steps=10,
        best_step=10,
        best_seconds=rise * 10,
        scores={"5": [accuracy + w for w in wobble], "1": [accuracy - 0.1 + w for w in wobble]},
        penalties={
            f"{p:g}": [accuracy - 0.02 * abs(math.log10(p / 0.33)) for _ in wobble] for p in PENALTIES
        },
    )


def verdicts(rows: list[Row]) -> dict[str, bool]:
    return {row.what: row.holds for row in rows}


def test_a_difference_is_taken_task_by_task_and_over_seeds() -> None:
    ours, theirs = [a_run(0.70), a_run(0.72)], [a_run(0.69), a_run(0.69)]
    gap = difference(ours, theirs, "5")
    assert gap.points == pytest.approx(2.0)
    assert gap.tasks.n == TASKS
    assert gap.tasks.ci95 == pytest.approx(0.0, abs=ROUNDED)
    # t quantile 12.706 of two values 0.01 and 0.03
    assert gap.seeds.ci95 == pytest.approx(12.706205 * math.sqrt(2e-4) / math.sqrt(2))
    assert "over seeds" in str(gap)
    assert "over seeds" not in str(difference(ours[:1], theirs[:1], "5"))


def test_accuracies_have_intervals_over_seeds_or_over_tasks() -> None:
    runs = [a_run(0.6), a_run(0.7), a_run(0.8)]
    assert over_seeds(runs, "5").n == 3
    assert over_seeds(runs, "5").mean == pytest.approx(0.7)
    assert over_seeds(runs[:1], "5").n == TASKS
    assert percent(over_seeds(runs, "1")).startswith("60.0 ± ")


def test_the_time_to_an_accuracy_is_read_off_the_curve() -> None:
    run = a_run(0.7)
    assert best_validation(run) == pytest.approx(0.7)
    assert time_to_reach(run, 0.655) == pytest.approx(60.0)
    assert time_to_reach(run, 0.71) is None


def test_time_in_validation_does_not_count() -> None:
    watch = Watch()
    with watch.paused():
        sum(i * i for i in range(2_000_000))
    assert watch.seconds() < 0.5 * watch.elsewhere


@pytest.mark.parametrize(
    ("ours", "holds"),
    [(0.70, (True, True, True)), (0.65, (False, False, False)), (0.695, (True, True, False))],
)
def test_table4_comes_out_either_way(ours: float, holds: tuple[bool, ...]) -> None:
    rise = 0.5 if all(holds) else 6.0
    runs = {"MetaOptNet": [a_run(0.70)] * 3, "MTL": [a_run(ours, 50.0, rise)] * 3}
    rows = bridge_table4._rows(runs, "5", "paper")
    assert tuple(row.holds for row in rows[:3]) == holds


def test_table3_tells_better_comparable_and_worse() -> None:
    runs = {method: [a_run(0.70)] * 3 for method in METHODS}
    runs["MAML"] = [a_run(0.60)] * 3
    runs["RFS"] = [a_run(0.72)] * 3
    holds = verdicts(bridge_table3._rows({("cifar-fs", "5"): runs}, "paper"))
    assert holds["CIFAR-FS 5-shot: MTL is better than MAML"]
    assert holds["CIFAR-FS 5-shot: MTL is comparable with MetaOptNet"]
    assert holds["CIFAR-FS 5-shot: MTL is worse than RFS"]
    assert not holds["CIFAR-FS 5-shot: MTL is better than R2D2"]
    runs["MTL"] = [a_run(0.3)] * 3
    rows = bridge_table3._rows({("cifar-fs", "5"): runs}, "paper")
    assert not rows[-2].holds  # below raw pixels


@pytest.mark.parametrize(("rise", "first"), [(5.0, True), (20.0, False)])
def test_table3_tells_who_reaches_metaoptnet_first(rise: float, first: bool) -> None:
    runs = {method: [a_run(0.70)] * 3 for method in METHODS}
    runs["MAML"] = [a_run(0.60)] * 3
    runs["MTL"] = [a_run(0.70, rise=rise)] * 3
    row = bridge_table3._times_row(runs)
    assert row.holds == first
    # MTL's curve is within a point of its end at the ninth of ten points
    assert f"MTL {', '.join([f'{0.09 * rise:.2f}'] * 3)}" in row.ours
    assert "MAML never, never, never" in row.ours


def test_table5_and_its_footnote_come_out_either_way() -> None:
    table = {f"{p:g}": bridge_table5._over_seeds([a_run(0.7), a_run(0.71)], f"{p:g}") for p in PENALTIES}
    assert [row.holds for row in bridge_table5._rows(table)] == [True, False]
    backwards = dict(zip(table, list(table.values())[::-1], strict=True))
    assert not bridge_table5._rows(backwards)[0].holds
    runs = {
        Work("cpu", data, "MTL", 0, normalised=unit): a_run(0.7 if unit else 0.6)
        for data in ("cifar-fs", "fc100")
        for unit in (True, False)
    }
    assert [row.holds for row in bridge_table5._footnote(runs)] == [True, False]


def test_figure2_comes_out_either_way() -> None:
    points = [
        bridge_fig2._point(Work("cpu", "cifar-fs", "MTL", 0), a_run(0.70, seconds), "5", 100.0)
        for seconds in (10.0, 50.0)
    ]
    easy = bridge_fig2._rows(points, {"accuracy": 0.69, "seconds": 100.0}, "paper")
    assert [row.holds for row in easy] == [True, True, True]
    hard = bridge_fig2._rows(points, {"accuracy": 0.75, "seconds": 5.0}, "paper")
    assert not hard[0].holds


def test_accuracies_that_no_count_gives_are_noticed() -> None:
    first, second = (Work("smoke", "cifar-fs", "MTL", seed) for seed in range(2))
    runs = {first: a_run(0.7)._replace(scores={"2": [0.5, 0.6]})}
    other = {second: a_run(0.7)._replace(scores={"2": [0.5, 0.63]})}
    assert not smoke_counts({**runs, **other}).ok
    other = {second: a_run(0.7)._replace(scores={"2": [0.5, 0.7]})}
    assert smoke_counts({**runs, **other}).ok


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("scale", list(SIZES))
def test_every_method_has_a_recipe_at_every_scale(method: str, scale: str) -> None:
    recipe = recipe_for(Work(scale, "cifar-fs", method, 2))
    assert isinstance(recipe, Recipe)
    assert recipe.run.seed == 2
    assert recipe.eval.episodes == SIZES[scale].tests
    if scale == "paper":
        kinds = {**dict.fromkeys(("MAML", "ANIL", "ProtoNet"), "conv4"), "R2D2": "r2d2-conv"}
        assert recipe.model.kind == kinds.get(method, "resnet12")


SHIPPED = {"MetaOptNet": "metaoptnet", "RFS": "supervised"}
CPU = {  # steps, optimiser, rate, and what is a method's own: as the finished runs were trained
    "MAML": (3900, "adam", 2e-3, {"method": "maml", "lr": 0.3, "steps": 1}),
    "ANIL": (6000, "adam", 3e-3, {"method": "anil", "lr": 0.1, "steps": 5}),
    "R2D2": (5500, "radam", 3e-2, {"method": "r2d2"}),
    "MetaOptNet": (5000, "radam", 1e-2, {"method": "metaoptnet-svm", "settings": {"steps": 3}}),
    "ProtoNet": (5000, "adam", 3e-3, {"method": "protonet"}),
    "RFS": (9000, "radam", 1e-2, {"method": "protonet"}),
    "MTL": (10_000, "radam", 1e-2, {"method": "protonet"}),
}


@pytest.mark.parametrize("method", METHODS)
def test_the_recipes_for_one_core_are_the_runs_of_the_table(method: str) -> None:
    name = SHIPPED.get(method, method.lower())
    run = recipe_for(Work("cpu", "cifar-fs", method, 0))
    shipped = load_recipe(f"cifar-fs-{name}-cpu")
    assert run.model_dump() == {**shipped.model_dump(), "name": run.name, "description": ""}
    steps, optimiser, rate, inner = CPU[method]
    assert (run.outer.steps, run.outer.optimiser, run.outer.lr) == (steps, optimiser, rate)
    assert {key: getattr(run.inner, key) for key in inner} == inner
    assert (run.model.kind, run.model.filters, run.model.pooling, run.run.threads) == (
        "conv4",
        64,
        "stride",
        1,
    )
    assert run.eval.every == steps // SIZES["cpu"].validations
    assert run.eval.validation_episodes == SIZES["cpu"].validation_tasks


@pytest.mark.parametrize("method", ["MetaOptNet", "RFS", "MTL"])
def test_the_other_benchmarks_have_the_same_recipes(method: str) -> None:
    name = SHIPPED.get(method, method.lower())
    fc100 = recipe_for(Work("cpu", "fc100", method, 0, normalised=False))  # features as they are: Bridge
    shipped = load_recipe(f"fc100-{name}-cpu")
    assert fc100.model_dump() == {**shipped.model_dump(), "name": fc100.name, "description": ""}
    for data in ("mini-imagenet", "tiered-imagenet"):
        larger = load_recipe(f"{data}-{name}-cpu")
        quarter = recipe_for(Work("cpu", data, method, 0, length=0.25))  # pictures are seven times as large
        assert larger.model_dump() | {"name": "", "description": ""} == quarter.model_dump() | {"name": ""}


def test_lengths_batches_and_normalisation_reach_the_recipe() -> None:
    usual = recipe_for(Work("cpu", "cifar-fs", "MTL", 0))
    other = recipe_for(Work("cpu", "fc100", "MTL", 0, length=0.25, batch=4, normalised=False))
    assert other.outer.steps == usual.outer.steps // 4
    assert other.outer.batch == 4
    assert other.data.name == "fc100"
    assert usual.data.name == "cifar-fs"
    assert other.outer != usual.outer


def test_a_run_gives_the_best_weights_scores_and_repeats() -> None:
    work = Work("smoke", "cifar-fs", "MTL", 0)
    kept = trained(**settings_of(work))
    first, again = PictureRun(**kept), PictureRun(**trained(**settings_of(work)))
    assert first._asdict() == kept
    assert first.scores == again.scores
    assert first.penalties == again.penalties
    assert [point["step"] for point in first.curve] == [2, 4]
    best = max(first.curve, key=lambda point: (point["validation"], -point["step"]))
    assert first.best_step == best["step"]
    assert len(first.scores["2"]) == SIZES["smoke"].tests
    assert 0 < mean(first, "2") < 1
    assert first.penalties["0.33"] == first.scores["2"]


@pytest.mark.slow
def test_the_tables_come_out_at_smoke_scale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # finished runs are kept here, for the next table
    said: list[str] = []
    for module in (bridge_table3, bridge_table4, bridge_fig2, bridge_table5):
        reproduction = module.run("smoke", said.append)
        assert [row.what for row in reproduction.rows if not row.ok] == []
        assert len(reproduction.rows) >= 2
        assert reproduction.figures
    trainings = {line for line in said if line.startswith(METHODS)}
    assert len(list((tmp_path / "runs" / "reproduce-parts" / "bridge-pictures").iterdir())) == len(trainings)
