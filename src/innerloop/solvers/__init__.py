"""Thousands of small problems at once: linear heads on features, solved with proof, and differentiable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from innerloop.core.lazy import lazy

if TYPE_CHECKING:
    from innerloop.solvers.centroids import class_means as class_means
    from innerloop.solvers.centroids import cosine as cosine
    from innerloop.solvers.centroids import nearest_centroid as nearest_centroid
    from innerloop.solvers.crammer_singer import crammer_singer as crammer_singer
    from innerloop.solvers.implicit import implicit as implicit
    from innerloop.solvers.krylov import LinearSolution as LinearSolution
    from innerloop.solvers.krylov import conjugate_gradients as conjugate_gradients
    from innerloop.solvers.logistic import logistic as logistic
    from innerloop.solvers.problems import Linear as Linear
    from innerloop.solvers.problems import LinearResult as LinearResult
    from innerloop.solvers.problems import scores as scores
    from innerloop.solvers.ridge import RidgeResult as RidgeResult
    from innerloop.solvers.ridge import ridge as ridge
    from innerloop.solvers.svc import svc as svc
    from innerloop.solvers.svc import votes as votes
    from innerloop.solvers.svm import linear_svm as linear_svm
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "innerloop.solvers.centroids": "class_means cosine nearest_centroid",
            "innerloop.solvers.crammer_singer": "crammer_singer",
            "innerloop.solvers.implicit": "implicit",
            "innerloop.solvers.krylov": "LinearSolution conjugate_gradients",
            "innerloop.solvers.logistic": "logistic",
            "innerloop.solvers.problems": "Linear LinearResult scores",
            "innerloop.solvers.ridge": "RidgeResult ridge",
            "innerloop.solvers.svc": "svc votes",
            "innerloop.solvers.svm": "linear_svm",
        },
    )
