"""The manifest on the page about load balancers fits the server: its probes are routes and its words are options."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml
from fastapi import FastAPI

from regard.cli.app import app as commands

PAGE = Path(__file__).parents[2] / "docs" / "deploy.md"


@pytest.fixture(scope="module")
def manifest() -> tuple[Any, Any]:
    deployment, service = yaml.safe_load_all(re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)[0])
    return deployment, service


def test_the_service_sends_requests_to_the_port_of_the_container(manifest: Any) -> None:
    deployment, service = manifest
    pod = deployment["spec"]["template"]
    assert service["spec"]["selector"] == pod["metadata"]["labels"] == deployment["spec"]["selector"]["matchLabels"]
    (container,) = pod["spec"]["containers"]
    assert service["spec"]["ports"][0]["targetPort"] == container["ports"][0]["containerPort"] == 5000


def test_the_probes_are_routes_of_the_server(manifest: Any, app: FastAPI) -> None:
    (container,) = manifest[0]["spec"]["template"]["spec"]["containers"]
    paths = {container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")}
    assert paths == {"/health/live", "/health/ready"}
    assert paths <= set(app.openapi()["paths"])


def test_the_words_of_the_container_are_options_of_the_command(manifest: Any) -> None:
    pod = manifest[0]["spec"]["template"]["spec"]
    context = typer.main.get_command(commands).commands["serve"].make_context("serve", pod["containers"][0]["args"])
    assert context.params["grace"] + 5 < pod["terminationGracePeriodSeconds"]
