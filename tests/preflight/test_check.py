"""The data report: every planted problem is found with its kind, and clean text has no findings."""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import random
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import regard
from regard.errors import FolderError
from regard.preflight.check import check_pairs
from regard.preflight.findings import KINDS, TO_DROP, Example, Finding, fill_commands
from regard.preflight.report import Report
from regard.text.files import Origin, Pair

FIRST = ["the", "wo", "sha", "lin", "gar", "nou", "ki", "smo", "thry", "en", "wick", "ald", "ough", "ster", "ham"]
SECOND = ["él", "çar", "moi", "jù", "vâ", "tier", "lou", "qué", "dré", "bon", "seau", "fí", "zan", "pré", "ix"]


def words_of(random_words, syllables, count):
    """Made-up words of a made-up language."""
    words = set()
    while len(words) < count:
        words.add("".join(random_words.choice(syllables) for _ in range(random_words.choice([1, 2, 2, 3, 3]))))
    return sorted(words)


def make_corpus(count, *, seed=0, path="train.a"):
    """Sentences of one made-up language and their translations into another, word by word."""
    language = random.Random(7)
    first = words_of(language, FIRST, 900)
    second = words_of(language, SECOND, 900)
    language.shuffle(first)
    language.shuffle(second)
    weights = [1 / (rank + 10) for rank in range(900)]
    sentences = random.Random(seed)
    pairs = []
    for line in range(1, count + 1):
        chosen = sentences.choices(range(900), weights, k=sentences.randint(4, 14))
        source, target = [first[word] for word in chosen], [second[word] for word in chosen]
        if sentences.random() < 0.1:
            number = str(sentences.randint(2, 2000))
            source.append(number)
            target.append(number)
        mark = sentences.choice(["?", ".", ".", ".", "!"])
        source_text, target_text = " ".join(source).capitalize() + mark, " ".join(target).capitalize() + " " + mark
        pairs.append(Pair(source_text, target_text, Origin(path, line)))
    return pairs


@cache
def clean_corpus():
    return make_corpus(5000), make_corpus(500, seed=1, path="valid.a"), make_corpus(500, seed=2, path="test.a")


@pytest.fixture
def corpus():
    return clean_corpus()


@cache
def report_on(kind):
    """The report on a corpus whose train has one kind of problem."""
    places, change = PROBLEMS[kind]
    train, *others = clean_corpus()
    return check_pairs(changed(train, places, change), *others)


@cache
def clean_report():
    return check_pairs(*clean_corpus())


@cache
def duplicates_report():
    train, *others = clean_corpus()
    return check_pairs(train + train[:500], *others)


def changed(pairs, places, change):
    """The pairs with some of them changed."""
    places = set(places)
    return [change(pair) if place in places else pair for place, pair in enumerate(pairs)]


def target_as(change):
    return lambda pair: pair._replace(target=change(pair.target))


def found(report):
    return [(finding.kind, finding.split) for finding in report.findings]


def lines_of(report):
    """The lines of the one file that the one finding names."""
    (lines,) = report.findings[0].lines.values()
    return lines


def every(step, count=5000, start=7):
    return range(start, count, step)


def swap(pair):
    return pair._replace(source=pair.target, target=pair.source)


def misread(text):
    """UTF-8 seen as Latin-1."""
    return text.encode().decode("latin-1")


def test_clean_text_has_no_findings():
    assert (clean_report().verdict, found(clean_report())) == ("fit", [])


@pytest.mark.parametrize("seed", [3, 4, 5])
def test_clean_text_without_other_splits_has_no_findings(seed):
    assert found(check_pairs(make_corpus(2000, seed=seed))) == []


def test_one_pass_over_an_iterator_is_enough(corpus):
    assert check_pairs(*(iter(pairs) for pairs in corpus)).to_dict() == clean_report().to_dict()


