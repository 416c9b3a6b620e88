"""What a scope has booked is what the worst unit has: enumeration of small trees."""

from __future__ import annotations

import itertools
import random

import pytest

from wpriv.errors import UsageError
from wpriv.ledger.scopes import Partition, Place, Tree


def worst_unit(tree: Tree, scope: str, booked: dict[Place, int]) -> int:
    """The largest sum over a unit of the scope: it is in all scopes below, and in some parts of each partition."""
    below = [name for name, _ in tree.parents if scope in tree.chain(name)]
    always = sum(booked.get(Place(name), 0) for name in below)
    choices = []
    for partition in tree.partitions:
        if partition.scope in below:
            places = [Place(partition.scope, partition.name, part) for part in partition.parts]
            size = min(partition.counted(tree.adjacency), len(places))
            choices.append(
                [sum(booked.get(place, 0) for place in some) for some in itertools.combinations(places, size)]
            )
    return always + max(map(sum, itertools.product(*choices)))


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
@pytest.mark.parametrize("seed", range(25))
def test_a_scope_books_what_its_worst_unit_has(seed, adjacency):
    rng = random.Random(seed)
    names = ["all", "a", "b", "a/c", "a/d"][: rng.randint(1, 5)]
    parents = tuple((name, "" if name == "all" else name.rpartition("/")[0] or "all") for name in names)
    partitions = tuple(
        Partition(rng.choice(names), f"p{index}", ("x", "y", "z"), rng.randint(1, 2), rng.random() < 0.5)
        for index in range(rng.randint(0, 3))
    )
    tree = Tree(parents, partitions, (), adjacency)
    places = [Place(name) for name in names]
    places += [Place(each.scope, each.name, part) for each in partitions for part in each.parts]
    booked = {place: rng.randint(0, 9) for place in places}
    for name in names:
        assert tree.total(name, booked) == worst_unit(tree, name, booked)


@pytest.mark.parametrize("text", ["sales", "sales/orders:region=north", "all:age=old"])
def test_a_place_is_read_as_it_is_written(text):
    assert str(Place.parse(text)) == text


@pytest.mark.parametrize("text", ["sales:", "sales=north", "sales:region", "sales:region=", "sales:=north"])
def test_a_place_in_other_words_is_refused(text):
    with pytest.raises(UsageError, match="a scope is written"):
        Place.parse(text)


@pytest.mark.parametrize(
    ("text", "partition"),
    [
        ("sales:region=north,south", Partition("sales", "region", ("north", "south"))),
        ("all:age = a, b;k=2;fixed", Partition("all", "age", ("a", "b"), 2, True)),
    ],
)
def test_a_partition_is_read(text, partition):
    assert Partition.parse(text) == partition


@pytest.mark.parametrize(
    "text", ["sales", "sales:region", "sales:region=a,a", "sales:region=a;k=0", "sales:region=a;x"]
)
def test_a_partition_in_other_words_is_refused(text):
    with pytest.raises(UsageError, match="partition"):
        Partition.parse(text)


@pytest.mark.parametrize(
    ("parents", "words"),
    [((("all", ""), ("a/b", "a")), "no scope yet"), ((("all", ""), ("a", "all"), ("a", "all")), "named once")],
)
def test_a_tree_without_a_parent_or_with_a_name_twice_is_refused(parents, words):
    with pytest.raises(UsageError, match=words):
        Tree(parents, (), (), "add-remove")
