"""Predictors from runs, and in ``.safetensors`` files: tensors in groups, all else as JSON. No pickle."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from innerloop.classify.backbones import GROUP, Backbone, pack_backbone, unpack_backbone
from innerloop.classify.heads import (
    KEYS,
    HeadSettings,
    head_settings,
    pack_state,
    recipe_with,
    settings_in,
    unpack_state,
)
from innerloop.classify.inputs import pack_labels, unpack_labels
from innerloop.classify.model_path import find_model, model_file
from innerloop.classify.predictor import Classifier, Examples, Predictor, network_for
from innerloop.classify.pretraining import trained_predictor, trained_preprocessing
from innerloop.classify.sureness import ConfusionPair, ExpectedAccuracy, Novelty, Share, Sureness
from innerloop.core.errors import UserError
from innerloop.core.preprocessing import preprocessing_from
from innerloop.core.random import generator
from innerloop.core.tensors import read_described, write_described
from innerloop.core.types import Buffers, Params
from innerloop.evaluation.features import CACHEABLE
from innerloop.experiment.data import build_data
from innerloop.experiment.loading import load_run
from innerloop.experiment.picture_record import KEPT
from innerloop.experiment.recipe.protocols import IMAGE_FAMILIES
from innerloop.experiment.recipe.settings import typed_keys
from innerloop.experiment.recipe.trust import admit
from innerloop.experiment.run_data import data_record
from innerloop.experiment.weights import for_test
from innerloop.nets.network import Network
from innerloop.runs.manifest import read_manifest

FORMAT = "innerloop-few-shot-classifier-1"
DAMAGED = KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError, OverflowError
Groups = dict[str, dict[str, Tensor]]


# from a run or a file


def predictor_from(source: str | Path, items: Sequence[str] = (), *, trust: bool = False) -> Predictor:
    """A network that can learn new classes of pictures.

    Args:
        source: a run (its path, the beginning of its name, or ``last``), or a saved file.
        items: ``key=value`` settings for the adaptation, such as ``inner.test_steps=10``.
        trust: whether code that the run or the file names may be imported.

    Raises:
        UserError: there is no such thing, it was not trained on pictures, or it is damaged.
        UntrustedCodeError: it names code from outside that is neither in ``items`` nor trusted.
    """
    return load_model(source, items, trust=trust)._replace(classes=None)


def load_model(source: str | Path, items: Sequence[str] = (), *, trust: bool = False) -> Predictor:
    """As :func:`predictor_from`, with the classes that a saved file has learned.

    Args:
        source: a run's directory, or a file.
        items: ``key=value`` settings of adapting and labelling.
        trust: whether code that the recipe names may be imported.
    """
    place = find_model(source)
    return _of_run(place, items, trust) if place.is_dir() else read_predictor(place, items, trust=trust)


def _of_run(run: Path, items: Sequence[str], trust: bool) -> Predictor:
    loaded = load_run(run, items, trust=trust)
    recipe = loaded.parts.recipe
    if recipe.tasks.family not in IMAGE_FAMILIES:
        raise UserError(
            f"{run} was trained on {recipe.tasks.family} tasks, not on pictures: give a run on pictures."
        )
    weights, words = loaded.weights()
    about = read_manifest(run).get("data") or data_record(build_data(recipe))
    how = trained_preprocessing(about["shape"], about["mean"], about["std"])
    if recipe.data.split_file == str(run / KEPT):  # means nothing in another file
        data = recipe.data.model_copy(update={"split_file": None})
        recipe = recipe.model_copy(update={"data": data})
    network = loaded.parts.network
    return trained_predictor(recipe, settings_in(recipe), network, for_test(*weights), how, str(run), words)


def run_backbone(source: str | Path, *, trust: bool = False) -> Backbone:
    """The network of a run on pictures, or of a saved classifier, for features.

    Its features are computed, kept and used like those of pretrained weights.

    Args:
        source: a run (its path, the beginning of its name, or ``last``), or a saved file.
        trust: whether code that it names may be imported.

    Raises:
        UserError: there is no such thing, or its features of a picture depend on other pictures.
    """
    return backbone_of(load_model(source, trust=trust))


def backbone_of(predictor: Predictor) -> Backbone:
    """The network of a predictor, if a picture has features of its own in it."""
    norm, weights = predictor.network.norm, predictor.backbone.weights
    if norm not in CACHEABLE:
        raise UserError(
            f"{predictor.source} normalises by the pictures of a task (model.norm={norm}), so that a picture "
            f"has no features of its own: train it with model.norm={' or '.join(CACHEABLE)}."
        )
    words = f"{predictor.source}, {weights}" if weights else predictor.source
    return predictor.backbone._replace(weights=words)


# writing


def write_predictor(path: Path, predictor: Predictor, arguments: Mapping[str, Any] | None = None) -> Path:
    """Writes a predictor, what it has learned, and the arguments of the front; gives the path with suffix."""
    backbone, classes = predictor.backbone, predictor.classes
    about: dict[str, Any] = {
        "head": predictor.head._asdict(),
        "arguments": dict(predictor.arguments if arguments is None else arguments),
    }
    groups: Groups = {}
    if predictor.recipe is None:
        about["backbone"], tensors = pack_backbone(backbone)
        groups["backbone"] = {name.removeprefix(GROUP): value for name, value in tensors.items()}
    else:
        about["recipe"] = predictor.recipe.model_dump(mode="json")
        about["preprocessing"] = backbone.preprocessing.as_dict()
        about |= {"outputs": predictor.outputs, "weights": backbone.weights}
        groups |= {"params": backbone.params, "buffers": backbone.buffers}
    if classes is not None:
        fields, groups["task"] = pack_state(classes.state, backbone.params, backbone.buffers)
        about["classes"] = {
            "names": pack_labels(classes.names),
            "counts": classes.counts,
            "state": fields,
            "head": classes.head._asdict(),  # as it was when they were learned
        }
        if classes.examples is not None:
            groups["examples"] = classes.examples._asdict()
        if classes.sureness is not None:
            about["classes"]["sureness"] = pack_sureness(classes.sureness, classes.names)
            groups["sureness"] = {"means": classes.sureness.means}
    path = model_file(path)
    tensors = {f"{group}/{name}": v for group, members in groups.items() for name, v in members.items()}
    write_described(path, tensors, {"format": FORMAT, **about})
    return path


def pack_sureness(sure: Sureness, names: Sequence[Any]) -> dict[str, Any]:
    """How sure a head may be as plain data; classes are named by their places."""
    about: dict[str, Any] = {"temperature": sure.temperature, "expected": None, "novelty": None}
    place = {name: i for i, name in enumerate(names)}
    if sure.expected is not None:
        about["expected"] = {
            "accuracy": list(sure.expected.accuracy),
            "by_class": [[place[name], *share] for name, share in sure.expected.by_class.items()],
            "confused": [[place[c.true], place[c.said], c.share] for c in sure.expected.confused],
        }
    if sure.novelty is not None:
        about["novelty"] = list(sure.novelty)
    return about


# reading


def read_predictor(path: Path, items: Sequence[str] = (), *, trust: bool = False) -> Predictor:
    """What :func:`write_predictor` wrote."""
    about, groups = _read(path)
    try:
        if "backbone" in about:
            tensors = {GROUP + name: value for name, value in groups["backbone"].items()}
            backbone = unpack_backbone(about["backbone"], tensors, str(path), trust=trust)
            head = HeadSettings(**about["head"]).as_arguments()
            predictor = Predictor(backbone, head_settings(head, items, str(path)), str(path))
        else:
            predictor = _trained(about, groups, path, items, trust)
        given = {**about["arguments"]}
        if "unsure_below" in given:
            given["unsure_below"] = float(given["unsure_below"])
        predictor = predictor._replace(arguments=given)
        if not 0 <= predictor.unsure_below <= 1:
            raise ValueError(f"unsure below {predictor.unsure_below:g}")
        if "classes" in about:
            predictor = predictor._replace(classes=_classes(predictor, about["classes"], groups))
            _check_sizes(predictor)
        return predictor
    except DAMAGED as error:
        raise UserError(f"{path} is damaged ({type(error).__name__}: {error}): save it again.") from None


def _read(path: Path) -> tuple[dict[str, Any], Groups]:
    about, tensors = read_described(path)
    groups: Groups = {}
    for name, value in tensors.items():
        group, _, member = name.partition("/")
        groups.setdefault(group, {})[member] = value
    if about.get("format") != FORMAT:
        raise UserError(
            f"{path} is not a model that FewShotClassifier.save wrote: for a run, give its directory."
        )
    return about, groups


def _trained(
    about: dict[str, Any], groups: Groups, path: Path, items: Sequence[str], trust: bool
) -> Predictor:
    """The network that a recipe trained; the settings of its head are the file's, unless ``items`` win."""
    head = HeadSettings(**about["head"]).as_arguments()
    recipe = recipe_with(about["recipe"], head, KEYS, items, str(path))
    recipe = admit(recipe, typed_keys(items), str(path), trust)
    how = preprocessing_from(about["preprocessing"])
    network = network_for(recipe, how, about["outputs"])
    weights = groups["params"], groups.get("buffers", {})
    _check_fit(network, *weights, path)
    words = about["weights"]
    return trained_predictor(recipe, settings_in(recipe), network, weights, how, str(path), words)


