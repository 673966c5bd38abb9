"""An adapted predictor as one module without arguments but pictures, for ``torch.export``."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from innerloop.experiment.adaptation import pack_state, unpack_state
from innerloop.experiment.adapted import Adapted


class AdaptedModule(torch.nn.Module):
    """Scaling, network and what was adapted: pictures in 0…1 → probabilities."""

    def __init__(self, adapted: Adapted) -> None:
        super().__init__()
        predictor, self._ways = adapted.predictor, len(adapted.names)
        self._learner, self._dtype = predictor.way(self._ways).learner, predictor.dtype
        self._scale = predictor.look.scale(self._dtype)
        self._temperature = 1.0 if adapted.sureness is None else adapted.sureness.temperature
        self._fields, tensors = pack_state(adapted.state, {}, {})
        self._names = list(tensors)
        for i, value in enumerate(tensors.values()):
            self.register_buffer(f"tensor{i}", value)

    def forward(self, x: Tensor) -> Tensor:
        """Probabilities of the adapted classes for pictures in 0…1."""
        tensors = {name: getattr(self, f"tensor{i}") for i, name in enumerate(self._names)}
        state = unpack_state(self._fields, tensors, {}, {})
        logits, _ = self._learner.predict(state, self._scale(x.to(self._dtype)))
        return (logits[:, : self._ways].double() / self._temperature).softmax(-1).to(x.dtype)


def export(adapted: Adapted, path: Path) -> Path:
    """Writes it for any number of pictures; gives the path with its suffix."""
    path = path if path.suffix == ".pt2" else path.with_name(path.name + ".pt2")
    height, width, channels = adapted.predictor.look.shape
    example = torch.zeros(2, channels, height, width)
    batch = torch.export.Dim("batch", min=1)
    program = torch.export.export(AdaptedModule(adapted), (example,), dynamic_shapes=({0: batch},))
    torch.export.save(program, path)
    return path
