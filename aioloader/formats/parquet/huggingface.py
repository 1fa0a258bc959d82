"""Features of a Hugging Face dataset, from the metadata "huggingface" of the schema of its Parquet files. Pure.

Source of the format: `datasets.Features.to_dict`; the metadata are ``{"info": {"features": {NAME: FEATURE}}}``, and a
feature is a dict with its class as ``_type``, or a list or dict of features.
"""

from __future__ import annotations

import json
from typing import Any


def features_of(text: str) -> dict[str, Any]:
    """Return the features by the names of their columns; empty if the text is none, or damaged."""
    try:
        features = json.loads(text)["info"]["features"] if text else {}
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}
    return features if isinstance(features, dict) else {}


def class_names(features: dict[str, Any], column: str) -> list[str]:
    """Return the names of the classes of a column; empty unless it is a ClassLabel."""
    feature = features.get(column)
    if not isinstance(feature, dict) or feature.get("_type") != "ClassLabel":
        return []
    names = feature.get("names")
    return [str(name) for name in names] if isinstance(names, list) else []


def image_columns(features: dict[str, Any]) -> list[str]:
    """Return the names of the columns of images, or of lists of images."""
    return [name for name, feature in features.items() if _is_image(feature)]


def _is_image(feature: Any) -> bool:
    if isinstance(feature, list) and len(feature) == 1:
        return _is_image(feature[0])
    if not isinstance(feature, dict):
        return False
    kind = feature.get("_type")
    return kind == "Image" or (
        kind in ("Sequence", "List", "LargeList") and _is_image(feature.get("feature"))
    )
