"""OpenAI's own client works unchanged for gpt and bert folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import openai
import pytest

import regard
from regard.translation.reader import Reader
from regard.translation.writer import Writer
from tests.server.requests import post

PROMPT = "the old house"


@pytest.fixture(scope="module")
def client(address: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)


def complete(client: openai.OpenAI, **more: Any) -> Any:
    return client.completions.create(model="gpt", prompt=PROMPT, **{"max_tokens": 5, "temperature": 0, **more})


def test_the_models_are_listed(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["translator", "gpt", "bert"]


def test_a_completion_is_what_the_writer_generates(client: openai.OpenAI, folders: dict[str, Path]) -> None:
    writer = cast(Writer, regard.load(folders["gpt"], "cpu"))
    expected = writer.generate(PROMPT, tokens=5, temperature=0.0)
    answer = complete(client)
    assert answer.choices[0].text == expected.text
    assert answer.usage.completion_tokens == expected.tokens


def test_a_stream_gives_the_same_text(client: openai.OpenAI) -> None:
    events = list(complete(client, stream=True))
    assert "".join(event.choices[0].text for event in events) == complete(client).choices[0].text
    assert events[-1].choices[0].finish_reason == "length"


def test_prompts_and_choices_have_an_order(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="gpt", prompt=[PROMPT, "a bird"], n=2, seed=3, max_tokens=4, echo=True)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert [choice.text.startswith(PROMPT) for choice in answer.choices] == [True, True, False, False]


def test_the_same_seed_gives_the_same_text(client: openai.OpenAI) -> None:
    texts = {complete(client, temperature=1, seed=seed, max_tokens=9).choices[0].text for seed in (1, 1, 2)}
    assert len(texts) == 2


def test_embeddings_are_those_of_the_reader(client: openai.OpenAI, folders: dict[str, Path]) -> None:
    reader = cast(Reader, regard.load(folders["bert"], "cpu"))
    answer = client.embeddings.create(model="bert", input=[PROMPT, "a bird"])
    np.testing.assert_allclose([one.embedding for one in answer.data], reader.embed([PROMPT, "a bird"]), rtol=1e-5)


def test_an_unknown_model_names_those_there_are(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="available: gpt"):
        client.completions.create(model="gpt-4", prompt=PROMPT)


def test_an_option_that_is_not_supported_is_refused(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="logprobs"):
        complete(client, logprobs=3)


def test_masks_are_filled(address: str) -> None:
    answer = post(f"{address}/fill", {"text": "the [MASK] house", "top": 3})[1]
    assert [len(gap) for gap in answer["gaps"]] == [3]
