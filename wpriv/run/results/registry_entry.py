"""An entry for the Differential Privacy Deployments Registry of OpenDP, filled in from a privacy statement."""

from __future__ import annotations

import importlib.util
import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from wpriv.config import yaml_document
from wpriv.errors import Unsupported, UsageError
from wpriv.run.results import file_names
from wpriv.run.results.statement_facts import CENTRAL, LOCAL, Facts, facts

SCHEMA = Path(__file__).resolve().parents[1] / "registry.schema.json"
COMMIT = "057e5d81"
OPEN = "TO DO: "
HEADER = (
    "An entry for the Differential Privacy Deployments Registry, tier 3, from a statement of wpriv {wpriv}.\n"
    "Its form is that of github.com/opendp/deployments-registry-data at commit {commit}; compare it with the newest.\n"
    "Values with TO DO are for people: {count} of them are left.\n"
)
NO_VALIDATOR = (
    "the entry was not validated against its schema, since jsonschema is not installed: pip install jsonschema"
)


def entry(statement: dict[str, Any], changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the entry as plain data; what only people know begins with ``TO DO``.

    Args:
        statement: of a finished training. changes: values by dotted path, such as ``deployment.basic.intended_use``.
    Raises:
        Unsupported: the training had no privacy, or no finite guarantee. UsageError: a path does not exist.
    """
    source = facts(statement, "an entry of the registry")
    if not math.isfinite(float(source.row["epsilon"])):
        raise Unsupported("an entry of the registry needs a finite eps; this training has none at its delta")
    data = {
        "url_slug": re.sub(r"[^a-z0-9]+", "-", str(statement["recipe"]).lower()).strip("-") or "model",
        "deployment": {
            "basic": _basic(statement),
            "dp_variant": _variant(source),
            "privacy_loss": _privacy_loss(source),
            "deployment_model": _model(source),
            "implementation": _implementation(source),
            "administrative": {"status": "Draft", "registry_authors": [f"{OPEN}who fills in this entry"], "tier": 3},
        },
    }
    for path, value in (changes or {}).items():
        _set(data, path, value)
    return data


def open_paths(data: Any, path: str = "") -> Iterator[str]:
    """Yield the dotted paths of the values that are still for people to fill in; places in lists are numbers."""
    if isinstance(data, str) and OPEN in data:
        yield path
    parts = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in parts:
        yield from open_paths(value, f"{path}.{key}" if path else str(key))


def faults(data: dict[str, Any]) -> list[str] | None:
    """Return what the schema finds wrong with an entry, apart from open values; None without jsonschema."""
    if importlib.util.find_spec("jsonschema") is None:
        return None
    from jsonschema import Draft7Validator

    unfilled = set(open_paths(data))
    validator = Draft7Validator(schema(), format_checker=Draft7Validator.FORMAT_CHECKER)
    errors = ((".".join(map(str, error.absolute_path)), error.message) for error in validator.iter_errors(data))
    return [f"{path or 'the entry'}: {message}" for path, message in errors if path not in unfilled]


def schema() -> dict[str, Any]:
    """Return the JSON Schema of an entry."""
    return dict(json.loads(SCHEMA.read_text(encoding="utf-8")))


def to_yaml(data: dict[str, Any], version: str) -> str:
    """Format an entry as YAML, with a comment on its origin and on what is left to fill in."""
    text = HEADER.format(wpriv=version, commit=COMMIT, count=len(list(open_paths(data))))
    return "".join(f"# {line}\n" for line in text.splitlines()) + yaml_document.as_yaml(data, blocks=True)


def _basic(statement: dict[str, Any]) -> dict[str, Any]:
    data = statement["data"]
    return {
        "name": statement["recipe"],
        "data_curators": [
            {
                "data_curator_name": f"{OPEN}who publishes the model",
                "data_curator_type": f"{OPEN}Government, Industry or Nonprofit",
            }
        ],
        "description": (
            f"The weights of a machine learning model, trained on {data['records']} records of {data['name']} by the "
            f"task {statement['task']}"
        ),
        "intended_use": f"{OPEN}what the model is for",
        "data_product_type": "Machine learning model",
        "data_product_region": f"{OPEN}which region the records describe, and whose law applies",
        "data_product_sector": f"{OPEN}Technology, Healthcare, Education, Government, Energy or Finance",
        "publication_date": f"{OPEN}YYYY-MM-DD",
    }


def _variant(source: Facts) -> dict[str, Any]:
    return {
        "variant_name": "Approximate DP" if source.row["delta"] else "Pure DP",
        "data_domain": f"{OPEN}which data sets could have been the input: whose records, of what kind, collected when",
        "unprotected_quantities": _lines(source.source["not_covered"]),
    }


def _tuning(source: Facts) -> str:
    """What is known of the preparation of the data and of the choice of settings."""
    tuning = source.source.get("tuning")
    if source.model == LOCAL:
        return (
            f"What was chosen by trainings on the reports has no further cost. {OPEN}how the data were prepared and "
            f"explored, and how radius, mechanism, transform and budget of the reports were chosen. None of it is in "
            f"the figures above"
        )
    if tuning is None:
        return (
            f"{OPEN}how the data were prepared and explored, and how model, learning rate, clipping norm and budget "
            f"were chosen. None of it is in the figures above"
        )
    return (
        f"The best of a random number of runs of {len(tuning['candidates'])} candidates was kept, by a score on public "
        f"test records, and the figures above are those of this choice. {OPEN}how the data were prepared and explored, "
        f"and how the candidates and all other settings were chosen"
    )


def _privacy_loss(source: Facts) -> dict[str, Any]:
    count = {} if source.group > 1 else {"number_of_privacy_units": source.statement["data"]["records"]}
    return {
        "privacy_unit": source.unit,
        "privacy_unit_details": source.neighbours,
        **count,
        "privacy_parameters": {"epsilon": float(source.row["epsilon"]), "delta": float(source.row["delta"])},
        "privacy_parameters_details": f"{source.guarantee}. Delta is {source.delta['meaning']}",
    }


def _model(source: Facts) -> dict[str, Any]:
    runs = source.earlier_runs
    known = f"Earlier runs on these records: {', '.join(runs)}. " if runs else ""
    return {
        "model_name": source.model,
        "trust_assumptions": _lines(source.source["trust_model"]),
        "actors": f"{OPEN}who runs the training, who has access to the records, who receives the model",
        "release_type": "One release",
        "release_type_details": f"{known}{OPEN}other releases from these records, past and planned",
        "data_source_type": "Static",
        "access_type": "Non-interactive",
        "access_type_details": "The weights are published as they are",
    }


def _implementation(source: Facts) -> dict[str, Any]:
    sampling = [f"sampling: {source.sampling}"] if source.sampling else []
    versions = source.statement["versions"]
    program = ", ".join(f"{key} {value}" for key, value in versions.items() if value is not None)
    model = source.statement.get("model") or {}
    digest = (
        [f"SHA-256 of the weights (see wpriv's file reference): {model['weights_sha256']}"] if model.get("file") else []
    )
    seed = "from the operating system, not recorded" if source.source["seed"] is None else "FIXED"
    where = "before the training, on every record" if source.model != CENTRAL else "in every step of the training"
    return {
        "preprocessing_and_hyperparameter_tuning": _tuning(source),
        "mechanisms": _lines(
            [f"noise is added {where}: {source.noise}", *sampling, f"versions: {program}; seed of the noise: {seed}"]
            + source.source["not_assessed"]
            + [f"{OPEN}access controls and security measures for the records"]
        ),
        "composition": source.composition,
        "post_processing": _lines(source.source["covered"]),
        "justification": f"{OPEN}why this unit, this eps and this delta, and who decided it",
        "utility": (
            f"{OPEN}how well the model serves its use. The figures in {file_names.METRICS} were measured without noise "
            f"and are not covered by the guarantee"
        ),
        "additional_information": _lines([*source.warnings, *digest]),
    }


def _lines(lines: list[str]) -> str:
    return "\n".join(f"- {line}" for line in lines) or "none"


def _set(data: Any, path: str, value: Any) -> None:
    """Replace the value at a dotted path.

    Raises:
        UsageError: there is no such path.
    """
    *parents, last = path.split(".")
    place = data
    for name in parents:
        place = _child(place, name, path)
    _child(place, last, path)
    place[int(last) if isinstance(place, list) else last] = str(value) if hasattr(value, "isoformat") else value


def _child(place: Any, name: str, path: str) -> Any:
    known = (
        list(place)
        if isinstance(place, dict)
        else [str(k) for k in range(len(place))]
        if isinstance(place, list)
        else []
    )
    if name not in known:
        raise UsageError(f"the entry has no {path!r}: {name!r} is none of {', '.join(known) or 'its keys'}")
    return place[int(name) if isinstance(place, list) else name]
