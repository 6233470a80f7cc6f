"""One setting: a dataclass field with its default, its meaning and its limits."""

import dataclasses
import math
from typing import Any


def setting(default: Any, doc: str, *, choices: tuple = (), minimum: float = -math.inf) -> Any:
    """Returns a field; `config` checks values against the limits given here."""
    return dataclasses.field(
        default=default, metadata={"doc": doc, "choices": choices, "minimum": minimum}
    )
