"""Which operation of a dataset runs where, and why, as a table for people."""

import shutil
import textwrap
from dataclasses import dataclass
from typing import Any

from penstock.torch.compiled import Compiled, NotCompiled, compile_dataset
from penstock.torch.steps import Step

PLACES = {"native": "native", "python": "Python process", "nowhere": "not at all"}
NARROWEST_WHY = 24


@dataclass(frozen=True, repr=False)
class Explanation:
    """What `explain` found: str() is the table, `steps` its lines, `summary` its last one."""

    steps: tuple[Step, ...]
    summary: str

    def __str__(self) -> str:
        head = ("operation", "runs", "why")
        rows = [head] + [(step.name, PLACES[step.where], step.why) for step in self.steps]
        widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
        before = sum(widths) + 4
        room = max(NARROWEST_WHY, shutil.get_terminal_size((100, 0)).columns - before)
        lines = []
        for name, place, why in rows:
            first, *more = textwrap.wrap(why, room) or [""]
            lines.append(f"{name:{widths[0]}}  {place:{widths[1]}}  {first}".rstrip())
            lines += [" " * before + text for text in more]
        return "\n".join([*lines, self.summary])

    def __repr__(self) -> str:
        return f"<Explanation: {self.summary}>"


def explain(dataset: Any, transform: Any = None, *, exact: bool = False) -> Explanation:
    """Print, and return, where each operation of a dataset would run and why.

    The arguments are those of a DataLoader: the dataset, and what it is to apply to its images.
    """
    result = compile_dataset(dataset, transform, exact=exact)
    explanation = Explanation(tuple(result.steps), _summary(result))
    print(explanation)
    return explanation


def _summary(result: Compiled | NotCompiled) -> str:
    if isinstance(result, NotCompiled):
        return f"All of it runs in Python, in worker processes: {result.reason}."
    if result.is_native:
        return "All of it is native: threads, and no Python for a sample."
    if not result.python_rest:
        return "Native up to a PIL image, which default_collate does not take: add ToTensor."
    n_native = sum(step.where != "python" for step in result.steps) - 1
    n_rest = len(result.python_rest)
    return f"Native up to operation {n_native}; {n_rest} more run in Python, in worker processes."
