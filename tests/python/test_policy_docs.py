"""docs/policies.md against what a policy is told: the same fields, in order, with their units."""

import json
import re
from pathlib import Path

import penstock

ROOT = Path(__file__).resolve().parents[2]


def fields_of_header() -> list[tuple[str, str, float]]:
    """PEN_POLICY_STATE: name, unit, scale."""
    header = (ROOT / "include" / "penstock" / "policy.h").read_text()
    table = header.partition("#define PEN_POLICY_STATE(X)")[2].partition("\n\n")[0]
    found = re.findall(r'X\((\w+), "([^"]+)", ([^,]+),', table)
    return [(name, unit, float(scale)) for name, unit, scale in found]


def names_of(cell: str) -> list[str]:
    """`a`, or `a_1` to `a_8`."""
    names = re.findall(r"`(\w+)`", cell)
    if " to " not in cell:
        return names
    (stem, first), (_, last) = (name.rsplit("_", 1) for name in names)
    return [f"{stem}_{number}" for number in range(int(first), int(last) + 1)]


def fields_of_docs() -> list[tuple[str, str, float]]:
    page = (ROOT / "docs" / "policies.md").read_text()
    table = page.partition("| field | unit | scale |")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in row.split("|")[1:5]] for row in table.splitlines()[2:]]
    return [(name, unit, float(scale)) for cell, unit, scale, _ in rows for name in names_of(cell)]


def test_the_docs_list_the_state_in_order_with_units():
    assert len(fields_of_header()) > 60
    assert fields_of_docs() == fields_of_header()


def test_a_log_has_the_fields_in_that_order(folder, ops, tmp_path):
    log = tmp_path / "log.jsonl"
    with penstock.Loader(folder, ops, 4, decision_log=log) as loader:
        while not log.read_text():
            list(loader)
    state = json.loads(log.read_text().splitlines()[0])["state"]
    assert list(state) == [name for name, _, _ in fields_of_header()]
