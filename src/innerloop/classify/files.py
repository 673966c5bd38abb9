"""A predictor in one ``.safetensors`` file: tensors in groups, and all else as JSON. No pickle.

=======  ================================================================================================
format   holds
=======  ================================================================================================
1, 2     the arguments of a ``FewShotClassifier`` (in 1, labels as text), a Conv4, and a linear head
3        the recipe in full, how pictures must look, any network, and what any learner adapted
4        also the backbone that it came as, the examples' features, and how sure a head may be
=======  ================================================================================================
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from innerloop.classify.backbones import GROUP, Backbone, packed_backbone, unpacked_backbone
from innerloop.classify.heads import ADAPTING, pack_state, recipe_for, unpack_state
from innerloop.classify.items import Look, pack_labels, unpack_labels
from innerloop.classify.model_path import find_model, model_file
from innerloop.classify.predictor import UNSURE_BELOW, Adapted, Examples, Predictor, network_for, of_backbone
from innerloop.classify.sureness import Confused, Expected, Novelty, Share, Sureness
from innerloop.core.errors import UserError
from innerloop.core.faults import in_words
from innerloop.core.files import plain
from innerloop.core.preprocessing import Preprocessing
from innerloop.core.random import generator
from innerloop.core.tensors import write_tensors
from innerloop.core.types import Buffers, Params
from innerloop.evaluation.features import CACHEABLE
from innerloop.evaluation.labelling import FittedHead
from innerloop.experiment.data import build_data
from innerloop.experiment.kept import KEPT
from innerloop.experiment.loading import load_run
from innerloop.experiment.pictures import IMAGE_FAMILIES
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.recipe.settings import make_recipe, typed_keys
from innerloop.experiment.recipe.trust import admit
from innerloop.experiment.run_data import data_record
from innerloop.experiment.weights import for_test
from innerloop.nets.network import Network
from innerloop.runs.manifest import read_manifest

_NAME = "innerloop-few-shot-classifier-"
FORMAT = f"{_NAME}4"
OLDER = (f"{_NAME}1", f"{_NAME}2")
"""What earlier versions wrote, in words of their own."""
_THIRD = f"{_NAME}3"

Groups = dict[str, dict[str, Tensor]]


class Saved(NamedTuple):
    """What a file or a run holds for predicting."""

    predictor: Predictor
    adapted: Adapted | None = None
    arguments: dict[str, Any] = {}  # noqa: RUF012

    @property
    def unsure_below(self) -> float:
        """Below which probability it calls itself unsure."""
        return float(self.arguments.get("unsure_below", UNSURE_BELOW))


def write_predictor(
    path: Path,
    predictor: Predictor,
    adapted: Adapted | None = None,
    arguments: Mapping[str, Any] | None = None,
) -> Path:
    """Writes a predictor, what it has adapted to, and the arguments of the front.

    Gives the path with suffix.
    """
    look = predictor.look
    about: dict[str, Any] = {
        "recipe": predictor.recipe.model_dump(mode="json"),
        "shape": look.shape,
        "mean": look.mean,
        "std": look.std,
        "outputs": predictor.outputs,
        "weights": predictor.weights,
        "arguments": dict(arguments or {}),
    }
    groups: Groups = {}
    if predictor.backbone is not None:
        about["backbone"], tensors = packed_backbone(predictor.backbone)
        groups["backbone"] = {name.removeprefix(GROUP): value for name, value in tensors.items()}
    else:
        groups |= {"params": predictor.params, "buffers": predictor.buffers}
    if adapted is not None:
        fields, groups["task"] = pack_state(
            adapted.state, adapted.predictor.params, adapted.predictor.buffers
        )
        about["adapted"] = {
            "classes": pack_labels(adapted.names),
            "counts": adapted.counts,
            "state": fields,
            "eval": adapted.predictor.recipe.eval.model_dump(mode="json"),  # as it was when it adapted
        }
        if adapted.examples is not None:
            groups["examples"] = adapted.examples._asdict()
        if adapted.sureness is not None:
            about["adapted"]["sureness"], groups["sureness"] = pack_sureness(adapted.sureness, adapted.names)
    path = model_file(path)
    _write(path, groups, about)
    return path


def _write(path: Path, groups: Groups, about: dict[str, Any]) -> None:
    tensors = {
        f"{group}/{name}": value.detach().cpu().contiguous().clone()
        for group, members in groups.items()
        for name, value in members.items()
    }
    words = {"innerloop": json.dumps(plain({"format": FORMAT, **about}))}
    half = path.with_name(f".{path.name}-{os.getpid()}.tmp")  # what is there stays until the new one is whole
    try:
        write_tensors(half, tensors, words)
        os.replace(half, path)
    except OSError as error:
        half.unlink(missing_ok=True)
        raise UserError(f"cannot write {path}: {in_words(error) or error}") from None


def read_predictor(path: Path, items: Sequence[str] = (), *, trust: bool = False) -> Saved:
    """What :func:`write_predictor` wrote, or an earlier version."""
    about, groups = _read(path)
    try:
        if about["format"] in OLDER:
            about = _renewed(about, groups)
        recipe = make_recipe(about["recipe"], items, source=str(path))
        recipe = admit(recipe, typed_keys(items), str(path), trust)
        look = Look(tuple(about["shape"]), about["mean"], about["std"])
        if about.get("backbone"):
            tensors = {GROUP + name: value for name, value in groups["backbone"].items()}
            backbone = unpacked_backbone(about["backbone"], tensors, str(path), trust=trust)
            predictor = of_backbone(backbone, recipe)._replace(source=str(path))
        else:
            network = network_for(recipe, look, about["outputs"])
            params, buffers = groups["params"], groups.get("buffers", {})
            _check_fit(network, params, buffers, path)
            predictor = Predictor(recipe, network, params, buffers, look, str(path), about["weights"])
        adapted = None
        if about.get("adapted"):
            adapted = _adapted(predictor, about["adapted"], groups, about["recipe"])
        given = {**about["arguments"]}
        if "unsure_below" in given:
            given["unsure_below"] = float(given["unsure_below"])
        saved = Saved(predictor, adapted, given)
        if not 0 <= saved.unsure_below <= 1:
            raise ValueError(f"unsure below {saved.unsure_below:g}")
        return saved
    except (
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        IndexError,
        RuntimeError,
        OverflowError,
    ) as error:
        raise UserError(f"{path} is damaged ({type(error).__name__}: {error}): save it again.") from None


def _adapted(predictor: Predictor, about: dict[str, Any], groups: Groups, recipe: dict[str, Any]) -> Adapted:
    before = make_recipe({**recipe, "eval": about["eval"]})
    then = predictor._replace(recipe=before.model_copy(update={"model": predictor.recipe.model}))
    state = unpack_state(about["state"], groups.get("task", {}), predictor.params, predictor.buffers)
    names = unpack_labels(about["classes"])
    if len(set(names)) < len(names):
        raise ValueError("two classes have the same name")
    examples = Examples(**groups["examples"]) if "examples" in groups else None
    told = about.get("sureness")
    sure = None if told is None else unpack_sureness(told, groups["sureness"], names)
    adapted = Adapted(then, names, state, about["counts"], examples, sure)
    _check_sizes(adapted)
    return adapted


def _check_sizes(adapted: Adapted) -> None:
    """Refuses counts, examples and a head that are not of the classes' number."""
    ways, counts, examples, state = len(adapted.names), adapted.counts, adapted.examples, adapted.state
    if counts is not None and (len(counts) != ways or not all(isinstance(n, int) and n > 0 for n in counts)):
        raise ValueError("counts that are not those of the classes")
    if examples is not None and (
        len(examples.z) != len(examples.y) or set(examples.y.tolist()) != {*range(ways)}
    ):
        raise ValueError("examples that are not those of the classes")
    if adapted.predictor.way(ways).head is None or not adapted.predictor.alone:
        return
    scores = adapted.logits(state.weight[:1])
    if state.bias.shape != state.weight.shape[:1] or scores.shape != (1, ways):
        raise ValueError("a head that is not that of the classes")


