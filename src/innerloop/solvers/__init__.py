"""Thousands of small problems at once: linear heads on features, solved with proof, and differentiable."""

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
