"""Features of pictures by a network that others trained: opened by name, computed once, kept on disk."""

from innerloop.core.preprocessing import Preprocessing as Preprocessing
from innerloop.features.backbone import Backbone as Backbone
from innerloop.features.extracting import Features as Features
from innerloop.features.extracting import extract as extract
from innerloop.features.files import read_backbone as read_backbone
from innerloop.features.files import write_backbone as write_backbone
from innerloop.features.opening import open_backbone as open_backbone
from innerloop.features.overlap import overlap as overlap
from innerloop.features.progress import TimeLeft as TimeLeft
