"""The translator: one line out per line in, whatever a model says."""

from __future__ import annotations

import pytest

from regard.config import Config
from regard.models import build
from regard.text.tokenizer import Sides, train
from regard.translator import Result, Translator


def test_a_translation_with_a_line_break_is_still_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = train(["a text"], kind="bpe", vocabulary=0)
    translator = Translator(build(Config().model, "meta"), Sides(tokenizer, tokenizer), Config())
    monkeypatch.setattr(translator, "translate", lambda texts, **_: [Result("two\nlines", 0.0, 0.0) for _ in texts])
    assert list(translator.stream(["one", "other"])) == ["two lines", "two lines"]
