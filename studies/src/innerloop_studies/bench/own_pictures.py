"""Your own pictures: features against a script, onnxruntime and OpenVINO, episodes, the whole command."""

import io
import json
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from innerloop.core.resources import available_cores
from innerloop_studies.bench import environments, harness, onnx_peers
from innerloop_studies.bench.harness import Array, Comparison, Report, Say, Side, better, busy
from innerloop_studies.bench.heads import looped
from innerloop_studies.bench.worker import WITHOUT_TORCH, Bystanders, Spec, Worker

TITLE = "features of pictures against eager torch, onnxruntime and OpenVINO; 2,000 episodes; predict"
VERSION = 2
PEERS = ("openvino",)
NAME = "efficientnet-lite0"
PICTURES, QUICK = 500, 200
CLASSES = 25
ALIKE = 1e-5  # of their length: features of all sides
PREPARED = 64  # pictures that are in memory, as the network wants them
AT_LEAST = {"first": 3.5, "again": 50.0}
LIBRARIES = 1.0
"""Ours beside the better of onnxruntime and OpenVINO, whose sides' names start with :data:`OTHERS`."""
OTHERS = "by "
REAL = "tiny_imagenet_60.npz"
"""Photographs of 64×64 as JPEG files, in the folder that INNERLOOP_TEST_DATA names."""


