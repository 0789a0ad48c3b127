"""A line of torchvision's transforms as penstock's, as far as it goes.

Each transform is known by its exact type and translated with what is known about the value it
would receive: a PIL image or a tensor, bytes or floats, of which size.  A native pipeline works
on bytes until ToTensor, with Pillow's pixels, and ends with one size.  So

  - an operation on tensors of bytes is native where torchvision's tensor kernel gives the same
    bytes, or is off by at most one level (never with `exact`);
  - an operation that moves pixels about, on floats, is done before ToTensor instead: it commutes
    with what acts on each value alone;
  - conversions and Normalize are tried on all 256 values before they are believed.

What does not fit is refused with a reason.  The line is cut there, or before it, where the size
is known: a native part, then Python.
"""

import io
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from penstock import transforms as T
from penstock.errors import Error
from penstock.sample import DType, apply, pipeline
from penstock.torch.augmentations import AUGMENTATIONS, GROUPS, group
from penstock.torch.steps import Kind, Step
from penstock.torch.vocabulary import BASICS, Done, Refusal, Value, torchvision_name

CONTAINERS = ("Compose", "Sequential")
TRANSLATORS = BASICS | AUGMENTATIONS
MAX_NAME = 44

Call = Callable[[Any], Any]


@dataclass(frozen=True)
class Line:
    """The native part, what its result is, and what is left for Python."""

    ops: list[T.Transform]
    kind: Kind
    dtype: DType
    rest: list[Call]
    reason: str = field(compare=False)  # why there is a rest, or ""
    steps: list[Step] = field(compare=False)


@dataclass(frozen=True)
class Place:
    """A place in the line: what is known there, and the native line up to it."""

    value: Value
    pixel_ops: tuple[T.Transform, ...] = ()
    tail_ops: tuple[T.Transform, ...] = ()
    pointwise: tuple[Call, ...] = ()  # the calls that the tail stands for, but for erasing
    steps: tuple[Step, ...] = ()

    @property
    def ops(self) -> list[T.Transform]:
        return [*self.pixel_ops, *self.tail_ops]


def translate(transform: Any, exact: bool = False) -> Line:
    """`transform` is whatever a dataset may carry: None, a Compose, any callable, or a list."""
    calls = list(flat(transform))
    calls[:1] = _preset(calls[:1])
    places = [Place(Value(exact=exact))]
    reason = ""
    for call in calls:
        try:
            places.append(_step(places[-1], call))
        except Refusal as refusal:
            reason = str(refusal)
            break
    refused = len(places) - 1
    if refused < len(calls):
        cause = f"{short_name(calls[refused])}: {reason}"
    elif places[-1].value.size is None:
        cause = "images differ in size at the end: there is no crop or Resize to (h, w)"
    else:
        cause = ""
    while len(places) > 1 and places[-1].value.size is None:
        places.pop()
    at, n_native = places[-1], len(places) - 1
    steps = [*at.steps, *_python_steps(calls, n_native, refused, reason)]
    return Line(at.ops, at.value.kind, at.value.dtype, calls[n_native:], cause, steps)


def flat(transform: Any) -> Iterator[Call]:
    """The calls that a nest of Compose makes, one after another."""
    children: Iterable[Any] = ()
    if isinstance(transform, list | tuple):
        children = transform
    elif torchvision_name(transform) in CONTAINERS and not _alteration(transform):
        children = getattr(transform, "transforms", transform)
    elif transform is not None:
        yield transform
    for child in children:
        yield from flat(child)


def _preset(first: list[Call]) -> list[Call]:
    """What `weights.transforms()` gives for classification, as the transforms it stands for; it
    takes PIL images as they do when it comes first."""
    kind = type(first[0]) if first else None
    if kind is None or kind.__module__ != "torchvision.transforms._presets":
        return first
    preset: Any = first[0]
    if kind.__qualname__ != "ImageClassification" or _alteration(preset):
        return first
    import torch
    from torchvision import transforms as v1

    return [
        v1.Resize(preset.resize_size, preset.interpolation, antialias=preset.antialias),
        v1.CenterCrop(preset.crop_size),
        v1.PILToTensor(),
        v1.ConvertImageDtype(torch.float32),
        v1.Normalize(preset.mean, preset.std),
    ]


