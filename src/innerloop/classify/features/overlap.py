"""What pretrained weights have seen already: a score on such classes is no score on new ones."""

from __future__ import annotations

from typing import Literal

from innerloop.nets.pretrained import IMAGENET, UNKNOWN

_SAME = "the classes of {} are classes of ImageNet"
_LIKE = "many classes of {} are classes of ImageNet under another name"
_BIRDS = "ImageNet has 59 kinds of birds, and some of the very photographs of {}"
SEEN = {
    IMAGENET: {
        "mini-imagenet": _SAME,
        "mini-imagenet-vinyals": _SAME,
        "tiered-imagenet": _SAME,
        "tiny-imagenet": _SAME,
        "cifar-fs": _LIKE,
        "fc100": _LIKE,
        "cifar100": _LIKE,
        "cub": _BIRDS,
    }
}
"""Training data of weights → datasets that share classes with it, and how."""


def seen_before(seen: str, dataset: str) -> Literal["yes", "perhaps", "no"]:
    """Whether weights have seen classes of a dataset, in a word for tables; :func:`overlap` is the sentence.

    >>> seen_before("ImageNet-1k", "cub"), seen_before("unknown", "cub"), seen_before("unknown", "omniglot")
    ('yes', 'perhaps', 'no')
    """
    if dataset in SEEN.get(seen, {}):
        return "yes"
    return "perhaps" if seen == UNKNOWN and any(dataset in table for table in SEEN.values()) else "no"


def overlap(seen: str, dataset: str) -> str | None:
    """A sentence on classes that weights have seen before they are judged on them; None if there are none.

    Args:
        seen: what the weights were trained on (``Backbone.seen``).
        dataset: its name in the catalogue. Nothing is known of pictures of one's own.

    >>> overlap("ImageNet-1k", "omniglot") is None
    True
    >>> print(overlap("ImageNet-1k", "fc100"))
    this is no test on new classes: the weights were trained on ImageNet-1k, and many classes of fc100 are
    classes of ImageNet under another name.
    """
    known = seen_before(seen, dataset)
    if known == "yes":
        reason = SEEN[seen][dataset].format(dataset)
        return f"this is no test on new classes: the weights were trained on {seen}, and {reason}."
    if known == "perhaps":
        return (
            "this may be no test on new classes: what the weights were trained on is not known here, and "
            f"they may have seen the classes of {dataset}."
        )
    return None