@contextmanager
def picture_files(count: int) -> Iterator[tuple[list[Path], str]]:
    """So many files in a folder per class, and what they are: photographs if they are here, else noise."""
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(os.environ.get("INNERLOOP_TEST_DATA") or folder, REAL)
        classes = min(CLASSES, count)
        shape = classes, -(-count // classes)
        made, what = _noise(*shape), "pictures of noise"
        if archive.is_file():
            made, what = photographs(archive, *shape), "photographs of Tiny-ImageNet"
        files = []
        for label, number, data in islice(made, count):
            files.append(Path(folder, f"class{label:02d}", f"{number:03d}.jpg"))
            files[-1].parent.mkdir(exist_ok=True)
            files[-1].write_bytes(data)
        yield files, what


def photographs(archive: Path, classes: int, per: int) -> Iterator[tuple[int, int, bytes]]:
    """Photographs as files of JPEG, with the number of their class and their own."""
    with np.load(archive) as tables:
        data, offsets, labels = tables["jpeg"], tables["offsets"], tables["labels"]
        chosen = np.unique(labels)[np.linspace(0, len(np.unique(labels)) - 1, classes).astype(int)]
        for place, label in enumerate(chosen):
            for number, i in enumerate(np.flatnonzero(labels == label)[:per]):
                yield place, number, data[offsets[i] : offsets[i + 1]].tobytes()


def _noise(classes: int, per: int) -> Iterator[tuple[int, int, bytes]]:
    from PIL import Image

    draw = np.random.default_rng(0)
    for label in range(classes):
        common = draw.integers(0, 128, (8, 8, 3), dtype=np.uint8)
        for number in range(per):
            values = common + draw.integers(0, 128, (8, 8, 3), dtype=np.uint8)
            file = io.BytesIO()
            Image.fromarray(values).resize((64, 64)).save(file, "JPEG")
            yield label, number, file.getvalue()


def features_side(spec: Spec) -> Callable[[], Any]:
    """The side of features asked for by ``side``, ``threads`` and ``files``."""
    import torch

    from innerloop.classify import extract, open_backbone

    files = [Path(file) for file in spec["files"]]
    backbone = open_backbone(NAME) if spec["weights"] == "published" else _drawn()
    if "inputs" in spec:
        return network_side(backbone, spec)
    if spec["side"] == "script":
        from innerloop_studies.bench.own_pictures_script import script

        torch.set_num_threads(spec["threads"])
        return script({**backbone.params, **backbone.buffers}, files)
    folder = Path(spec["folder"], spec["side"])

    def call() -> Any:
        if spec["side"] == "first":
            shutil.rmtree(folder, ignore_errors=True)
        return extract(backbone, files, cache=folder, threads=spec["threads"]).values

    return call


def network_side(backbone: Any, spec: Spec) -> Callable[[], Array]:
    """The network alone on prepared pictures, by workers as features have them."""
    import torch

    from innerloop.classify.backbones import onnxruntime_forward
    from innerloop.classify.features import BATCH, Way, plans_for, run_parts

    forward = onnxruntime_forward(backbone) if spec["side"] == "onnxruntime" else None
    forward = forward or backbone.forward()
    x = torch.from_numpy(np.load(spec["inputs"])["pictures"])
    parts = x.contiguous(memory_format=torch.channels_last).split(BATCH)

    def work(part: torch.Tensor) -> Array:
        """Features of a part."""
        with torch.inference_mode():
            return np.asarray(forward(part))

    return lambda: np.concatenate(list(run_parts(parts, [Way("", plans_for(spec["threads"])[0], work)])))


def peer_sides(given: Spec, say: Say) -> list[Side]:
    """Onnxruntime and OpenVINO, where they are: a session of one thread for every core, or one with all."""
    cores = available_cores()
    where = {"openvino": environments.find("openvino", say)}
    if find_spec("onnxruntime"):
        where["onnxruntime"] = environments.Environment(sys.executable, {})
    return [
        Side(f"{OTHERS}{library}@{n}×{cores // n}", spec | {"sessions": n}, onnx_peers.__name__, place)
        for library, place in where.items()
        if place is not None
        for spec in [{**given, "side": library, "threads": cores}]
        for n in sorted({1, cores})
    ]


def network_case(base: Spec, peers: Sequence[Side], quick: bool, what: str, say: Say) -> list[Comparison]:
    """Rows without decoding: ours by onnxruntime and by torch against the better of peers."""
    ways = ["torch", *["onnxruntime"] * (find_spec("onnxruntime") is not None)]
    sides = [Side(f"ours, {way}", {**base, "side": way, "threads": available_cores()}) for way in ways]
    with harness.started([*sides, *peers], __name__, say) as all_sides:
        off = harness.disagreement(all_sides.results, "ours, torch", ALIKE, "features")
        measured = all_sides.measured(quick, (2, 0.1), (5, 1.0))
    case, notes = f"the network alone, {PREPARED} prepared pictures", [what, f"features differ by {off:.1g}"]
    given = OTHERS, LIBRARIES, notes, best_peer(measured)
    return [measured.row(f"{case}, {side.name}", *given, side.name) for side in sides]


def best_peer(measured: harness.Measured) -> str:
    """The fastest of onnxruntime and OpenVINO, and how many sessions of how many threads it had."""
    return better(measured.timings, OTHERS).side.name.removeprefix(OTHERS)


def write_for_peers(files: Sequence[Path], weights: str, folder: str) -> Spec:
    """The network as a file of ONNX, and prepared pictures."""
    from innerloop.classify.backbones import open_backbone
    from innerloop.nets.efficientnet_lite import onnx_efficientnet_lite

    backbone = open_backbone(NAME) if weights == "published" else _drawn()
    model, inputs = Path(folder, "network.onnx"), Path(folder, "prepared.npz")
    model.write_bytes(onnx_efficientnet_lite(0, backbone.params, backbone.buffers))
    np.savez(inputs, pictures=np.stack([onnx_peers.load(file) for file in files[:PREPARED]]))
    return {"model": str(model), "inputs": str(inputs)}


def _drawn() -> Any:
    """The same network with weights as they are drawn: as fast, where nobody has installed the others."""
    import torch

    from innerloop.classify.backbones import Backbone
    from innerloop.nets.factory import backbone
    from innerloop.nets.pretrained import PRETRAINED

    network = backbone(NAME, 3, 224, 1000, norm="running")
    params, buffers = network.init(torch.Generator().manual_seed(0))
    return Backbone(NAME, network, params, buffers, PRETRAINED[NAME].preprocessing, "drawn")


def run(quick: bool = False, say: Say = print, sizes: dict[str, int] | None = None) -> Report:
    """Features from nothing, from the cache and by the script; episodes on them, and the whole command."""
    from innerloop.nets.pretrained import is_installed

    count = (sizes or {}).get("pictures", QUICK if quick else PICTURES)
    weights, rows = "published" if is_installed(NAME) else "drawn", []
    with picture_files(count) as (files, what), tempfile.TemporaryDirectory() as folder:
        base = {"files": [str(file) for file in files], "weights": weights}
        ours = {**base, "threads": available_cores(), "folder": folder}
        sides = [Side(f"ours, {which}", {**ours, "side": which}) for which in AT_LEAST]
        sides += harness.on_threads(["script"], base)
        peers: list[Side] = []
        if find_spec("onnx") is None:
            say("onnx is not installed, and its users are left out: pip install 'innerloop[fast]'")
        else:
            written = write_for_peers(files, weights, folder)
            peers = peer_sides(base | {"model": written["model"]}, say)
        with harness.started(sides + peers, __name__, say) as all_sides:
            off = harness.disagreement(all_sides.results, "script@1", ALIKE, "features")
            measured = all_sides.measured(quick, (2, 0.1), (3, 1.0), warm=1)
        script, of_what = better(measured.timings, "script@"), f"{what}, {weights} weights"
        for which, words, *against in (
            ("first", "decode to vector", "script@", "script"),
            ("again", "from the cache", "ours, first", "ours, first time"),
        ):
            mine, (peer, name), n = f"ours, {which}", against, len(files)
            speed = f"{measured.timings[mine].ms / n:.1f} ms a picture, the script {script.ms / n:.1f}"
            notes, case = [speed, of_what, f"features differ by {off:.1g}"], f"features of {n} pictures"
            rows.append(measured.row(f"{case} at 224, {words}", peer, AT_LEAST[which], notes, name, mine))
        if peers:
            case, peer = f"features of {len(files)} pictures at 224, decode to vector", best_peer(measured)
            rows.append(measured.row(case, OTHERS, LIBRARIES, [of_what], peer, "ours, first"))
            rows += network_case(base | written, peer_sides(written, say), quick, of_what, say)
        labels = [file.parent.name for file in files]
        rows.append(episodes_case(all_sides.results["ours, first"], labels, quick, of_what, sizes or {}, say))
        if weights == "published":
            rows.append(command_case(files, quick, what))
            say(f"{rows[-1]['case']}: {rows[-1]['ratio']:.1f}×; {rows[-1]['notes']}")
    return {"cases": rows, "machine": harness.machine()}


# ---- episodes on features that are there ----

EPISODES, LOOPED = 2000, 100  # a loop takes twenty times as long for twenty times as many
WAYS, SHOTS, QUERIES, C = 5, 5, 15, 1.0
FASTER = 20.0
CLOSE = 2e-3
"""How far the mean accuracies of both sides may differ: a query on the border may fall to either side."""


def ours(features: Array, spec: Spec) -> Callable[[], Any]:
    """All episodes, as ``innerloop eval --backbone`` judges them once features are there."""
    import torch

    from innerloop.evaluation import Protocol, evaluate_features
    from innerloop.training.execution.plan import Plan

    shape, values = spec["sizes"], torch.from_numpy(features)
    source, plan = labelled(spec["labels"]), Plan("loop", spec["threads"])
    protocol = Protocol(WAYS, shape["shots"], shape["queries"], shape["episodes"], head="logistic", C=C)
    return lambda: evaluate_features(lambda rows: values[rows], source, protocol, plan=plan).scores


def labelled(labels: Sequence[str] | Array) -> Any:
    """A source of pictures whose pixels nobody looks at: only which row is of which class."""
    from innerloop.data.source import ImageSource, NumberedFiles

    names, counts = np.unique(labels, return_counts=True)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    images, splits = np.zeros((len(labels), 1, 1, 1), np.uint8), {"test": np.arange(len(names))}
    classes, files = tuple(map(str, names)), NumberedFiles("{row}")
    return ImageSource("features", images, starts, classes, splits, None, (), files, "")


def scikit_learn(features: Array, spec: Spec) -> Callable[[], Any]:
    """A loop over the same episodes; features have length one before it."""
    from sklearn.linear_model import LogisticRegression

    with np.load(spec["drawn"]) as drawn:
        rows = [drawn[name] for name in ("support", "query", "y", "truth")]
    z = features / np.linalg.norm(features, axis=1, keepdims=True)

    def accuracy(support: Array, query: Array, y: Array, truth: Array) -> float:
        fitted = LogisticRegression(C=C, max_iter=1000).fit(z[support], y)
        return float(fitted.score(z[query], truth))

    return looped(accuracy, spec["threads"], *rows)


def write_episodes(labels: Sequence[str], sizes: dict[str, int], file: Path) -> None:
    """The rows of the first episodes, for the loop."""
    from innerloop.tasks.episodes import Kind
    from innerloop.tasks.few_shot import few_shot

    kinds = (Kind(WAYS, sizes["shots"], sizes["queries"]),)
    rows = few_shot(labelled(labels), "test", 0, kinds, True).rows(np.arange(sizes["looped"]), 0)
    np.savez(file, support=rows.support, query=rows.query, y=rows.support_labels, truth=rows.query_labels)


def episodes_case(
    features: Array, labels: Sequence[str], quick: bool, what: str, given: dict[str, int], say: Say
) -> Comparison:
    """A row: ours against the loop, each at its better number of threads."""
    fewest = int(np.unique(labels, return_counts=True)[1].min())
    queries = given.get("queries", min(QUERIES, fewest - SHOTS))
    sizes = {"episodes": EPISODES, "looped": LOOPED, "shots": SHOTS, **given, "queries": queries}
    with tempfile.TemporaryDirectory() as folder:
        spec: Spec = {"labels": list(labels), "sizes": sizes}
        spec |= {"features": f"{folder}/features.npy", "drawn": f"{folder}/drawn.npz"}
        np.save(spec["features"], features)
        write_episodes(labels, sizes, Path(spec["drawn"]))
        sides = harness.on_threads(("ours", WITHOUT_TORCH), spec)
        scale = harness.peers_times(sizes["episodes"] / sizes["looped"])
        with harness.started(sides, __name__, say) as both:
            off = accuracy_gap(both.results, sizes["looped"])
            measured = both.measured(quick, (2, 0.1), (5, 1.0), scale=scale, warm=1)
    mean = float(np.mean(both.results["ours@1"]))
    notes = [what, f"accuracy {100 * mean:.1f} %, that of the loop differs by {100 * off:.2g} points"]
    case = f"{sizes['episodes']:,} episodes on cached features, {WAYS}-way {sizes['shots']}-shot, logistic"
    return measured.row(case, WITHOUT_TORCH, FASTER, notes)


def accuracy_gap(accuracies: dict[str, Array], looped: int) -> float:
    """How far the mean accuracies on the first episodes differ."""
    theirs = accuracies["scikit-learn@1"]
    off = max(abs(float(np.mean(a[:looped] - theirs))) for a in accuracies.values())
    if not off <= CLOSE:
        raise RuntimeError(f"our accuracy differs from scikit-learn's by {off:.2g} on the same episodes")
    return off


# ---- from a folder of examples to labels of new pictures: the whole command, its start included ----

LEARNT, EXAMPLES, NEW = 10, 5, 10  # classes, examples of each, and new pictures of each
LIMIT = 40.0  # seconds that are promised, with nothing kept from before, on two cores


def laid_out(files: Sequence[Path], folder: Path) -> tuple[Path, Path, dict[str, str]]:
    """Folders of examples and of new pictures, and the classes of the latter by file name."""
    of: dict[str, list[Path]] = {}
    for file in files:
        of.setdefault(file.parent.name, []).append(file)
    examples, new, truth = folder / "examples", folder / "new", {}
    new.mkdir(parents=True)
    for label in sorted(of)[:LEARNT]:
        (examples / label).mkdir(parents=True)
        for file in of[label][:EXAMPLES]:
            shutil.copy(file, examples / label / file.name)
        for file in of[label][EXAMPLES : EXAMPLES + NEW]:
            truth[f"{label}-{file.name}"] = label
            shutil.copy(file, new / f"{label}-{file.name}")
    return examples, new, truth


def once(examples: Path, new: Path, truth: dict[str, str]) -> tuple[float, float]:
    """Seconds that the command takes with nothing kept, and the share of its labels that are right."""
    words = ("predict", "--support", str(examples), str(new), "--json", "--quiet")
    with tempfile.TemporaryDirectory() as kept:
        env = {**os.environ, "INNERLOOP_DATA": kept}
        seconds, printed = harness.timed_command("predict", *words, env=env)
    rows = json.loads(printed)["predictions"]
    return seconds, sum(truth[Path(row["file"]).name] == row["label"] for row in rows) / len(truth)


def command_case(files: Sequence[Path], quick: bool, what: str) -> Comparison:
    """A row: seconds of the command against those that are promised."""
    with tempfile.TemporaryDirectory() as folder:
        examples, new, truth = laid_out(files, Path(folder))
        learnt = len(list(examples.rglob("*.jpg")))
        watch = Bystanders([])
        outcomes = [once(examples, new, truth) for _ in range(1 if quick else 3)]
        others = busy(watch.cores())
    seconds = statistics.median(took for took, _ in outcomes)
    right = f"{what}; {100 * outcomes[0][1]:.0f} % of the labels are right"
    kept = "a new process with no features kept; the system may have its files in memory"
    case = f"{learnt} examples and {len(truth)} new pictures to labels, the whole command"
    times = {"ours_ms": 1e3 * seconds, "peer_ms": 1e3 * LIMIT, "ratio": LIMIT / seconds}
    measured = {**times, "ours_mb": None, "peer_mb": None, "at_least": 1.0}
    told = case, f"promised {LIMIT:.0f} s", measured, "; ".join([right, kept, *others])
    return harness.single_row(*told, threads=f"{available_cores()} / -", repeats=len(outcomes))


def build(spec: Spec) -> Callable[[], Any]:
    """A side of features, or of episodes where features are given."""
    if "features" not in spec:
        return features_side(spec)
    side = ours if spec["side"] == "ours" else scikit_learn
    return side(np.load(spec["features"]), spec)


WORKER = Worker(build, np.asarray)
