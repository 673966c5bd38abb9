"""Publishers' pickles without running them.

A pickle is a program. Here it may build plain data and call nothing, not even numpy's own reconstructors: a
forged dtype could make them read raw bytes as pointers. Arrays are made from the bytes that those would get.
"""

from __future__ import annotations

import pickle
import sys
from typing import IO, Any, Final

import numpy as np
from numpy.typing import NDArray

from innerloop.core.errors import UserError

_SWAPPED: Final = ">" if sys.byteorder == "little" else "<"
_PLAIN_KINDS: Final = "biufSU"  # truth values, integers, floats, bytes, text


class ForbiddenGlobalError(pickle.UnpicklingError):
    """The pickle asks for something that no table of pictures needs."""


def load_pickle(file: IO[bytes], name: str) -> Any:
    """Read a pickle made of plain data; Python 2's strings come back as bytes, which ``text`` reads."""
    try:
        return _finished(_PlainUnpickler(file, encoding="bytes").load())
    except ForbiddenGlobalError as error:
        raise UserError(
            f"{name} was refused: it asks for {error}, and a file of pictures needs only arrays, lists and "
            "text; get it again from its publisher."
        ) from None
    except MemoryError:
        raise UserError(f"{name} does not fit into memory; use a machine with more of it.") from None
    except Exception as error:  # a damaged pickle may fail in any way at all
        raise UserError(
            f"{name} is damaged or not a pickle ({_brief(error)}); get it again from its publisher."
        ) from None


def text(value: Any) -> str:
    """Text of either Python: bytes from Python 2, strings from Python 3."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def by_text(value: Any, name: str) -> dict[str, Any]:
    """A dictionary with its keys as text."""
    if not isinstance(value, dict):
        raise UserError(f"{name} holds a {type(value).__name__} where its publisher's file holds a table.")
    return {text(key): item for key, item in value.items()}


class _Dtype:
    """Stands for ``numpy.dtype`` while reading."""

    def __init__(self, code: Any, *_flags: Any) -> None:
        self.code = text(code)
        self.order = "="

    def __setstate__(self, state: Any) -> None:
        self.order = text(state[1])

    def plain(self) -> np.dtype[Any]:
        """The dtype itself, if it holds plain numbers or text."""
        made = np.dtype(self.code)
        if made.kind not in _PLAIN_KINDS:
            raise ForbiddenGlobalError(f"an array of {self.code}")
        return made.newbyteorder("S") if self.order == _SWAPPED else made


class _Array:
    """Stands for an array while reading: numpy builds it empty, then hands it its state."""

    def __init__(self, *_arguments: Any) -> None:
        self.value: Any = None

    def __setstate__(self, state: Any) -> None:
        _version, shape, dtype, fortran, raw = state
        if dtype.code.startswith("O") and isinstance(raw, list):  # Python objects: a list of plain things
            self.value = raw
            return
        self.value = _from_bytes(raw, dtype, shape, "F" if fortran else "C")


class _ArrayType:
    """Stands for the class ``numpy.ndarray``, which is only ever named."""


def _from_bytes(raw: Any, dtype: _Dtype, shape: Any, order: Any = "C", *_axes: Any) -> NDArray[Any]:
    return np.frombuffer(raw, dtype=dtype.plain()).reshape(shape, order="F" if text(order) == "F" else "C")


def _scalar(dtype: _Dtype, raw: Any) -> Any:
    return np.frombuffer(raw, dtype=dtype.plain())[0].item()


def _encode(value: str, codec: str = "latin1") -> bytes:
    """How Python 3 spells bytes in old protocols; no other codec is needed, and some codecs run code."""
    if text(codec) not in ("latin1", "latin-1"):
        raise ForbiddenGlobalError(f"the codec {text(codec)!r}")
    return value.encode("latin1")


def _empty_bytes() -> bytes:
    return b""


# numpy's modules are called numpy.core and, since 2.0, numpy._core
_KNOWN: Final[dict[tuple[str, str], Any]] = {
    ("numpy", "dtype"): _Dtype,
    ("numpy", "ndarray"): _ArrayType,
    ("_codecs", "encode"): _encode,
    ("builtins", "bytes"): _empty_bytes,
    ("__builtin__", "bytes"): _empty_bytes,
    **{
        (f"numpy.{core}.{module}", function): stand_in
        for core in ("core", "_core")
        for module, function, stand_in in (
            ("multiarray", "_reconstruct", _Array),
            ("multiarray", "scalar", _scalar),
            ("numeric", "_frombuffer", _from_bytes),
        )
    },
}


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """The stand-in of a known name; all others are refused."""
        try:
            return _KNOWN[module, name]
        except KeyError:
            raise ForbiddenGlobalError(f"{module}.{name}") from None


def _finished(value: Any) -> Any:
    """The same with arrays in place of what stood for them."""
    if isinstance(value, _Array):
        return _finished(value.value)
    if isinstance(value, dict):
        return {_finished(key): _finished(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_finished(item) for item in value)
    if isinstance(value, (_Dtype, _ArrayType, type)) or callable(value):
        raise ForbiddenGlobalError("something that is no data")
    return value


def _brief(error: Exception) -> str:
    first = str(error).strip().splitlines()
    return first[0][:100] if first else type(error).__name__
