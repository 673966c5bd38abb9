"""Closed forms and estimators on arrays only: what can be said before training."""

from innerloop.theory import landscape as landscape
from innerloop.theory import rate as rate
from innerloop.theory.basis import gaussian_basis as gaussian_basis
from innerloop.theory.basis import polynomial_basis as polynomial_basis
from innerloop.theory.basis import random_matrix as random_matrix
from innerloop.theory.basis import spread_centres as spread_centres
from innerloop.theory.convergence import Rates as Rates
from innerloop.theory.convergence import common_rate as common_rate
from innerloop.theory.convergence import linear_distance as linear_distance
from innerloop.theory.convergence import linear_loss as linear_loss
from innerloop.theory.convergence import loss_bound as loss_bound
from innerloop.theory.convergence import rates as rates
from innerloop.theory.hardness import head_rate as head_rate
from innerloop.theory.hardness import losses_after_steps as losses_after_steps
from innerloop.theory.hardness import nearest_neighbour_error as nearest_neighbour_error
from innerloop.theory.hardness import rank_correlation as rank_correlation
from innerloop.theory.permuted import Symmetric as Symmetric
from innerloop.theory.permuted import permuted_landscape as permuted_landscape
from innerloop.theory.spectra import DepthStructure as DepthStructure
from innerloop.theory.spectra import condition as condition
from innerloop.theory.spectra import depth_structure as depth_structure
from innerloop.theory.spectra import inverse_gap as inverse_gap
from innerloop.theory.spectra import spectrum as spectrum
