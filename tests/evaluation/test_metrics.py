"""Scores: sacreBLEU's command line and compare-mt say the same."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from regard.errors import ConfigError, DataError
from regard.evaluation.metrics import (
    by_length,
    check_seed,
    choose_tokenizer,
    corpus_scores,
    make_metric,
    sentence_scores,
)
from tests.evaluation.systems import lines, worse, write

REFERENCE = lines()
HYPOTHESIS = worse(REFERENCE, 0.3, 2)
CHINESE = ["我们 喜欢 绿色 的 房子 。", "他 在 河边 看见 三 只 鸟 。", "孩子们 住 在 巴黎 。"]


def sacrebleu(*words: str | Path) -> Any:
    """What the command line says, to fourteen digits."""
    command = [sys.executable, "-m", "sacrebleu", *map(str, words), "-w", "14"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("flags", "how"),
    [
        ([], {}),
        (["-lc", "--chrf-lowercase"], {"lowercase": True}),
        (["--tokenize", "none"], {"tokenize": "none"}),
        (["--tokenize", "intl"], {"tokenize": "intl"}),
        (["--tokenize", "char"], {"tokenize": "char"}),
    ],
    ids=str,
)
def test_scores_intervals_and_signatures_are_those_of_sacrebleus_command_line(
    tmp_path: Path, flags: list[str], how: dict[str, Any]
) -> None:
    more = worse(REFERENCE, 0.1, 3)
    files = [write(tmp_path / name, texts) for name, texts in (("r", REFERENCE), ("r2", more), ("h", HYPOTHESIS))]
    told = json.loads(sacrebleu(*files[:2], "-i", files[2], "-m", "bleu", "chrf", "ter", "--confidence", *flags))
    found = corpus_scores(HYPOTHESIS, REFERENCE, more, metrics=["bleu", "chrf", "ter"], interval=True, **how)
    assert [each["name"].lower()[: len(name)] for name, each in zip(found, told, strict=True)] == list(found)
    for score, each in zip(found.values(), told, strict=True):
        assert score.signature == each["signature"]
        assert score.score == pytest.approx(each["score"], abs=1e-13)
        mean, half = each["confidence_mean"], each["confidence_var"]
        assert (score.low, score.high) == pytest.approx((mean - half, mean + half), abs=1e-13)


def test_chrf_plus_plus_is_chrf_with_words_and_bigrams_in_sacrebleus_command_line(tmp_path: Path) -> None:
    files = [write(tmp_path / name, texts) for name, texts in (("r", REFERENCE), ("h", HYPOTHESIS))]
    told = json.loads(sacrebleu(files[0], "-i", files[1], "-m", "chrf", "--chrf-word-order", "2"))
    score = corpus_scores(HYPOTHESIS, REFERENCE)["chrf++"]
    assert (score.score, score.signature) == (pytest.approx(told["score"], abs=1e-13), told["signature"])


def test_chinese_is_cut_as_sacrebleu_cuts_it(tmp_path: Path) -> None:
    reference = [line.replace(" ", "") for line in CHINESE]
    written = [line.replace("喜欢", "爱") for line in reference]
    files = [write(tmp_path / name, texts) for name, texts in (("r", reference), ("h", written))]
    told = float(sacrebleu(files[0], "-i", files[1], "--tokenize", "zh", "-b"))
    assert corpus_scores(written, reference, metrics=["bleu"], tokenize="zh")["bleu"].score == pytest.approx(
        told, abs=1e-13
    )


@pytest.mark.parametrize(
    ("reference", "tokenizer", "message"),
    [
        (["我们喜欢绿色的房子。", "3.5"], "zh", "the reference is Chinese: BLEU uses the tokenizer zh"),
        (["設定", "緑の家が好きです。"], "char", "Japanese: BLEU uses the tokenizer char (ja-mecab is not installed)"),
        (["นกตัวเล็ก"], "char", "the reference is Thai: BLEU uses the tokenizer char"),
        (["우리는 초록색 집을 좋아한다."], None, ""),
        (["We like 绿.", "a green house"], None, ""),
        ([""], None, ""),
    ],
    ids=["Chinese", "Japanese", "Thai", "Korean", "English", "empty"],
)
def test_the_tokenizer_of_bleu_follows_the_script_of_the_reference(
    reference: list[str], tokenizer: str | None, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for missing in ("MeCab", "mecab_ko"):
        monkeypatch.setitem(sys.modules, missing, None)
    said: list[str] = []
    assert choose_tokenizer(reference, said.append) == tokenizer
    assert [text.endswith(message) for text in said] == [True] * bool(message)


def test_japanese_is_tokenized_with_mecab_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.evaluation.metrics.make_metric", lambda name, tokenize: None)
    assert choose_tokenizer(["緑の家が好きです。"], print) == "ja-mecab"


@pytest.mark.parametrize("metric", ["bleu", "chrf", "ter"])
def test_sentences_are_scored_as_by_sacrebleus_command_line(tmp_path: Path, metric: str) -> None:
    files = [write(tmp_path / name, texts[:8]) for name, texts in (("r", REFERENCE), ("h", HYPOTHESIS))]
    told = [float(line) for line in sacrebleu(files[0], "-i", files[1], "-m", metric, "-sl", "-b").split()]
    found = sentence_scores(HYPOTHESIS[:8], REFERENCE[:8], metrics=[metric])
    assert [scores[metric] for scores in found] == pytest.approx(told, abs=1e-13)


def test_by_length_agrees_with_compare_mt_on_the_same_buckets() -> None:
    bucketers, scorers = pytest.importorskip("compare_mt.bucketers"), pytest.importorskip("compare_mt.scorers")
    reference, hypothesis = ([line.split() for line in texts] for texts in (REFERENCE, HYPOTHESIS))
    bucketer, scorer = bucketers.LengthSentenceBucketer([11, 21, 26]), scorers.SacreBleuScorer()
    corpora = bucketer.create_bucketed_corpus(hypothesis, ref=reference, src=[None] * len(reference))
    told = [(len(out), scorer.score_corpus(ref, out)[0]) for out, ref, _ in corpora]
    found = by_length(HYPOTHESIS, REFERENCE, lengths=[10, 20, 25])
    assert [(bucket["sentences"], pytest.approx(bucket["bleu"])) for bucket in found] == told


def test_by_length_without_a_tokenizer_agrees_with_compare_mts_own_bleu() -> None:
    bucketers, scorers = pytest.importorskip("compare_mt.bucketers"), pytest.importorskip("compare_mt.scorers")
    # its BLEU gives a line of fewer than four words an n-gram of four all the same
    kept = [place for place, line in enumerate(HYPOTHESIS) if len(line.split()) >= 4]
    texts = [[side[place] for place in kept] for side in (REFERENCE, HYPOTHESIS)]
    reference, hypothesis = ([line.split() for line in side] for side in texts)
    bucketer, scorer = bucketers.LengthSentenceBucketer([11, 21, 26]), scorers.BleuScorer()
    corpora = bucketer.create_bucketed_corpus(hypothesis, ref=reference, src=[None] * len(reference))
    told = [scorer.score_corpus(ref, out)[0] for out, ref, _ in corpora]
    found = by_length(texts[1], texts[0], lengths=[10, 20, 25], tokenize="none")
    assert [bucket["bleu"] for bucket in found] == pytest.approx(told)


def test_every_sentence_is_in_one_bucket_and_an_empty_reference_in_the_first() -> None:
    reference = [*REFERENCE, ""]
    found = by_length([*HYPOTHESIS, "a"], reference)
    assert sum(bucket["sentences"] for bucket in found) == len(reference)
    assert [(bucket["from"], bucket["to"]) for bucket in found] == [(1, 10), (11, 20), (21, 30)]


def test_a_bucket_of_few_sentences_says_so() -> None:
    found = by_length(HYPOTHESIS[:31], REFERENCE[:31], lengths=[29])
    assert [bucket["small"] for bucket in found] == [bucket["sentences"] < 30 for bucket in found] == [False] or found[
        -1
    ]["small"]


def test_no_bucket_reaches_beyond_what_a_score_can_be() -> None:
    texts = ["a b c d e f", "a b c d e g", "x y z v w u", "k l m n o p"]
    (found,) = by_length(["a b c d e f", "a b c d e g", "x y z v w u", "q"], texts)
    assert 0 <= found["low"] <= found["bleu"] <= found["high"] <= 100


def test_text_that_looks_tokenized_brings_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        corpus_scores(["a house ."] * 100, ["a house ."] * 100)
    assert caplog.records == []


def test_lengths_are_words_between_spaces_or_characters_in_scripts_without_spaces() -> None:
    for line, tokenize, first in (("a house, green.", None, 3), ("绿色的房子。", "zh", 6)):
        (found,) = by_length([line], [line], lengths=[first - 1, first], tokenize=tokenize)
        assert (found["from"], found["to"]) == (first, first)


def test_a_system_that_gets_almost_nothing_right_still_has_an_interval() -> None:
    found = corpus_scores(["x", "y", "house"], ["a green tree", "b", "the house"], interval=True)["chrf"]
    assert found.low < found.score < found.high
    assert "bs:1000" in found.signature


def test_references_of_another_number_of_lines_are_refused() -> None:
    with pytest.raises(DataError, match="reference 2 has 1 line and the translation 2"):
        corpus_scores(["a", "b"], ["a", "b"], ["a"])


def test_an_unknown_tokenizer_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(ConfigError, match="Did you mean intl"):
        corpus_scores(["a"], ["a"], tokenize="itnl")


def test_a_tokenizer_that_is_not_installed_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "MeCab", None)
    monkeypatch.delitem(sys.modules, "sacrebleu.tokenizers.tokenizer_ja_mecab", raising=False)
    with pytest.raises(ConfigError, match=r"^sacreBLEU cannot tokenize with ja-mecab: [^\n]*pip install[^\n]*$"):
        make_metric("bleu", tokenize="ja-mecab")


@pytest.mark.parametrize("said", ["abc", "-1", "1.5", ""])
def test_a_seed_that_sacrebleu_cannot_use_is_refused(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACREBLEU_SEED", said)
    with pytest.raises(ConfigError, match=rf"SACREBLEU_SEED \({said}\) must be a whole number of at least 0, or none"):
        check_seed()


@pytest.mark.parametrize("said", ["0", "7", "None"])
def test_a_seed_that_sacrebleu_can_use_is_taken(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACREBLEU_SEED", said)
    check_seed()
