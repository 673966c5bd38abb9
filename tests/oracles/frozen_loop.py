"""Heads on frozen features the slow way: episode by episode, scikit-learn's estimators, no cache."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.neighbors import NearestCentroid
from sklearn.svm import SVC, LinearSVC
from torch import Tensor

from innerloop.core.random import derive_seed
from innerloop.core.types import Buffers, Params, Task
from innerloop.data.augment import augment, lee2019
from innerloop.data.source import ImageSource
from innerloop.evaluation.protocol import Protocol
from innerloop.nets.network import Network
from innerloop.tasks.few_shot import few_shot_sampler

STATISTICS = {
    "running": ("stored", "stored"),
    "support": ("batch", "stored"),
    "transductive": ("batch", "batch"),
    "group": ("batch", "batch"),
    "none": ("batch", "batch"),
}


class Cosine:
    """By hand: the angle to each class mean."""

    def fit(self, x: np.ndarray, y: np.ndarray) -> Cosine:
        self.means = np.stack([x[y == c].mean(0) for c in np.unique(y)])
        return self

    def predict(self, q: np.ndarray) -> np.ndarray:
        norms = np.linalg.norm(q, axis=1)[:, None] * np.linalg.norm(self.means, axis=1)
        return (q @ self.means.T / norms).argmax(1)


def estimator(head: str, C: float) -> object:
    return {
        "logistic": LogisticRegression(C=C, tol=1e-10, max_iter=100_000),
        "svm": LinearSVC(C=C, tol=1e-10, max_iter=1_000_000),
        "svc": SVC(kernel="linear", C=C, tol=1e-10),
        "ridge": RidgeClassifier(alpha=1 / (2 * C)),
        "centroid": NearestCentroid(),
        "cosine": Cosine(),
    }[head]


def accuracies(
    network: Network, params: Params, buffers: Buffers, source: ImageSource, split: str, protocol: Protocol
) -> list[float]:
    """The score of every episode, each from its own pictures."""
    dtype = next(iter(params.values())).dtype
    sampler = few_shot_sampler(
        source,
        split,
        seed=protocol.seed,
        ways=protocol.ways,
        shots=protocol.shots,
        queries=protocol.queries,
        dtype=dtype,
    )
    row = {source.files(i): i for i in range(len(source.images))}
    out = []
    for i in range(protocol.episodes):
        task = sampler.episode(i)
        x, y = task.x_support, task.y_support
        if protocol.copies:
            x, y = copied(x, y, [row[name] for name in sampler.files(i)["support"]], protocol)
        out.append(one_accuracy(network, params, buffers, task._replace(x_support=x, y_support=y), protocol))
    return out


def one_accuracy(network: Network, params: Params, buffers: Buffers, task: Task, protocol: Protocol) -> float:
    """The score of a single task."""
    for_support, for_query = STATISTICS[network.norm]
    z, after = network.features(params, buffers, task.x_support, for_support)
    q, _ = network.features(params, after, task.x_query, for_query)
    if protocol.normalise:
        z, q = z / z.norm(dim=1, keepdim=True), q / q.norm(dim=1, keepdim=True)
    model = estimator(protocol.head, protocol.C).fit(z.numpy(), task.y_support.numpy())
    return float((model.predict(q.numpy()) == task.y_query.numpy()).mean())


def copied(x: Tensor, y: Tensor, rows: list[int], protocol: Protocol) -> tuple[Tensor, Tensor]:
    """Every picture's copies, one at a time."""
    seed = derive_seed(protocol.seed, "copies")
    made = [
        augment(picture[None], [row * 4096 + c], seed, lee2019(x.shape[-1]))
        for picture, row in zip(x, rows, strict=True)
        for c in range(protocol.copies)
    ]
    return torch.cat(made), y.repeat_interleave(protocol.copies)