def _step(at: Place, call: Call) -> Place:
    """The place behind `call`."""
    done = translated(call, at.value)
    place = Place(
        done.after,
        at.pixel_ops + done.pixel_ops,
        at.tail_ops + done.tail_ops,
        at.pointwise + ((call,) if done.is_pointwise else ()),
        (*at.steps, Step(name_of(call), done.where, done.why)),
    )
    _check_together(place)
    if done.is_pointwise:
        _try_all_values(place)
    return place


def translated(call: Call, value: Value) -> Done:
    """One transform in native words, or a Refusal."""
    name = torchvision_name(call)
    if name is None:
        raise Refusal(_strangeness(call))
    if name == "Lambda":
        raise Refusal("a Python function")
    if name not in TRANSLATORS and name not in GROUPS:
        raise Refusal("has no native form")
    if alteration := _alteration(call):
        raise Refusal(alteration)
    try:
        if name in GROUPS:
            return group(call, value, translated)
        return TRANSLATORS[name](call, value)
    except (ValueError, TypeError, AttributeError) as error:
        raise Refusal(str(error)) from None


def _check_together(place: Place) -> None:
    """Would a pipeline take these operations?  A crop stands in where the size is not known."""
    is_sized = place.value.size is not None
    ops = [*place.pixel_ops, *(() if is_sized else (T.CenterCrop(1),)), *place.tail_ops]
    try:
        pipeline(ops, _dtype(place.value))
    except (Error, ValueError) as error:
        raise Refusal(str(error)) from None


def _dtype(value: Value) -> Any:
    return value.dtype if value.is_float else None


def _try_all_values(place: Place) -> None:
    """Compare the native tail with torchvision's on every value a byte may have."""
    import torch
    from PIL import Image

    channels = place.value.channels
    mode = "L" if channels == 1 else "RGB"
    ramp = Image.frombytes(mode, (256, 1), bytes(v for v in range(256) for _ in range(channels)))
    file = io.BytesIO()
    ramp.save(file, "PNG")
    tail = [op for op in place.tail_ops if not isinstance(op, T.RandomErasing)]
    line = [T.Decode(channels), T.CenterCrop((1, 256)), *tail]
    ours = torch.from_dlpack(apply(file.getvalue(), line, dtype=_dtype(place.value)))
    theirs: Any = ramp
    try:
        with warnings.catch_warnings():  # torchvision's advice is for when it runs
            warnings.simplefilter("ignore")
            for call in place.pointwise:
                theirs = call(theirs)
    except Exception as error:
        raise Refusal(f"torchvision refuses it: {error}") from None
    if ours.dtype != theirs.dtype or not torch.equal(ours, theirs):
        raise Refusal(f"its {theirs.dtype} results would not be the same to the last bit")


# Words.


def name_of(call: Call) -> str:
    """As short as it stays telling: repr, or a function's name and place."""
    code = getattr(call, "__code__", None)
    if code is not None:
        file = code.co_filename.rpartition("/")[2]
        return f"{getattr(call, '__qualname__', 'function')} ({file}:{code.co_firstlineno})"
    text = " ".join(repr(call).split())
    if text.startswith("<"):
        return type(call).__qualname__
    return text if len(text) <= MAX_NAME else text[: MAX_NAME - 3] + "..."


def short_name(call: Call) -> str:
    return name_of(call) if hasattr(call, "__code__") else type(call).__qualname__


def _strangeness(call: Call) -> str:
    """Why a call is not known."""
    for base in type(call).__mro__[1:]:
        if base.__qualname__ in TRANSLATORS and base.__module__.startswith("torchvision."):
            return f"a subclass of {base.__qualname__}, which may do something else"
    if hasattr(call, "__code__"):
        return "a Python function"
    return f"{type(call).__module__}.{type(call).__qualname__} is not known here"


def _alteration(call: Any) -> str:
    """What was done to this object alone, so that its type does not tell what it does."""
    if getattr(call, "_forward_hooks", None) or getattr(call, "_forward_pre_hooks", None):
        return "has hooks"
    replaced = [name for name in vars(call) if callable(getattr(type(call), name, None))]
    return f"its {replaced[0]} was replaced" if replaced else ""


def _python_steps(calls: list[Call], n_native: int, refused: int, reason: str) -> list[Step]:
    """What is said about the calls that are not native; `refused` is the one at fault."""
    steps = []
    for number, call in enumerate(calls[n_native:], n_native):
        if number == refused:
            why = reason
        elif number > refused:
            why = f"comes after {short_name(calls[refused])}"
        else:
            why = "images still differ in size here, and a native part ends with one size"
        steps.append(Step(name_of(call), "python", why))
    return steps