PROBLEMS = {
    "mojibake": (every(100), target_as(misread)),
    "control-characters": (every(100), target_as(lambda text: text[:5] + "\ufffd" + text[6:])),
    "escapes": (every(50), target_as(lambda text: text + " l&apos;eau")),
    "swapped": (every(50), swap),
    "copies": (every(50), lambda pair: pair._replace(target=pair.source)),
    "empty": (every(100), target_as(lambda text: "  ")),
    "length-ratio": (every(50), target_as(lambda text: text[: len(text) // 5])),
    "too-long": (every(100), lambda pair: pair._replace(source=pair.source * 80, target=pair.target * 80)),
    "wrong-script": (every(100), target_as(lambda text: "Маленький дом стоял на краю большого леса.")),
}


@pytest.mark.parametrize("kind", PROBLEMS)
def test_a_planted_problem_is_found_with_its_kind(kind):
    assert found(report_on(kind)) == [(kind, "train")]


@pytest.mark.parametrize("kind", sorted(set(PROBLEMS) - {"length-ratio", "swapped"}))
def test_a_planted_problem_is_counted_exactly(kind):
    assert report_on(kind).findings[0].count == len(PROBLEMS[kind][0])


@pytest.mark.parametrize("kind", PROBLEMS)
def test_the_named_lines_are_the_planted_ones(kind):
    assert set(lines_of(report_on(kind))) <= {place + 1 for place in PROBLEMS[kind][0]}


@pytest.mark.parametrize("kind", PROBLEMS)
def test_all_lines_of_a_small_corpus_are_named(kind):
    finding = report_on(kind).findings[0]
    assert (sum(map(len, finding.lines.values())), finding.lines_complete) == (finding.count, True)


@pytest.mark.slow
def test_an_incomplete_list_of_lines_is_marked_as_incomplete():
    train = changed(make_corpus(25_000), every(50, 25_000), swap)
    finding = json.loads(check_pairs(train).to_json())["findings"][0]
    assert (finding["kind"], finding["lines_complete"]) == ("swapped", False)
    assert f"Only {sum(map(len, finding['lines'].values())):,} of the {finding['count']:,}" in finding["fix"]


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("share", [0.02, 0.1])
@pytest.mark.parametrize("longer", [5, 1 / 5])
def test_a_side_too_long_or_too_short_is_found_and_named(corpus, side, share, longer):
    def stretch(pair):
        text = getattr(pair, side)
        return pair._replace(**{side: " ".join([text] * 5) if longer > 1 else text[: len(text) // 5]})

    places = every(round(1 / share))
    report = check_pairs(changed(corpus[0], places, stretch))
    assert found(report) == [("length-ratio", "train")]
    assert set(lines_of(report)) <= {place + 1 for place in places}
    assert len(lines_of(report)) == report.findings[0].count >= 0.9 * len(places)


def test_nearly_all_swapped_lines_are_found():
    assert report_on("swapped").findings[0].count >= 0.8 * len(PROBLEMS["swapped"][0])


def test_an_example_has_file_and_line():
    examples = report_on("mojibake").findings[0].examples
    assert all(re.fullmatch(r"train\.a:\d+", example.where) for example in examples)


def test_an_example_shows_the_pair(corpus):
    example = report_on("copies").findings[0].examples[0]
    pair = corpus[0][int(example.where.split(":")[1]) - 1]
    assert (example.source, example.target) == (pair.source, pair.source)


def test_sources_in_the_language_of_the_target_are_found(corpus):
    train, *others = corpus
    foreign = [pair.target for pair in make_corpus(100, seed=9)]
    train = changed(train, every(50), lambda pair: pair._replace(source=foreign[pair.origin.line % 100]))
    assert ("wrong-language", "train") in found(check_pairs(train, *others))


def test_targets_in_a_third_language_are_found(corpus):
    train, *others = corpus
    third = "Hogy vagy ma reggel, kedves barátom, és mit szeretnél enni ebédre?"
    train = changed(train, every(50), target_as(lambda text: third[len(text) % 9 :]))
    assert ("wrong-language", "train") in found(check_pairs(train, *others))


def test_duplicates_are_found():
    assert found(duplicates_report()) == [("duplicates", "train")]


def test_leaked_pairs_are_found_and_counted(corpus):
    train, valid, test = corpus
    report = check_pairs(train + valid[:30], valid, test)
    assert [(finding.kind, finding.split, finding.count) for finding in report.findings] == [("leakage", "valid", 30)]


def test_leaks_of_test_are_found(corpus):
    train, valid, test = corpus
    assert found(check_pairs(train + test[:30], valid, test)) == [("leakage", "test")]


def test_case_spaces_and_punctuation_do_not_hide_a_leak(corpus):
    train, valid, _ = corpus
    shouted = [pair._replace(source=f"  “{pair.source.upper()}”", target=pair.target[:-1] + "…") for pair in valid[:30]]
    assert found(check_pairs(train + shouted, valid)) == [("leakage", "valid")]


def test_a_leak_names_both_lines(corpus):
    train, valid, _ = corpus
    moved = [pair._replace(origin=Origin("train.a", 5001 + place)) for place, pair in enumerate(valid[:30])]
    example = check_pairs(train + moved, valid).findings[0].examples[0]
    assert (example.where[:8], "train.a:50" in example.note) == ("valid.a:", True)


def test_a_validation_set_that_is_in_train_is_unfit(corpus):
    train, valid, _ = corpus
    assert check_pairs(train + valid, valid).verdict == "unfit"


def test_sources_known_from_train_are_found(corpus):
    train, valid, _ = corpus
    other = [pair._replace(target=train[place].target) for place, pair in enumerate(valid[:30])]
    assert found(check_pairs(train + other, valid)) == [("source-leakage", "valid")]


def test_targets_known_from_train_are_found(corpus):
    train, valid, _ = corpus
    other = [pair._replace(source=train[place].source) for place, pair in enumerate(valid[:30])]
    assert found(check_pairs(train + other, valid)) == [("target-leakage", "valid")]


@pytest.mark.parametrize("shift", [-3, -1, 1, 2])
def test_a_shifted_span_is_found(corpus, shift):
    train, *others = corpus
    assert found(check_pairs(shifted(train, 2000, 2200, shift), *others)) == [("misaligned", "train")]


def shifted(pairs, begin, end, shift):
    """The targets of a stretch moved `shift` lines further, around its end."""
    targets = [pair.target for pair in pairs[begin:end]]
    targets = targets[-shift:] + targets[:-shift]
    moved = [pair._replace(target=target) for pair, target in zip(pairs[begin:end], targets, strict=True)]
    return pairs[:begin] + moved + pairs[end:]


def test_a_shifted_span_is_located_within_a_few_lines(corpus):
    report = check_pairs(shifted(corpus[0], 2000, 2200, 1))
    first, count = lines_of(report)[0], report.findings[0].count
    assert (abs(first - 2001) <= 5, abs(count - 200) <= 10) == (True, True)


def test_a_shifted_span_says_by_how_many_lines(corpus):
    note = check_pairs(shifted(corpus[0], 2000, 2200, 2)).findings[0].examples[0].note
    assert note.endswith("the matching target is 2 lines later")


def test_a_line_lost_early_is_found_though_most_lines_are_shifted(corpus):
    train = corpus[0]
    targets = [pair.target for pair in train[:1000]] + [pair.target for pair in train[1001:]]
    report = check_pairs([pair._replace(target=target) for pair, target in zip(train, targets, strict=False)])
    assert (report.verdict, found(report)) == ("unfit", [("misaligned", "train")])


def test_a_shuffled_span_is_found(corpus):
    train, *others = corpus
    targets = [pair.target for pair in train[1000:1200]]
    random.Random(0).shuffle(targets)
    mixed = [pair._replace(target=target) for pair, target in zip(train[1000:1200], targets, strict=True)]
    assert found(check_pairs(train[:1000] + mixed + train[1200:], *others)) == [("misaligned", "train")]


def shuffled(pairs):
    """The pairs with the targets of all of them mixed."""
    targets = [pair.target for pair in pairs]
    random.Random(0).shuffle(targets)
    return [pair._replace(target=target) for pair, target in zip(pairs, targets, strict=True)]


@pytest.mark.parametrize("count", [1000, 5000])
def test_unrelated_sides_are_unfit(corpus, count):
    report = check_pairs(shuffled(corpus[0][:count]))
    assert (report.verdict, found(report)) == ("unfit", [("unrelated", "train")])


@pytest.mark.parametrize("shift", [-40, -1, 2, 5])
def test_a_shift_of_a_whole_corpus_says_by_how_many_lines(corpus, shift):
    report = check_pairs(shifted(corpus[0], 0, 5000, shift))
    way = "later" if shift > 0 else "earlier"
    assert (report.verdict, found(report)) == ("unfit", [("misaligned", "train")])
    notes = [example.note for example in report.findings[0].examples]
    assert any(note.endswith(f"{abs(shift)} line{'s' * (abs(shift) > 1)} {way}") for note in notes)


def test_sides_of_one_length_are_not_called_unrelated():
    pairs = [Pair(pair.source[:9], pair.target[:9], pair.origin) for pair in make_corpus(3000) if len(pair.source) > 9]
    assert "unrelated" not in {kind for kind, _ in found(check_pairs(pairs))}


def test_a_split_with_its_files_swapped_is_unfit(corpus):
    train, valid, test = corpus
    report = check_pairs(train, [swap(pair) for pair in valid], test)
    assert (report.verdict, found(report)) == ("unfit", [("swapped", "valid")])


RUSSIAN = str.maketrans("abcdefghijklmnopqrstuvwxyzéçùâíó", "абцдефгхийклмнопкрстуввхызещуаио")


def in_russian_letters(pairs):
    return [pair._replace(target=pair.target.lower().translate(RUSSIAN)) for pair in pairs]


def test_swapped_pairs_of_two_scripts_are_found(corpus):
    train = changed(in_russian_letters(corpus[0]), every(50), swap)
    report = check_pairs(train)
    assert found(report) == [("swapped", "train")]
    assert report.findings[0].count == len(every(50))


def test_a_second_script_after_the_first_chunk_is_no_finding(corpus, monkeypatch):
    monkeypatch.setattr("regard.preflight.check.CHUNK_SIZE", 2000)
    train = corpus[0][:3000] + in_russian_letters(corpus[0][3000:])
    assert "wrong-script" not in dict(found(check_pairs(train)))


def test_a_split_of_two_scripts_with_its_files_swapped_is_unfit(corpus):
    train, valid = (in_russian_letters(pairs) for pairs in corpus[:2])
    report = check_pairs(train, [swap(pair) for pair in valid])
    assert (report.verdict, found(report)) == ("unfit", [("swapped", "valid")])


def test_a_script_that_is_not_in_train_is_found(corpus):
    train, valid, test = corpus
    valid = changed(valid, every(100, 500), target_as(lambda text: "Маленький дом стоял на краю леса."))
    assert found(check_pairs(train, valid, test)) == [("wrong-script", "valid")]


def test_few_pairs_are_reported():
    assert found(check_pairs(make_corpus(400))) == [("too-few", "train")]


def test_hardly_any_pairs_are_unfit():
    assert check_pairs(make_corpus(20)).verdict == "unfit"


def test_an_empty_corpus_is_unfit():
    assert check_pairs([]).verdict == "unfit"


def test_two_sides_of_one_language_are_not_called_swapped():
    pairs = [pair._replace(target=" ".join(reversed(pair.source.split()))) for pair in make_corpus(3000)]
    assert not {"swapped", "wrong-language"} & {kind for kind, _ in found(check_pairs(pairs))}


@pytest.mark.slow
def test_two_kinds_of_text_one_after_the_other_are_not_called_misaligned():
    short = [
        pair._replace(source=pair.source.split()[0] + "?", target=pair.target.split()[0] + " ?")
        for pair in make_corpus(4000, seed=11)
    ]
    assert "misaligned" not in {kind for kind, _ in found(check_pairs(make_corpus(9000) + short))}


@pytest.mark.parametrize("text", ["", "\ud800", "\0", "a" * 5000, "日本語", "12", "\u2028", "😀"])
def test_odd_lines_are_reported_and_never_raise(text):
    pairs = [Pair(text, other, Origin("odd", 1)) for other in ("", text, "b")] * 40
    assert check_pairs(pairs, pairs, pairs).verdict != "fit"


def test_every_kind_has_an_explanation_and_a_fix():
    assert all(remedy.fix and remedy.explanation for remedy in KINDS.values())


COMMANDS = sorted({code for remedy in KINDS.values() for code in re.findall(r"`(regard [^`]+)`", remedy.fix)})


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_of_a_fix_exists_with_its_options(command):
    words = shlex.split(command.replace("...", "").format(split="valid"))[1:]
    names = [word for word in words if re.fullmatch("[a-z]+", word)]
    known = subprocess.run([sys.executable, "-m", "regard", *names, "--help"], capture_output=True, text=True)
    assert known.returncode == 0
    assert all(word in known.stdout for word in words if word.startswith("--"))


def test_the_fix_for_mojibake_does_not_make_more_of_it():
    assert not any("iconv" in command for command in KINDS["mojibake"].commands)


def run_on(command, text, folder):
    """What a fix makes of a file with this text."""
    (folder / "FILE").write_text(text, encoding="utf-8")
    command = command.replace("python", shlex.quote(sys.executable), 1)
    subprocess.run(command, shell=True, check=True, cwd=folder, env={**os.environ, "PYTHONUTF8": "1"})
    return (folder / command.split()[-1]).read_text(encoding="utf-8")


def test_the_command_of_a_fix_repairs_the_text(tmp_path):
    (command,) = KINDS["mojibake"].commands
    assert run_on(command, misread("élan\n"), tmp_path) == "élan\n"


def test_a_command_names_the_files_and_lines():
    assert list(fill_commands((TO_DROP,), ("my train.en", "train.fr"), [3, 7, 8, 9])) == [
        "sed '3d;7,9d' 'my train.en' > 'my train.en'.clean",
        "sed '3d;7,9d' train.fr > train.fr.clean",
    ]


def test_there_is_no_command_for_many_lines():
    assert not list(fill_commands((TO_DROP,), ("train.en", "train.fr"), list(range(1, 99, 2))))


def test_the_commands_leave_the_lines_out(corpus, tmp_path):
    pairs = changed(corpus[0], every(300), swap)
    files = write_corpus(tmp_path, pairs)
    (finding,) = regard.check(*files).findings
    bad = set(finding.lines[str(files[0])])
    for command in finding.commands:
        subprocess.run(command, shell=True, check=True, cwd=tmp_path)
    cleaned = Path(f"{files[0]}.clean").read_text().splitlines()
    assert cleaned == [pair.source for pair in pairs if pair.origin.line not in bad]


def test_without_plain_files_there_are_no_commands():
    assert report_on("swapped").findings[0].commands == ()


def test_the_json_has_what_the_interface_promises():
    report = json.loads(duplicates_report().to_json())
    assert {"kind", "count", "share", "examples", "fix"} <= set(report["findings"][0])


def write_corpus(folder, pairs):
    for side in ("source", "target"):
        (folder / side).write_text("".join(getattr(pair, side) + "\n" for pair in pairs))
    return folder / "source", folder / "target"


@pytest.mark.parametrize("bad", [range(3), range(60)], ids=["some", "all"])
def test_lines_that_are_not_utf8_are_counted(corpus, tmp_path, bad):
    source, target = write_corpus(tmp_path, corpus[0][:60])
    texts = target.read_bytes().splitlines()
    target.write_bytes(
        b"".join(text + b" \xe9t\xe9\n" * (i in bad) + b"\n" * (i not in bad) for i, text in enumerate(texts))
    )
    report = regard.check(source, target)
    (finding,) = (finding for finding in report.findings if finding.kind == "unreadable")
    assert report.verdict == "unfit"
    assert (finding.count, finding.share) == (len(bad), pytest.approx(len(bad) / 60, abs=1e-6))
    assert finding.lines == {str(target): [i + 1 for i in bad]}
    assert "(0xE9) is not UTF-8" in finding.examples[0].note


def test_the_verb_reads_files_and_returns_a_report(corpus, tmp_path):
    files = write_corpus(tmp_path, [swap(pair) if pair.origin.line % 50 == 0 else pair for pair in corpus[0]])
    report = regard.check(*files)
    assert (report.verdict, [finding.kind for finding in report.findings]) == ("care", ["swapped"])
    assert report.findings[0].examples[0].where.startswith(f"{files[0]}:")
    assert report.to_dict()["verdict"] == "care"
    assert "swapped" in report._repr_html_()


def test_the_verb_reads_validation_files(corpus, tmp_path):
    train, valid = tmp_path / "train", tmp_path / "valid"
    train.mkdir()
    valid.mkdir()
    report = regard.check(*write_corpus(train, corpus[0]), valid=write_corpus(valid, corpus[0][:200]))
    assert [(finding.kind, finding.split) for finding in report.findings] == [("leakage", "valid")]


def test_the_report_saves_a_page_and_does_not_overwrite_it(corpus, tmp_path):
    report = check_pairs(corpus[0][:100])
    report.save(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")
    with pytest.raises(FolderError, match="already exists"):
        report.save(tmp_path / "report.html")


def nasty_report():
    """A report whose examples try to break the page."""
    nasty = Example("a<b>.txt:1", '<script>alert("1")</script> & שלום', "بيت صغير", "'$note' <i>")
    finding = Finding("copies", "train", "care", 1, 0.5, "<b>title</b>", "why", "do `a < b`", (nasty,), {})
    return Report("care", (finding,), check_pairs(make_corpus(100)).statistics, ("<A>", "B"))


@pytest.mark.parametrize(
    ("severities", "title"),
    [
        (("unfit", *["care"] * 5), "1 blocking problem, 5 warnings"),
        (("unfit", "unfit"), "2 blocking problems"),
        (("care",), "1 warning"),
        ((), "No problems found"),
    ],
)
def test_the_title_counts_the_findings(severities, title):
    report = nasty_report()
    findings = [dataclasses.replace(report.findings[0], severity=severity) for severity in severities]
    assert f">{title}</h1>" in dataclasses.replace(report, findings=findings).to_html()


def test_the_page_links_to_each_finding():
    html = duplicates_report().to_html()
    assert '<a href="#duplicates-train">' in html
    assert 'id="duplicates-train"' in html


def test_the_page_escapes_text_from_the_corpus():
    assert not re.search(r"<script>alert|<i>|<b>|<A>", nasty_report().to_html())


def test_the_page_lets_each_text_choose_its_direction():
    assert re.search('<p dir="auto"[^>]*>بيت صغير</p>', nasty_report().to_html())


def test_the_page_needs_no_network():
    assert not re.search(r"(src|href)=|url\(|@import|https?://(?!www\.w3\.org)", clean_report().to_html())


def test_the_page_stays_small(corpus):
    train, *others = corpus
    for start, (_, change) in enumerate(PROBLEMS.values()):
        train = changed(train, every(100, start=start), change)
    assert len(check_pairs(train, *others).to_html().encode()) < 300_000


def test_the_text_begins_with_the_verdict():
    assert str(clean_report()).startswith("Fit to train on")


def test_the_text_has_the_fix():
    assert "Fix: " in str(duplicates_report())


def test_the_text_shows_brackets_as_they_are():
    report = check_pairs(
        changed(make_corpus(1500), every(50, 1500), lambda pair: Pair("[red] [1] x y", "[red] [1] x y", pair.origin))
    )
    assert "[red] [1]" in str(report)


@pytest.fixture(scope="module")
def data():
    if not os.environ.get("REGARD_DATA"):
        pytest.skip("set REGARD_DATA to the folder of corpora")
    return Path(os.environ["REGARD_DATA"])


def read(folder, source, target):
    """The pairs of two compressed files."""
    texts = [gzip.decompress((folder / name).read_bytes()).decode().split("\n")[:-1] for name in (source, target)]
    return [Pair(*both, Origin(source, line)) for line, both in enumerate(zip(*texts, strict=True), 1)]


def splits(folder, language, names):
    return [read(folder, f"{name}.en.gz", f"{name}.{language}.gz") for name in names]


@pytest.mark.slow
@pytest.mark.parametrize("language", ["de", "fr", "cs"])
def test_multi30k_is_fit(data, language):
    corpus = splits(data / "multi30k", language, ["train", "val", "test_2016_flickr"])
    assert found(check_pairs(*corpus)) == []


@pytest.mark.slow
@pytest.mark.parametrize("language", ["de", "fr"])
def test_tatoeba_is_fit(data, language):
    train, *others = splits(data / f"tatoeba_en{language}", language, ["train", "valid", "test"])
    assert found(check_pairs(train[-80_000:], *others)) == []


@pytest.mark.slow
def test_the_duplicates_of_the_hansards_need_care(data):
    train, *others = splits(data / "hansards_enfr", "fr", ["train", "valid", "test"])
    report = check_pairs(train[:100_000], *others)
    assert (report.verdict, found(report)[0]) == ("care", ("duplicates", "train"))


@pytest.mark.slow
def test_the_escapes_of_tokenised_text_need_care(data):
    folder = data / "iwslt14_deen_devtest"
    report = check_pairs(read(folder, "valid.de.gz", "valid.en.gz"), read(folder, "test.de.gz", "test.en.gz"))
    assert (report.verdict, found(report)[0]) == ("care", ("escapes", "train"))


REAL_PROBLEMS = {
    "swapped": (every(50), swap),
    "mojibake": (every(25), target_as(misread)),
    "copies": (every(50), lambda pair: pair._replace(target=pair.source)),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", REAL_PROBLEMS)
def test_a_planted_problem_in_real_text_is_found_with_its_kind(data, kind):
    train = splits(data / "multi30k", "de", ["train"])[0][:5000]
    places, change = REAL_PROBLEMS[kind]
    assert found(check_pairs(changed(train, places, change))) == [(kind, "train")]


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["multi30k", "tatoeba_ende", "hansards_enfr"])
def test_a_shifted_span_of_real_text_is_found(data, folder):
    train = splits(data / folder, "fr" if folder.endswith("fr") else "de", ["train"])[0][-5000:]
    assert ("misaligned", "train") in found(check_pairs(shifted(train, 3000, 3200, 1)))


@pytest.mark.slow
@pytest.mark.parametrize("count", [2000, 29_000])
def test_shuffled_targets_of_real_text_are_unfit(data, count):
    report = check_pairs(shuffled(splits(data / "multi30k", "de", ["train"])[0][:count]))
    assert (report.verdict, found(report)) == ("unfit", [("unrelated", "train")])


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["multi30k", "tatoeba_ende"])
def test_a_shift_of_a_whole_real_corpus_says_by_how_many_lines(data, folder):
    train = splits(data / folder, "de", ["train"])[0][:29_000]
    report = check_pairs(shifted(train, 0, len(train), 5))
    assert (report.verdict, found(report)) == ("unfit", [("misaligned", "train")])
    assert report.findings[0].examples[0].note.endswith("5 lines later")


@pytest.mark.slow
def test_two_halves_of_one_text_are_unrelated(data):
    text = gzip.decompress((data / "wikitext2" / "wiki.train.tokens.gz").read_bytes()).decode().split("\n")
    text = [line for line in text if line.strip()]
    half = len(text) // 2
    pairs = [Pair(*both, Origin("wiki", line)) for line, both in enumerate(zip(text, text[half:], strict=False), 1)]
    assert ("unrelated", "train") in found(check_pairs(pairs[:half]))


@pytest.mark.slow
def test_the_built_in_corpus_is_fit():
    from regard.corpora.builtin.corpus import sentences

    def part(name, size):
        drawn = enumerate(sentences(size, part=name), 1)
        return [Pair(pair.source, pair.target, Origin(name, line)) for line, pair in drawn]

    assert found(check_pairs(part("train", 10_000), part("valid", 500), part("test", 500))) == []


@pytest.mark.slow
@pytest.mark.parametrize("languages", [("zh", "en"), ("ja", "en"), ("ro", "en")])
def test_small_sets_of_far_languages_are_only_small(data, languages):
    names = [f"{''.join(languages)}.test.{language}.gz" for language in languages]
    assert found(check_pairs(read(data / "word_alignment_gold", *names))) == [("too-few", "train")]


@pytest.mark.slow
@pytest.mark.parametrize("step", [4, 10, 33])
def test_german_among_french_is_found_however_much_there_is(data, step):
    french, german = (splits(data / "multi30k", language, ["train"])[0] for language in ("fr", "de"))
    places = every(step, len(french))
    report = check_pairs(changed(french, places, lambda pair: german[pair.origin.line - 1]))
    assert found(report) == [("wrong-language", "train")]
    assert abs(report.findings[0].count - len(places)) < 0.1 * len(places)


@pytest.mark.slow
def test_a_few_lines_of_two_other_languages_are_found(data):
    french, german, czech = (
        splits(data / "multi30k", language, ["train"])[0][:10_000] for language in ("fr", "de", "cs")
    )
    train = changed(french, every(100, 10_000), lambda pair: german[pair.origin.line - 1])
    train = changed(train, every(100, 10_000, start=50), lambda pair: czech[pair.origin.line - 1])
    report = check_pairs(train)
    assert found(report) == [("wrong-language", "train")]
    assert report.findings[0].count > 140  # of 200


@pytest.mark.slow
@pytest.mark.parametrize("step", [100, 33, 10])
def test_targets_five_times_too_long_are_found_in_real_text(data, step):
    train = splits(data / "multi30k", "de", ["train"])[0]
    report = check_pairs(changed(train, every(step, len(train), start=0), target_as(lambda text: " ".join([text] * 5))))
    assert found(report) == [("length-ratio", "train")]
    named, count = len(lines_of(report)), report.findings[0].count
    assert 0.98 * count <= named <= count
    assert report.findings[0].lines_complete == (named == count)
