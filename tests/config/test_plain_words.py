"""Recipes of trainings in the words of other programs. Oracle: the same recipe in the words here."""

from __future__ import annotations

import pytest

from wpriv.config import recipe, yaml_document
from wpriv.config.plain_words import plain_step
from wpriv.config.recipe import plain_path
from wpriv.errors import UsageError

TRAINING = """kind: train
source: here
task: classify
data: {{name: digits}}
model: {{name: logistic}}
optimizer: {{name: sgd, lr: 0.5}}
privacy: {{{target}, sampling: {sampling}, adjacency: {adjacency}}}
accountants: [{accountant}]
{batch}: 64
{epochs}: 1
"""
HERE = {"sampling": "poisson", "adjacency": "add-remove", "accountant": "rdp", "batch": "batch", "epochs": "epochs"}
THEIRS = {
    "sampling": "bernoulli", "adjacency": "add/remove", "accountant": "renyi-dp", "batch": "batch_size",
    "epochs": "num-epochs",
}  # fmt: skip


@pytest.mark.parametrize(
    ("theirs", "here"),
    [
        ("epsilon: 3, target_delta: 0.001%", "eps: 3, delta: 1e-5"),
        ("noise_multiplier: 1.1, delta: 1e-5", "sigma: 1.1, delta: 1e-5"),
    ],
)
def test_a_training_in_other_words_is_the_same_recipe(theirs, here):
    data = [
        recipe.check(yaml_document.parse(TRAINING.format(target=target, **words), "r.yaml")).data
        for target, words in ((theirs, THEIRS), (here, HERE))
    ]
    assert data[0] == data[1]


@pytest.mark.parametrize(
    ("theirs", "here"),
    [
        ("privacy.epsilon", "privacy.eps"),
        ("privacy.noise_multiplier", "privacy.sigma"),
        ("batch_size", "batch"),
        ("steps", "steps"),
        ("data.size", "data.size"),
        ("options.q", "options.q"),
    ],
)
def test_a_path_of_a_key_is_put_into_the_words_here(theirs, here):
    assert plain_path(theirs) == here


def test_a_parameter_of_a_mechanism_is_no_synonym_and_what_means_the_same_is_given_once():
    assert plain_step({"mech": "rr", "eps0": 1, "q": None}) == {"mech": "randomized-response", "eps0": 1, "rate": None}
    with pytest.raises(UsageError, match="mean the same"):
        plain_step({"mech": "gauss", "sigma": 1, "n": 3, "steps": 3})
    assert plain_step({"mech": "gaussian", "noise_multiplier": "2", "sensitivity": "3"})["sigma"] == 6.0
