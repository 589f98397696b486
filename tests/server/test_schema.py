"""The OpenAPI document is right: requests made from it get no 5xx and only answers that it describes."""

from __future__ import annotations

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

FEW = settings(
    max_examples=8, deadline=None, database=None, derandomize=True, phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip


@pytest.mark.slow
def test_requests_made_from_the_schema_get_the_answers_it_describes(address: str) -> None:
    for result in schemathesis.openapi.from_url(f"{address}/openapi.json").get_all_operations():

        @FEW
        @given(result.ok().as_strategy())
        def check(case: schemathesis.Case) -> None:
            case.call_and_validate(
                excluded_checks=[positive_data_acceptance]
            )  # a language that is not served is refused

        check()
