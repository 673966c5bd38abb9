"""Networks as pure functions of named parameters and explicit buffers."""

from innerloop.nets.conv4 import conv4 as conv4
from innerloop.nets.mlp import mlp as mlp
from innerloop.nets.module import from_module as from_module
from innerloop.nets.network import Network as Network
from innerloop.nets.network import apply as apply
from innerloop.nets.norms import NORM_POLICIES as NORM_POLICIES
from innerloop.nets.weights import load_weights as load_weights
