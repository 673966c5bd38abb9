"""Networks as pure functions of named parameters and explicit buffers."""

from innerloop.nets.conv4 import conv4 as conv4
from innerloop.nets.factory import BACKBONES as BACKBONES
from innerloop.nets.factory import backbone as backbone
from innerloop.nets.mlp import mlp as mlp
from innerloop.nets.module import from_module as from_module
from innerloop.nets.network import Network as Network
from innerloop.nets.network import apply as apply
from innerloop.nets.noise import with_noise as with_noise
from innerloop.nets.noise import without_noise as without_noise
from innerloop.nets.norms import NORM_POLICIES as NORM_POLICIES
from innerloop.nets.resnet12 import resnet12 as resnet12
from innerloop.nets.weights import load_weights as load_weights
from innerloop.nets.wide_resnet import wide_resnet as wide_resnet
