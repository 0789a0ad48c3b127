"""Numbers are collated as torch collates them, only quicker."""

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch.utils.data import default_collate  # noqa: E402

from penstock.workers.columns import _columns, quick  # noqa: E402

COLLATE = quick(default_collate)
LIKE_TORCH: list[Any] = [
    [1, 2, 3],
    [1.5, 2.0],
    [1.5, 2],
    [1, 2.5],
    [True, False],
    [1, True],
    [(1, 2.0), (3, 4.0)],
    [(1, 2.0, -7)],
    [(1, "a"), (2, "b")],
    [(1, torch.ones(2)), (2, torch.zeros(2))],
    [[1, 2], [3, 4]],
    [{"a": 1}, {"a": 2}],
    [np.int64(3), np.int64(4)],
    [np.float32(0.5)],
    [2**62, -(2**63)],
    ["x", "y"],
    [(), ()],
    (1, 2),
]
REFUSED: list[Any] = [
    [1, "2"],
    [(1, 2), (3,)],
    [2**70],
    [1.5, None],
    [None],
    [(1, 2), 3],
    [1, (2, 3)],
]


def same(ours: Any, theirs: Any) -> bool:
    if isinstance(theirs, torch.Tensor):
        return ours.dtype == theirs.dtype and torch.equal(ours, theirs)
    if isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(same(ours[k], theirs[k]) for k in theirs)
    if isinstance(theirs, (list, tuple)) and not isinstance(theirs, str):
        return type(ours) is type(theirs) and all(map(same, ours, theirs))
    return ours == theirs


@pytest.mark.parametrize("items", LIKE_TORCH, ids=str)
def test_numbers_are_collated_as_torch_does(items: Any) -> None:
    assert same(COLLATE(items), default_collate(items))


@pytest.mark.parametrize("items", REFUSED, ids=str)
def test_what_torch_refuses_is_refused_with_its_words(items: Any) -> None:
    with pytest.raises(Exception) as theirs:  # noqa: PT011
        default_collate(items)
    with pytest.raises(type(theirs.value)) as ours:
        COLLATE(items)
    assert str(ours.value) == str(theirs.value)


def test_plain_numbers_take_the_quick_way() -> None:
    assert _columns([(1, 2.0), (3, 4.0)]) is not None


def test_a_collate_of_ones_own_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert quick(None) is None
    assert quick(max) is max
    taught = torch.utils.data._utils.collate.default_collate_fn_map
    monkeypatch.setitem(taught, int, lambda batch, *, collate_fn_map=None: "mine")
    assert quick(default_collate) is default_collate