def _check_fit(network: Network, params: Params, buffers: Buffers, path: Path) -> None:
    """Refuses tensors that are not those of the network."""
    wanted, statistics = network.init(generator(0, "init"))
    for given, needed in ((params, wanted), (buffers, statistics)):
        wrong = [n for n, v in needed.items() if n not in given or given[n].shape != v.shape]
        if wrong:
            raise UserError(
                f"the weights in {path} do not fit its network ({', '.join(wrong[:3])}): leave model.* as it "
                "was trained, or save it again."
            )


def _classes(predictor: Predictor, about: dict[str, Any], groups: Groups) -> Classifier:
    backbone, names = predictor.backbone, unpack_labels(about["names"])
    if len(set(names)) < len(names):
        raise ValueError("two classes have the same name")
    head = head_settings(HeadSettings(**about["head"]).as_arguments(), source=predictor.source)
    state = unpack_state(about["state"], groups.get("task", {}), backbone.params, backbone.buffers)
    examples = Examples(**groups["examples"]) if "examples" in groups else None
    sure = about.get("sureness")
    if sure is not None:
        sure = unpack_sureness(sure, groups["sureness"]["means"], names)
    return Classifier(names, head, state, about["counts"], examples, sure)


def unpack_sureness(about: Mapping[str, Any], means: Tensor, names: Sequence[Any]) -> Sureness:
    """What :func:`pack_sureness` was given."""
    expected = about["expected"]
    if expected is not None:
        by_class = {names[i]: Share(*share) for i, *share in expected["by_class"]}
        expected = ExpectedAccuracy(
            Share(*expected["accuracy"]),
            by_class,
            [ConfusionPair(names[a], names[b], share) for a, b, share in expected["confused"]],
            [name for name in names if name not in by_class],
        )
        shares = [part for share in (expected.accuracy, *by_class.values()) for part in share[:3]]
        if not all(0 <= round(part, 6) <= 1 for part in shares):
            raise ValueError("shares that are none")
    novelty = about["novelty"]
    if novelty is not None:
        threshold, false_alarms, examples = novelty
        novelty = Novelty(float(threshold), float(false_alarms), int(examples))
    temperature, threshold = float(about["temperature"]), 0.0 if novelty is None else novelty.threshold
    if not (0 < temperature < math.inf and 0 <= threshold < math.inf):
        raise ValueError(f"temperature {temperature:g}, threshold {threshold:g}")
    if len(means) != len(names) or not bool(means.isfinite().all()):
        raise ValueError("means that are not those of the classes")
    return Sureness(temperature, expected, novelty, means)


def _check_sizes(predictor: Predictor) -> None:
    """Refuses counts, examples and a head that are not of the classes' number."""
    names, _, state, counts, examples, _ = predictor.learned
    ways = len(names)
    if len(counts) != ways or not all(isinstance(n, int) and n > 0 for n in counts):
        raise ValueError("counts that are not those of the classes")
    if examples is not None and (
        len(examples.z) != len(examples.y) or set(examples.y.tolist()) != {*range(ways)}
    ):
        raise ValueError("examples that are not those of the classes")
    if predictor.learned_by.head is None or not predictor.alone:
        return
    scores = predictor.logits(state.weight[:1])
    if state.bias.shape != state.weight.shape[:1] or scores.shape != (1, ways):
        raise ValueError("a head that is not that of the classes")
