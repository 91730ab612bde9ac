"""Environment facts that the machine's owner states in `[environment]` of flagperf.toml, as a fallback for facts that
could not be captured."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from flagperf.errors import BadInput, unknown_name
from flagperf.spec.facts import ENVIRONMENT_FACTS, Environment, Fact


def state_environment(environment: Environment, stated: Mapping[str, object], origin: str) -> Environment:
    """Fill absent facts with stated values. A captured fact takes precedence and notes that a stated value was ignored.

    `origin` is the file of the stated values, for messages. A filled fact keeps the reason why it was absent.
    """
    facts = dict(environment.facts)
    for key, value in stated.items():
        if key not in ENVIRONMENT_FACTS:
            raise unknown_name("key in [environment]", key, ENVIRONMENT_FACTS, f"({origin})")
        if not isinstance(value, str) or not value.strip():
            raise BadInput(f"[environment] {key} in {origin} must be a non-empty string; got {value!r}")
        fact = facts.get(key, Fact(None, "absent"))
        text = " ".join(value.split())
        if fact.how == "captured":
            facts[key] = msgspec.structs.replace(fact, reason=f"stated value {text!r} was not used: captured")
        else:
            facts[key] = Fact(text, "stated", fact.reason)
    return msgspec.structs.replace(environment, facts=facts)
