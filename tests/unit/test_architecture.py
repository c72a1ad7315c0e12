"""What holds the house together: one name for one thing, and nobody asks which half an agent is of."""

import ast
import re
from pathlib import Path

import pytest

from actsafe.training.config import AGENTS

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src" / "actsafe").rglob("*.py"))
PLACES = [str(path.relative_to(ROOT / "src" / "actsafe")) for path in SOURCES]
TREES = {place: ast.parse(path.read_text()) for place, path in zip(PLACES, SOURCES, strict=True)}
HALVES = {*AGENTS, "vision"}
"""Words by which one could tell the two kinds of agents apart."""
OWN_KIND = {"agents/gp.py", "agents/world_model.py", "training/presets.py"}
"""Where the classes of a kind are at home, and where experiments of that kind are described."""
NARROWED = {"cli/demo.py", "cli/reproduce.py", "report/uncertainty.py", "training/reference.py"}
"""Where a class is asked for as what follows is of that kind alone: sizes of a preset with a planner, pictures of the
uncertainty over a state space, and the reference that plans with the true dynamics."""
NAMES_OF_TASKS = ("problems/", "training/presets.py", "figures/swing_up.py", "envs/registration.py")
"""Where a task may be named: its problem, presets, the one figure that is of it, and the ids that are made of it."""


def identifiers(tree):
    """Every name that is defined or used."""
    for node in ast.walk(tree):
        for field in ("id", "name", "attr", "arg", "asname"):
            value = getattr(node, field, None)
            if isinstance(value, str):
                yield value


def docstrings(tree):
    """The nodes that are strings for people."""
    statements = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)]
    return {id(value) for value in statements if isinstance(value, ast.Constant)}


def is_half(node):
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in HALVES


def words(nodes):
    """The nodes, and those within tuples, lists and sets."""
    for node in nodes:
        yield node
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            yield from node.elts


def test_the_search_finds_what_it_looks_for():
    tree = ast.parse('kind == "gp" or kind in ("rssm",) or {"vision": 1}\nmatch kind:\n    case "gp": pass')
    assert len(list(told_apart(tree))) == 4
    assert "kind" in set(identifiers(tree))


def told_apart(tree):
    """Where a half is compared with, or is the key of a table."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and any(map(is_half, words([node.left, *node.comparators]))):
            yield node
        if isinstance(node, ast.Dict) and any(map(is_half, node.keys)):
            yield node
        if isinstance(node, ast.MatchValue) and is_half(node.value):
            yield node


def test_no_file_is_named_after_a_half():
    names = [Path(place).stem for place in PLACES]
    assert [name for name in names if re.match(r"(gp|vision|rssm)_", name)] == []


def test_no_name_has_a_twin_in_the_other_half():
    found = {name.lower().replace("_", "") for tree in TREES.values() for name in identifiers(tree)}
    rest = {
        half: {n.removeprefix(half) for n in found if n.startswith(half) and n != half} for half in ("gp", "vision")
    }
    assert rest["gp"] & rest["vision"] == set()


@pytest.mark.parametrize("place", PLACES)
def test_nothing_is_chosen_by_the_name_of_a_half(place):
    assert [node.lineno for node in told_apart(TREES[place])] == []


@pytest.mark.parametrize("place", [place for place in PLACES if place not in OWN_KIND | NARROWED])
def test_nothing_is_chosen_by_the_class_of_a_half(place):
    classes = {"GPAgent", "GPAgentSettings", "WorldModelAgent", "WorldModelAgentSettings", "GPLearner"}
    asked = [
        node.lineno
        for node in ast.walk(TREES[place])
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", None) in ("isinstance", "issubclass")
        and classes & set(identifiers(node.args[1]))
    ]
    assert asked == []


@pytest.mark.parametrize("place", [place for place in PLACES if not place.startswith(NAMES_OF_TASKS)])
def test_no_task_is_named_outside_its_problem(place):
    tree, for_people = TREES[place], docstrings(TREES[place])
    named = [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch(r"swing_up(_sparse)?", node.value)
        and id(node) not in for_people
    ]
    assert named == []