def _read(path: Path) -> tuple[dict[str, Any], Groups]:
    from safetensors import SafetensorError, safe_open

    groups: Groups = {}
    try:
        with safe_open(path, "pt") as file:
            about = json.loads((file.metadata() or {}).get("innerloop", "{}"))
            for name in file.keys():  # noqa: SIM118
                group, _, member = name.partition("/")
                groups.setdefault(group, {})[member] = file.get_tensor(name)
    except (OSError, SafetensorError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise UserError(
            f"cannot read {path}: {(str(error).splitlines() or ['no reason given'])[0]}."
        ) from None
    if not isinstance(about, dict) or about.get("format") not in (FORMAT, _THIRD, *OLDER):
        raise UserError(
            f"{path} is not a model that FewShotClassifier.save wrote: for a run, give its directory."
        )
    return about, groups


def _renewed(about: dict[str, Any], groups: Groups) -> dict[str, Any]:
    """What a file of format 1 or 2 says, in the words of format 3; its tensors are put where those are."""
    given, shape = about["settings"], about["shape"]
    needed = {name: given[name] for name in ("filters", "norm", *ADAPTING)}
    renewed = {
        "recipe": recipe_for(needed, shape[0]).model_dump(mode="json"),
        "shape": shape,
        "mean": None,
        "std": None,
        "outputs": int(groups["params"]["head.weight"].shape[0]),
        "weights": "",
        "arguments": given,
    }
    if "classes" not in about:
        return renewed
    statistics = {f"buffers/{name}": value for name, value in groups.get("task", {}).items()}
    groups["task"] = {**groups["head"], **statistics}
    # in the first format the head had the classifier's own setting
    then = {"normalise": about.get("normalised", given["normalise"]), "head": given["head"], "C": given["C"]}
    head = recipe_for(then, shape[0]).eval.model_dump(mode="json")
    fields = {name: name in ("params", "buffers") for name in FittedHead._fields}
    adapted = {"classes": about["classes"], "counts": None, "state": fields, "eval": head}
    return {**renewed, "adapted": adapted}


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


def pack_sureness(sure: Sureness, names: Sequence[Any]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Plain data, and tensors by name."""
    told: dict[str, Any] = {"temperature": sure.temperature, "expected": None, "novelty": None}
    place = {name: i for i, name in enumerate(names)}
    if sure.expected is not None:
        told["expected"] = {
            "accuracy": list(sure.expected.accuracy),
            "by_class": [[place[name], *share] for name, share in sure.expected.by_class.items()],
            "confused": [[place[c.true], place[c.said], c.share] for c in sure.expected.confused],
        }
    if sure.novelty is not None:
        told["novelty"] = list(sure.novelty)
    return told, {"means": sure.means}


def unpack_sureness(told: Mapping[str, Any], tensors: Mapping[str, Tensor], names: Sequence[Any]) -> Sureness:
    """What :func:`pack_sureness` was given."""
    expected = told["expected"]
    if expected is not None:
        by_class = {names[i]: Share(*share) for i, *share in expected["by_class"]}
        expected = Expected(
            Share(*expected["accuracy"]),
            by_class,
            [Confused(names[a], names[b], share) for a, b, share in expected["confused"]],
            [name for name in names if name not in by_class],
        )
        if not all(
            0 <= round(part, 6) <= 1
            for share in (expected.accuracy, *by_class.values())
            for part in share[:3]
        ):
            raise ValueError("shares that are none")
    novelty = told["novelty"]
    if novelty is not None:
        threshold, false_alarms, examples = novelty
        novelty = Novelty(float(threshold), float(false_alarms), int(examples))
    temperature, threshold = float(told["temperature"]), 0.0 if novelty is None else novelty.threshold
    if not (0 < temperature < math.inf and 0 <= threshold < math.inf):
        raise ValueError(f"temperature {temperature:g}, threshold {threshold:g}")
    means = tensors["means"]
    if len(means) != len(names) or not bool(means.isfinite().all()):
        raise ValueError("means that are not those of the classes")
    return Sureness(temperature, expected, novelty, means)


def predictor_from(source: str | Path, items: Sequence[str] = (), *, trust: bool = False) -> Predictor:
    """A trained network that can learn new classes of pictures.

    Args:
        source: a run (its path, the beginning of its name, or ``last``), or a saved file.
        items: ``key=value`` settings for the adaptation, such as ``inner.test_steps=10``.
        trust: whether code that the run or the file names may be imported.

    Raises:
        UserError: there is no such thing, it was not trained on pictures, or it is damaged.
        UntrustedCodeError: it names code from outside that is neither in ``items`` nor trusted.
    """
    return load_model(source, items, trust=trust).predictor


def load_model(source: str | Path, items: Sequence[str] = (), *, trust: bool = False) -> Saved:
    """As :func:`predictor_from`, with the classes that a saved file has learned.

    Args:
        source: a run's directory, or a file.
        items: ``key=value`` settings of adapting and labelling.
        trust: whether code that the recipe names may be imported.
    """
    place = find_model(source)
    if place.is_dir():
        return Saved(_of_run(place, items, trust))
    return read_predictor(place, items, trust=trust)


def _of_run(run: Path, items: Sequence[str], trust: bool) -> Predictor:
    loaded = load_run(run, items, trust=trust)
    recipe = loaded.parts.recipe
    if recipe.tasks.family not in IMAGE_FAMILIES:
        raise UserError(
            f"{run} was trained on {recipe.tasks.family} tasks, not on pictures: give a run on pictures."
        )
    weights, used = loaded.weights()
    params, buffers = for_test(*weights)
    network, look = loaded.parts.network, _look(recipe, run)
    return Predictor(_without_split(recipe, run), network, params, buffers, look, str(run), used)


def _look(recipe: Recipe, run: Path) -> Look:
    """Shape and scale from the manifest; from the data itself for runs that did not record them."""
    recorded = read_manifest(run).get("data") or data_record(build_data(recipe))
    height, width, channels = recorded["shape"]
    return Look((height, width, channels), recorded["mean"], recorded["std"])


def _without_split(recipe: Recipe, run: Path) -> Recipe:
    """The recipe without the place of the split that the run kept: it means nothing in another file."""
    if recipe.data.split_file != str(run / KEPT):
        return recipe
    return recipe.model_copy(update={"data": recipe.data.model_copy(update={"split_file": None})})


def run_backbone(source: str | Path, *, trust: bool = False) -> Backbone:
    """The network of a run on pictures, or of a saved classifier, for features.

    Args:
        source: a run (its path, the beginning of its name, or ``last``), or a saved file.
        trust: whether code that it names may be imported.

    Raises:
        UserError: there is no such thing, or its features of a picture depend on other pictures.
    """
    return backbone_of(load_model(source, trust=trust).predictor)


def backbone_of(predictor: Predictor) -> Backbone:
    """A predictor's network, with the look of the pictures that it was trained on."""
    recipe, norm = predictor.recipe, predictor.network.norm
    if norm not in CACHEABLE:
        raise UserError(
            f"{predictor.source} normalises by the pictures of a task (model.norm={norm}), so that a picture "
            f"has no features of its own: train it with model.norm={' or '.join(CACHEABLE)}."
        )
    words = f"{predictor.source}, {predictor.weights}" if predictor.weights else predictor.source
    seen = f"{recipe.data.name}, training classes"
    model = recipe.model.model_dump(exclude={"kind", "init"})
    return Backbone(
        recipe.model.kind,
        predictor.network,
        predictor.params,
        predictor.buffers,
        look_as_preprocessing(predictor.look),
        words,
        seen,
        "that of its training data",
        model,
    )


def look_as_preprocessing(look: Look) -> Preprocessing:
    """How picture files are brought to what training saw.

    >>> look_as_preprocessing(Look((28, 28, 1))).shape
    (28, 28, 1)
    """
    height, width, _ = look.shape
    return Preprocessing(
        (height, width),
        "fill",
        resample="lanczos",
        mean=None if look.mean is None else tuple(look.mean),
        std=None if look.std is None else tuple(look.std),
        colour=look.colour,
    )
