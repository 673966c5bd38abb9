"""Heads on frozen features: scikit-learn's answers, each picture once, protocols, paired comparisons."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from innerloop.core.errors import UserError
from innerloop.core.statistics import mean_interval
from innerloop.data.glyphs import glyphs
from innerloop.data.source import ImageSource
from innerloop.evaluation import (
    HEADS,
    Evaluation,
    Protocol,
    compare,
    evaluate_head,
    fit_heads,
    head_scores,
    over_seeds,
)
from innerloop.evaluation.features import cached_features, pictures_of
from innerloop.learners import protonet
from innerloop.learners.fine_tuning import BIAS, WEIGHT, fine_tune
from innerloop.nets import NORM_POLICIES, Network, conv4, mlp
from innerloop.tasks.episodes import Kind
from innerloop.tasks.few_shot import few_shot_sampler
from innerloop.testing.closeness import SOLVED, SOLVED_FINELY, SOLVED_ROUGHLY, assert_close
from innerloop.training import Plan
from oracles import frozen_loop, problems, solvers_sklearn

QUICK = Protocol(ways=5, shots=2, queries=4, episodes=12, seed=3)


@pytest.fixture(scope="module")
def source() -> ImageSource:
    return glyphs()


def network(norm: str = "running") -> Network:
    return conv4(1, 28, 5, filters=4, norm=norm)


def drawn_problems(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    means = 0.5 * torch.randn(6, 4, 1, 20, generator=g, dtype=torch.float64)
    z = (means + torch.randn(6, 4, 3, 20, generator=g, dtype=torch.float64)).flatten(1, 2)
    q = (means + torch.randn(6, 4, 9, 20, generator=g, dtype=torch.float64)).flatten(1, 2)
    return z, torch.arange(4).repeat_interleave(3).expand(6, -1).contiguous(), q


# ---- the heads themselves ----


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("head", HEADS)
def test_labels_are_those_of_scikit_learn(head: str, normalise: bool) -> None:
    z, y, q = drawn_problems()
    scores = head_scores(fit_heads(z, y, 4, head, 0.7, normalise), q, normalise).argmax(-1)
    a, b = (F.normalize(t, dim=-1) if normalise else t for t in (z, q))
    expected = [
        frozen_loop.estimator(head, 0.7).fit(x.numpy(), labels.numpy()).predict(queries.numpy())
        for x, labels, queries in zip(a, y, b, strict=True)
    ]
    assert np.array_equal(scores.numpy(), np.stack(expected))


@pytest.mark.parametrize("ways", [2, 4])
def test_c_means_the_same_for_all_penalised_heads(ways: int) -> None:
    z, y, _ = drawn_problems()
    z, y = z[:, : 3 * ways], y[:, : 3 * ways]
    logistic = solvers_sklearn.logistic(z, y, C=0.3)
    heads = fit_heads(z, y, ways, "logistic", 0.3, normalise=False)
    # scikit-learn's sums to zero over classes; so does ours
    assert_close(heads.weights, logistic.weights, (SOLVED_ROUGHLY, SOLVED_ROUGHLY))
    svc = solvers_sklearn.svc(z, y, C=0.3)
    assert_close(
        fit_heads(z, y, ways, "svm", 0.3, normalise=False).weights, svc.weights, (SOLVED, SOLVED_FINELY)
    )
    ridge = solvers_sklearn.ridge(z, 2 * F.one_hot(y, ways).double() - 1, 1 / 0.6, intercept=True)
    assert_close(fit_heads(z, y, ways, "ridge", 0.3, normalise=False).weights, ridge.weights)


def test_unknown_heads_are_named() -> None:
    z, y, _ = drawn_problems()
    with pytest.raises(UserError, match="did you mean 'logistic'"):
        fit_heads(z, y, 4, "logistics")


# ---- episodes ----


@pytest.mark.parametrize("head", HEADS)
def test_scores_are_those_of_the_episode_loop(source: ImageSource, head: str) -> None:
    net = network()
    params, buffers = problems.drawn(net)
    protocol = QUICK._replace(head=head, C=2.0)
    evaluation = evaluate_head(net, params, buffers, source, protocol)
    assert evaluation.scores == frozen_loop.accuracies(net, params, buffers, source, "test", protocol)
    assert evaluation.interval == mean_interval(evaluation.scores)
    assert 0.25 < evaluation.interval.mean < 1


@pytest.mark.parametrize("norm", NORM_POLICIES)
@pytest.mark.parametrize("copies", [0, 3])
def test_every_norm_policy_with_and_without_copies(source: ImageSource, norm: str, copies: int) -> None:
    net = network(norm)
    params, buffers = problems.drawn(net)
    protocol = QUICK._replace(norm=norm, copies=copies, head="ridge", episodes=6)
    expected = frozen_loop.accuracies(net, params, buffers, source, "validation", protocol)
    for plan in (None, Plan("threads", 2), Plan("vmap")):
        evaluation = evaluate_head(net, params, buffers, source, protocol, "validation", plan=plan)
        assert evaluation.scores == expected


def test_episodes_are_those_of_learners(source: ImageSource) -> None:
    from innerloop.core.losses import get_loss
    from innerloop.evaluation import evaluate

    net = network()
    params, buffers = problems.drawn(net)
    protocol = QUICK._replace(head="centroid", normalise=False)
    sampler = few_shot_sampler(source, "test", seed=3, shots=2, queries=4, dtype=torch.float64)
    learned = evaluate(protonet(net, 5), params, buffers, sampler, get_loss("cross-entropy"), 12)
    assert evaluate_head(net, params, buffers, source, protocol).scores == learned.scores


def test_mixtures_are_judged_kind_by_kind_in_episode_order(source: ImageSource) -> None:
    net = network("group")
    params, buffers = problems.drawn(net)
    kinds = (Kind(3, 2, 4, name="few"), Kind(7, 1, 2, "one-group", name="many"))
    protocol = QUICK._replace(norm="group", head="cosine", episodes=20)
    evaluation = evaluate_head(net, params, buffers, source, protocol, kinds=kinds)
    sampler = few_shot_sampler(source, "test", seed=3, kinds=kinds, dtype=torch.float64)
    for i, score in enumerate(evaluation.scores):
        task = sampler.episode(i)
        z, q = (net.features(params, buffers, x, "stored")[0] for x in (task.x_support, task.x_query))
        model = frozen_loop.Cosine().fit(F.normalize(z, dim=-1).numpy(), task.y_support.numpy())
        assert score == pytest.approx((model.predict(q.numpy()) == task.y_query.numpy()).mean())


def test_a_picture_is_computed_once() -> None:
    net = mlp(4, [3], 2)
    params, buffers = problems.drawn(net)
    table, asked = torch.randn(50, 1, 2, 2, dtype=torch.float64), []

    def load(rows: np.ndarray) -> torch.Tensor:
        asked.extend(rows.tolist())
        return table[torch.from_numpy(rows)].flatten(2).flatten(1)[:, None, None]  # mlp takes rows

    body = net._replace(features=lambda p, b, x, s: net.features(p, b, x.flatten(1), s))
    rows = np.array([[3, 9, 3], [40, 9, 7]])
    cache = cached_features(body, params, buffers, load, rows, batch=2)
    assert sorted(asked) == [3, 7, 9, 40]
    shown = table[torch.from_numpy(rows.reshape(-1))].flatten(1)
    expected, _ = net.features(params, buffers, shown, "stored")
    assert_close(cache.at(rows), expected.view(2, 3, -1))


def test_copies_depend_on_seed_and_picture_only(source: ImageSource) -> None:
    one, same, other = (pictures_of(source, seed=s) for s in (0, 0, 1))
    rows = np.array([5, 17, 5])
    x = one.copies(rows, 2)
    assert x.shape == (3, 2, 1, 28, 28)
    assert torch.equal(x, same.copies(rows, 2))
    assert torch.equal(x[0], x[2])
    assert not torch.equal(x[0, 0], x[0, 1])
    assert not torch.equal(x, other.copies(rows, 2))


# ---- fine-tuning ----


def test_fine_tuning_is_adam_from_the_class_means() -> None:
    net = mlp(3, [6], 2, activation="tanh")
    params, _ = problems.drawn(net)
    g = torch.Generator().manual_seed(1)
    x, y = torch.randn(6, 3, generator=g, dtype=torch.float64), torch.tensor([0, 0, 1, 1, 2, 2])
    tuned = fine_tune(net, 3, lr=0.05, steps=4).adapt(params, {}, x, y).params

    def unit(weights: dict[str, torch.Tensor]) -> torch.Tensor:
        return F.normalize(torch.tanh(x @ weights["layer0.weight"].T + weights["layer0.bias"]), dim=1)

    means = torch.stack([unit(params)[y == c].mean(0) for c in range(3)])
    leaves = {name: params[name].clone().requires_grad_() for name in ("layer0.weight", "layer0.bias")}
    leaves |= {WEIGHT: means.clone().requires_grad_(), BIAS: (-means.square().sum(1) / 2).requires_grad_()}
    optimiser = torch.optim.Adam(leaves.values(), lr=0.05)
    for _ in range(4):
        optimiser.zero_grad()
        F.cross_entropy(unit(leaves) @ leaves[WEIGHT].T + leaves[BIAS], y).backward()
        optimiser.step()
    for name, value in leaves.items():
        assert_close(tuned[name], value.detach())


def test_fine_tuning_without_steps_is_nearest_centroid(source: ImageSource) -> None:
    net = network()
    params, buffers = problems.drawn(net)
    tuned = evaluate_head(net, params, buffers, source, QUICK._replace(head="finetune", steps=0))
    nearest = evaluate_head(net, params, buffers, source, QUICK._replace(head="centroid"))
    assert tuned.scores == nearest.scores
    moved = evaluate_head(net, params, buffers, source, QUICK._replace(head="finetune", lr=0.1, copies=2))
    assert moved.scores != tuned.scores


# ---- what is said about a number ----


def test_heads_that_are_no_solutions_are_counted(
    source: ImageSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    import innerloop.evaluation.frozen as module
    from innerloop.experiment.recipe.protocols import evaluation_line

    net = network()
    params, buffers = problems.drawn(net)
    assert evaluate_head(net, params, buffers, source, QUICK).unconverged == 0

    def spoilt(*given: object) -> object:
        fitted = fit_heads(*given)  # type: ignore[arg-type]
        assert fitted.converged is not None
        return fitted._replace(converged=torch.arange(len(fitted.weights)) >= 5)

    monkeypatch.setattr(module, "fit_heads", spoilt)
    assert evaluate_head(net, params, buffers, source, QUICK).unconverged == 5
    told = {"score": "accuracy", "mean": 0.5, "ci95": 0.1, "episodes": 12, "unconverged_heads": 5}
    assert "5 heads not solved to 1e-6" in evaluation_line(told)


def test_a_protocol_says_what_applies() -> None:
    logistic = QUICK.as_dict()
    assert logistic["C"] == 1.0
    assert logistic["kind"] == "inductive"
    assert "steps" not in logistic
    assert "C" not in QUICK._replace(head="cosine").as_dict()
    tuned = QUICK._replace(head="finetune", norm="transductive").as_dict()
    assert (tuned["steps"], tuned["lr"]) == (10, 1e-3)
    assert tuned["kind"].startswith("transductive")
    assert json.loads(json.dumps(tuned)) == tuned


def test_a_norm_policy_that_is_not_the_networks_is_refused(source: ImageSource) -> None:
    net = network("group")
    params, buffers = problems.drawn(net)
    with pytest.raises(UserError, match="norm=running, the network has norm=group"):
        evaluate_head(net, params, buffers, source, QUICK)
    with pytest.raises(UserError, match="did you mean 'ridge'"):
        evaluate_head(net, params, buffers, source, QUICK._replace(norm="group", head="rigde"))


def test_paired_comparisons_see_what_intervals_hide() -> None:
    g = np.random.default_rng(0)
    hard = g.normal(0.6, 0.1, 400)
    a, b = hard + 0.01 + g.normal(0, 0.01, 400), hard
    comparison = compare(a.tolist(), b.tolist())
    assert comparison.first.mean - comparison.first.ci95 < comparison.second.mean  # the two intervals overlap
    assert comparison.verdict == "first"
    assert comparison.difference.mean == pytest.approx(np.mean(a - b))
    assert compare(b.tolist(), a.tolist()).verdict == "second"
    assert compare(a.tolist(), b.tolist(), higher_is_better=False).verdict == "second"
    assert compare(b.tolist(), b.tolist()).verdict == "no clear difference"
    with pytest.raises(ValueError, match="equal lengths"):
        compare([1.0], [1.0, 2.0])


def test_the_interval_over_seeds_is_over_means() -> None:
    runs = [Evaluation([m - 0.1, m + 0.1], mean_interval([m - 0.1, m + 0.1]), "accuracy") for m in (0.5, 0.7)]
    assert over_seeds(runs) == mean_interval([0.5, 0.7])


# ---- from recipes ----

PRETRAINED = [
    *("data.name=glyphs", "tasks.minibatch=8", "model.kind=conv4", "model.filters=4", "model.pooling=max"),
    *("outer.steps=3", "eval.episodes=7", "eval.shots=2", "eval.queries=3", "eval.copies=0"),
    *("eval.validation_episodes=3", "run.execution=loop", "run.compile=off"),
]


def pretrained(folder: Path, *settings: str) -> Path:
    from innerloop.experiment.recipe.library import load_recipe
    from innerloop.experiment.training import train

    given = [*PRETRAINED, f"run.folder={folder}", *settings]
    return train(load_recipe("omniglot-supervised", given), progress=False).run


def test_a_run_is_judged_by_every_head(tmp_path: Path) -> None:
    from innerloop.core.files import plain, read_json
    from innerloop.experiment.results import judged_from
    from innerloop.experiment.run_evaluation import evaluate_run

    run = pretrained(tmp_path)
    (file,) = (run / "eval").glob("*.json")
    assert file.name == "glyphs-5way-2shot-logistic-1.json"
    first = json.loads(file.read_text())
    assert len(first["scores"]) == 7
    assert first["protocol"]["method"] == "logistic head"
    assert {"C", "normalise", "copies", "norm", "kind", "seed", "ways"} <= set(first["protocol"])
    assert evaluate_run(run, []).mean == first["mean"]
    grid = evaluate_run(run, ["eval.C_grid=[0.1,1.0]"])
    assert {row.C for row in grid.grid[:-1]} >= {0.1, 1.0}
    assert grid.grid[-1].C is None
    read_again = judged_from({**read_json(grid.file), "file": grid.file})
    assert read_again == grid._replace(protocol=plain(grid.protocol))
    assert [baseline.name for baseline in grid.baselines] == ["pixels", "colours", "untrained"]
    for head in [*HEADS, "finetune", "learner"]:
        steps = ["eval.head_steps=1"] if head == "finetune" else []
        evaluation = evaluate_run(run, [f"eval.head={head}", *steps])
        assert 0 <= evaluation.mean <= 1
        assert (evaluation.protocol.get("head") == head) == (head != "learner")
    validations = [line for line in (run / "metrics.jsonl").read_text().splitlines() if "validation" in line]
    assert len(validations) == 3


def test_two_runs_are_compared_task_by_task(tmp_path: Path) -> None:
    from innerloop.experiment.run_evaluation import compare_runs

    one, two = pretrained(tmp_path), pretrained(tmp_path, "seed=1")
    difference = compare_runs(one, two, ["eval.head=cosine", "eval.episodes=9"]).comparison.difference
    assert difference.n == 9
    scores = [json.loads(next((r / "eval").glob("*cosine*")).read_text())["scores"] for r in (one, two)]
    assert difference.mean == pytest.approx(np.mean(np.subtract(*scores)))
    other = pretrained(tmp_path, "eval.seed=5")
    with pytest.raises(UserError, match=r"other episodes \(seed 0 and 5\)"):
        compare_runs(one, other, [])


def test_heads_are_for_pictures() -> None:
    from innerloop.experiment.recipe.library import load_recipe

    with pytest.raises(UserError, match=r"eval\.head=logistic classifies pictures"):
        load_recipe("sine-maml", ["eval.head=logistic"])


def test_the_command_compares_two_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from innerloop.cli.main import main

    one, two = pretrained(tmp_path), pretrained(tmp_path, "seed=1")
    capsys.readouterr()
    assert main(["eval", str(one), "--against", str(two), "--json"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])["comparison"]
    assert told["against"] == str(two)
    assert told["verdict"] in ("first", "second", "no clear difference")
    assert main(["eval", str(one), "--against", str(one)]) == 0
    text = capsys.readouterr().out
    assert "logistic head" in text
    assert "difference +0.0 ± 0.0 points task by task: no clear difference" in text


@pytest.mark.parametrize("head", [*HEADS, "finetune"])
def test_new_pictures_are_labelled_by_the_head_that_was_asked_for(
    tmp_path: Path, source: ImageSource, head: str
) -> None:
    from PIL import Image

    from innerloop.classify.predict import predict_pictures

    run = pretrained(tmp_path / "runs")
    for c in range(3):
        folder = tmp_path / "support" / f"class{c}"
        folder.mkdir(parents=True)
        for i in range(2):
            Image.fromarray(source.images[20 * c + i, :, :, 0]).save(folder / f"{i}.png")
    query = tmp_path / "support" / "class1" / "0.png"
    prediction = predict_pictures(run, tmp_path / "support", [query], [f"eval.head={head}"])
    assert prediction.learned.method.startswith(head)
    (answer,) = prediction.predictions
    assert sum(answer.probabilities.values()) == pytest.approx(1)
    if head == "ridge":  # what it was fitted to, it knows
        assert answer.label == "class1"
