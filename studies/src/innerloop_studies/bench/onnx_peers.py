"""Features by onnxruntime or OpenVINO, from a file of ONNX that we wrote; imports no torch."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from innerloop_studies.bench.worker import Spec, Worker

Array = np.ndarray[Any, Any]
Run = Callable[[Array], Array]  # one standardised picture (1, 3, H, W) → its features (1, d)


def load(path: Path, side: int = 224) -> np.ndarray[Any, Any]:
    """A picture as the weights want it: the middle 7/8 of its shorter side, resized."""
    with Image.open(path, formats=["JPEG", "PNG"]) as file:
        picture = file.convert("RGB")
    size = int(side / (side + 32) * min(picture.size))
    left, top = (picture.width - size + 1) // 2, (picture.height - size + 1) // 2
    box = (left, top, left + size, top + size)
    picture = picture.crop(box).resize((side, side), Image.Resampling.BICUBIC)
    return (np.asarray(picture, np.float32).transpose(2, 0, 1) - 127) / 128


def by_onnxruntime(model: str, sessions: int, threads: int) -> list[Run]:
    """Sessions that share nothing, each with its threads."""
    onnxruntime = import_module("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads

    def run(session: Any, x: Array) -> Array:
        """One picture."""
        features: Array = session.run(None, {"pictures": x})[0]
        return features

    return [partial(run, onnxruntime.InferenceSession(model, options)) for _ in range(sessions)]


def by_openvino(model: str, sessions: int, threads: int) -> list[Run]:
    """As many streams of a network for one picture at a time, in float32."""
    core = import_module("openvino").Core()
    network = core.read_model(model)
    network.reshape([1, *network.inputs[0].partial_shape[1:]])
    how = {"NUM_STREAMS": sessions, "INFERENCE_NUM_THREADS": sessions * threads}
    compiled = core.compile_model(network, "CPU", {**how, "INFERENCE_PRECISION_HINT": "f32"})

    def run(request: Any, x: Array) -> Array:
        """One picture; its result lies where the next one's will."""
        features: Array = request.infer([x])[0].copy()
        return features

    return [partial(run, compiled.create_infer_request()) for _ in range(sessions)]


LIBRARIES = {"onnxruntime": by_onnxruntime, "openvino": by_openvino}


def build(spec: Spec) -> Callable[[], Array]:
    """Features of what is prepared in ``inputs``, a file of numpy, or of ``files``; by all sessions."""
    n = spec["sessions"]
    runs = LIBRARIES[spec["side"]](spec["model"], n, spec["threads"] // n)
    prepared = np.load(spec["inputs"])["pictures"] if "inputs" in spec else None
    count = len(spec["files"]) if prepared is None else len(prepared)

    def share(worker: int) -> list[Array]:
        """What falls to a session."""
        own = range(worker, count, n)
        if prepared is not None:
            return [runs[worker](prepared[i : i + 1]) for i in own]
        return [runs[worker](load(Path(spec["files"][i]))[None]) for i in own]

    def call() -> Array:
        with ThreadPoolExecutor(n) as pool:
            shares = list(pool.map(share, range(n)))
        return np.concatenate([shares[i % n][i // n] for i in range(count)])

    return call


WORKER = Worker(build, np.asarray)
