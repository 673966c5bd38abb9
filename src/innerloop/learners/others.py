"""Learners that tests and analyses use, and that no recipe trains; importing this does not import torch."""

from __future__ import annotations

from innerloop.learners.entry import Entry, Setting, Variant

OTHERS: dict[str, Entry] = {
    "finetune": Entry(
        "fine-tuning",
        "Bridge's released code",
        "innerloop.learners.fine_tuning:fine_tune",
        "all",
        "steps",
        "first order",
        ("lr", "steps", "ways"),
        settings={"normalise": Setting(bool, "whether the new layer sees features of length one")},
        own_head=True,
        needs_labels=True,
        inner_loss="cross-entropy",
        variants={"features as they are": Variant({"settings": {"normalise": False}})},
    ),
    "kernel": Entry(
        "the kernel of a meta-learner",
        "Bridge; MetaNTK",
        "innerloop.learners.kernel:kernel_learner",
        "nothing",
        "nothing",
        "nothing",
        ("ways",),
        variants={method: Variant({"method": method}) for method in ("anil", "maml")},
        made_from="kernels",
        inner_loss="squared errors",
    ),
}
"""By name: entries for the conformance suites."""
