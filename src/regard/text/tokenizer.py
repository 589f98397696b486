"""Tokenizers: text to ids and back by the `tokenizers` library, for one sentence or a whole corpus."""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, repeat
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as Engine

from regard.config import TokenizerKind
from regard.errors import ConfigError, FolderError, InputError

SPECIALS = ("<pad>", "<s>", "</s>", "<unk>", "<mask>")
PAD, START, END, UNKNOWN, MASK = range(len(SPECIALS))
TEXTLESS_TOKENS = (PAD, START, END, MASK)  # they stand in no text; <unk> does: a lost word leaves a trace

# At 0.1 this makes Multi30k's first 2,000 lines 12 % (en) and 15 % (de) longer; the library's dropout, 14 and 15 %.
GENTLER = 0.3
SOURCE_FILE = "tokenizer.json"
TARGET_FILE = "tokenizer.target.json"  # only where the sides have one each
TRANSFORMERS_FILE = "tokenizer_config.json"  # what `transformers` must know beside the first
FILES = (SOURCE_FILE, TARGET_FILE, TRANSFORMERS_FILE)
"""Every file that a folder may hold of its tokenizers."""

FOR_TRANSFORMERS = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "pad_token": SPECIALS[PAD],
    "bos_token": SPECIALS[START],
    "eos_token": SPECIALS[END],
    "unk_token": SPECIALS[UNKNOWN],
    "mask_token": SPECIALS[MASK],
    "padding_side": "right",
    "split_special_tokens": True,  # the text "</s>" is text
    "clean_up_tokenization_spaces": False,
}

BLANK = "Ġ"  # how `tokenizers` writes a blank as a byte
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]  # how `tokenizers` names the bytes it falls back to
ASCII = [chr(code) for code in range(ord("!"), ord("~") + 1)]
NEVER = -1e5  # the score of a piece that loses to any other way to cut a text
TRAINING_BATCH = 1000
KNOWN_WORDS = 1 << 16  # remembered with their ids: some 15 MB
DROPOUT_TABLES = 16  # ways that BPE dropout may cut one word

SIZES = (1000, 1500, 2000, 3000, 4000, 6000, 8000, 10000, 12000, 16000, 24000, 32000)
ENOUGH = 20  # times a token is seen in training
WORTH = 0.03  # by which a line gets shorter
SAMPLE = 1 << 18  # lines that a size is suggested from
MOST_WORDS = 50_000

Ids = NDArray[np.uint32]
Lengths = NDArray[np.int64]
Choose = Callable[[int], NDArray[np.int64]]


class Tokenizer:
    """Text to ids and back; `text` is its `tokenizer.json`."""

    def __init__(self, text: str) -> None:
        self.text = text
        try:
            self._engine = Engine.from_str(text)
        except Exception as error:  # the library raises no class of its own
            raise FolderError(f"this is not a tokenizer.json: {error}") from error
        self._engine.encode_special_tokens = True  # the text "</s>" is text
        self._engine.no_padding()
        self._engine.no_truncation()
        found = tuple(self._engine.id_to_token(number) for number in range(len(SPECIALS)))
        if found != SPECIALS:
            raise FolderError(f"the tokenizer begins with {found}; one made here begins with {SPECIALS}")

    @classmethod
    def load(cls, path: Path) -> Tokenizer:
        """The tokenizer in a file."""
        try:
            return cls(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise FolderError(f"{path} cannot be read: {error.strerror or error}") from error
        except (FolderError, UnicodeDecodeError) as error:
            raise FolderError(f"{path}: {error}") from error

    def save(self, path: Path) -> None:
        """Write `tokenizer.json`."""
        path.write_text(self.text, encoding="utf-8")

    @property
    def fingerprint(self) -> str:
        """What tells this tokenizer from others, however its file is laid out."""
        canonical = json.dumps(json.loads(self.text), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()

    @property
    def size(self) -> int:
        """Tokens in the vocabulary, special ones included."""
        return int(self._engine.get_vocab_size())

    @property
    def tags(self) -> tuple[str, ...]:
        """Tokens of the user's own that are found in text."""
        return tuple(token["content"] for token in json.loads(self.text)["added_tokens"] if not token["special"])

    def id(self, token: str) -> int:
        """The id of a token such as <2fr>."""
        found = self._engine.token_to_id(token)
        if found is None:
            raise InputError(f"the tokenizer has no token {token}")
        return int(found)

    @property
    def surrounding_tokens(self) -> tuple[list[int], list[int]]:
        """The special tokens that stand before and after a text a bert reads."""
        text = self._engine.encode("a", add_special_tokens=False).ids
        whole = self._engine.encode("a", add_special_tokens=True).ids
        begin = whole.index(text[0]) if text else len(whole)
        return whole[:begin], whole[begin + len(text) :]

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without special tokens."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, by the library alone."""
        check_texts(texts)
        return [encoding.ids for encoding in self._engine.encode_batch_fast(texts, add_special_tokens=False)]

    def word_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Which word of its text each token is of, words counted from 0 between blanks; a blank is of the next word."""
        check_texts(texts)
        found = []
        for text, encoding in zip(texts, self._engine.encode_batch(texts, add_special_tokens=False), strict=True):
            blanks = [character.isspace() for character in text]
            begins = [before and not blank for before, blank in zip([True, *blanks], blanks, strict=False)]
            word = [begun - 1 for begun in accumulate(begins)]
            owner = [min(number + blank, word[-1]) for number, blank in zip(word, blanks, strict=True)]
            found.append([owner[max(end - 1, 0)] for _, end in encoding.offsets])
        return found

    def with_tags(self, tags: Sequence[str]) -> Tokenizer:
        """The same tokenizer with these tags as well, their ids after all others."""
        new = [tag for tag in tags if tag not in self.tags]
        if not new:
            return self
        check_tags([*self.tags, *new])
        engine = Engine.from_str(self.text)
        engine.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in new])
        return Tokenizer(json.dumps(json.loads(engine.to_str()), ensure_ascii=False, indent=1) + "\n")

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; special tokens have none, but for <unk>: a lost word leaves a trace."""
        shown = [number for number in ids if number not in TEXTLESS_TOKENS]
        if UNKNOWN in shown and isinstance(self._engine.model, models.WordLevel):
            lost = BLANK + SPECIALS[UNKNOWN]  # a word brings the blank before it, and this one is not known
            tokens = [lost if number == UNKNOWN else self._engine.id_to_token(number) for number in shown]
            return str(self._engine.decoder.decode([token for token in tokens if token is not None]))
        return str(self._engine.decode(shown, skip_special_tokens=False))

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Each id as the vocabulary writes it."""
        return [str(self._engine.id_to_token(number)) for number in ids]

    def token_texts(self, ids: Sequence[int], after: int) -> list[str]:
        """What each of the tokens would write after another, with the blank before it; a special token's name."""
        before = self.decode([after])
        found = []
        for number in ids:
            whole = self.decode([after, number])
            found.append(SPECIALS[number] if number in TEXTLESS_TOKENS else whole[_alike(before, whole) :])
        return found

    def token_starts(self, ids: Sequence[int], text: str | None = None) -> tuple[str, list[int]]:
        """The text that ids were made from, or else stand for, and the character at which each of them begins."""
        starts, end = [], 0
        if text is not None:
            cut = self._engine.encode(text, add_special_tokens=False)
            if cut.ids == [number for number in ids if number not in TEXTLESS_TOKENS]:
                offsets = iter(cut.offsets)
                for number in ids:
                    start, after = (end, end) if number in TEXTLESS_TOKENS else next(offsets)
                    starts.append(min(start, end))  # a blank between tokens belongs to the one after it
                    end = max(after, end)
                return text, starts
        text = self.decode(ids)
        for number in range(1, len(ids) + 1):
            starts.append(end)
            # half a character is not yet as it will be
            end = max(end, _alike(self.decode(ids[:number]), text))
        return text, starts


def _alike(one: str, other: str) -> int:
    """How many characters two texts begin with alike."""
    if other.startswith(one):  # nearly always, and much faster
        return len(one)
    both = zip(one, other, strict=False)
    return next((place for place, (a, b) in enumerate(both) if a != b), min(len(one), len(other)))


class Tokenizers(NamedTuple):
    """The tokenizers of a pair; one and the same where they are shared."""

    source: Tokenizer
    target: Tokenizer

    @property
    def shared(self) -> bool:
        return self.source is self.target

    @property
    def fingerprint(self) -> str:
        """What tells these tokenizers from others."""
        return fingerprint_of(self)

    def save(self, folder: Path) -> None:
        """Write `tokenizer.json`, and a second file where the target has its own.

        `transformers` reads the first: `AutoTokenizer.from_pretrained(folder)` gives our ids.
        """
        self.source.save(folder / SOURCE_FILE)
        (folder / TRANSFORMERS_FILE).write_text(json.dumps(FOR_TRANSFORMERS, indent=2) + "\n", encoding="utf-8")
        if not self.shared:
            self.target.save(folder / TARGET_FILE)

    @classmethod
    def load(cls, folder: Path) -> Tokenizers:
        """The tokenizers in a folder."""
        source = Tokenizer.load(folder / SOURCE_FILE)
        separate = folder / TARGET_FILE
        return cls(source, Tokenizer.load(separate) if separate.exists() else source)


def fingerprint_of(tokenizers: Sequence[Tokenizer]) -> str:
    """What tells these tokenizers from others, one that serves both sides counted once."""
    return "+".join(dict.fromkeys(tokenizer.fingerprint for tokenizer in tokenizers))


def check_fingerprint(found: str, expected: str, where: str | Path) -> None:
    """Refuse ids or weights that were made with another tokenizer."""
    if found != expected:
        raise FolderError(
            f"{where} was made with another tokenizer (fingerprint {expected[:12]}, here {found[:12]}): "
            "use the tokenizer.json it was made with, or prepare it again"
        )


def check_texts(texts: Sequence[str]) -> None:
    """Refuse half characters: some versions of the library would put another character in their place."""
    try:
        "".join(texts).encode()
    except (TypeError, UnicodeEncodeError):
        for text in texts:
            _check_text(text)


def _check_text(text: str) -> None:
    if not isinstance(text, str):
        raise InputError(f"a text must be a string, not {type(text).__name__}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"the text has a lone surrogate (U+{ord(text[error.start]):04X}) at character {error.start}: half a "
            "character, which no encoding can carry; decode the input again, or leave the line out"
        ) from error


# Training


def train(
    texts: Iterable[str], *, kind: TokenizerKind, vocabulary: int, lowercase: bool = False, tags: Sequence[str] = ()
) -> Tokenizer:
    """A tokenizer that knows these texts.

    `bpe` and `characters` give every text back exactly and the same tokenizer every time. `unigram` and `wordpiece` are
    learned a little differently from run to run, so save one before anything depends on it.

    `wordpiece` is for bert and not exact: its ids do not tell where blanks were, and "qu'un" comes back as "qu ' un".
    What `wordpiece` and `words` do not know comes back as <unk>.
    """
    check_tags(tags)
    reserved = [*SPECIALS, *tags]
    if kind == "characters":
        engine = _characters(texts, vocabulary, reserved, lowercase)
    else:
        engine, trainer = _untrained(kind, vocabulary, reserved)
        if lowercase:
            engine.normalizer = normalizers.Lowercase()
        try:
            engine.train_from_iterator(_batches(texts), trainer)
        except Exception as error:  # the library has no other class for it
            if "vocabulary is not large enough" not in str(error):
                raise
            raise ConfigError(
                f"text.vocabulary ({vocabulary}) does not hold every character of the text, as {kind} wants it to: set "
                f"text.vocabulary={2 * max(vocabulary, 500)} or more, or text.tokenizer=bpe"
            ) from error
    values = json.loads(engine.to_str())
    for token in values["added_tokens"]:
        token["special"] = token["content"] in SPECIALS  # tags are found in text, special tokens are not
    if kind == "unigram":
        _add_bytes(values, len(reserved))
    end = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", END)])
    values["post_processor"] = json.loads(end.__getstate__())
    return Tokenizer(json.dumps(values, ensure_ascii=False, indent=1) + "\n")


def train_sides(
    sources: Iterable[str],
    targets: Iterable[str],
    *,
    shared: bool,
    kind: TokenizerKind,
    vocabulary: int,
    lowercase: bool = False,
    tags: Sequence[str] = (),
) -> Tokenizers:
    """The tokenizers of a pair: one for both sides, or one each."""

    def of(texts: Iterable[str]) -> Tokenizer:
        return train(texts, kind=kind, vocabulary=vocabulary, lowercase=lowercase, tags=tags)

    if not shared:
        return Tokenizers(of(sources), of(targets))
    both = of(text for pair in zip(sources, targets, strict=True) for text in pair)
    return Tokenizers(both, both)


def check_tags(tags: Sequence[str]) -> None:
    """Tags are words that no tokenizer could mistake for something else."""
    letters_of_bytes = {letter for letter in pre_tokenizers.ByteLevel.alphabet() if not letter.isascii()}
    for tag in tags:
        if not tag or any(letter.isspace() for letter in tag):
            raise ConfigError(f"the tag {tag!r} must be one word without blanks, such as <2fr>")
        if tag in SPECIALS or tags.count(tag) > 1:
            raise ConfigError(
                f"the tag {tag} is taken: tags are different from each other and from {' '.join(SPECIALS)}"
            )
        if len(tag) == 1 or letters_of_bytes & set(tag):
            raise ConfigError(f"the tag {tag} could be mistaken for a byte: write it in two or more ASCII letters")


def _batches(texts: Iterable[str]) -> Iterator[list[str]]:
    """The library reads lists of texts much faster than texts."""
    batch: list[str] = []
    for text in texts:
        batch.append(text)
        if len(batch) == TRAINING_BATCH:
            check_texts(batch)
            yield batch
            batch = []
    check_texts(batch)
    yield batch


def _untrained(kind: TokenizerKind, vocabulary: int, reserved: list[str]) -> tuple[Engine, Any]:
    """The parts of a tokenizer of this kind, and what trains it."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    if kind == "bpe":
        engine = Engine(models.BPE())
        engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        engine.decoder = decoders.ByteLevel()
        return engine, trainers.BpeTrainer(
            vocab_size=max(vocabulary, len(reserved) + len(alphabet)),
            min_frequency=2,
            special_tokens=reserved,
            initial_alphabet=alphabet,
            show_progress=False,
        )
    if kind == "unigram":
        engine = Engine(models.Unigram())
        engine.pre_tokenizer = pre_tokenizers.Metaspace()
        engine.decoder = decoders.Sequence([decoders.Metaspace(), decoders.ByteFallback(), decoders.Fuse()])
        return engine, trainers.UnigramTrainer(
            vocab_size=max(vocabulary - len(BYTES) - len(ASCII), len(reserved) + 1),
            special_tokens=reserved,
            unk_token="<unk>",
            show_progress=False,
        )
    if kind == "wordpiece":
        engine = Engine(models.WordPiece(unk_token="<unk>"))
        engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        engine.decoder = decoders.WordPiece()
        return engine, trainers.WordPieceTrainer(vocab_size=vocabulary, special_tokens=reserved, show_progress=False)
    engine = Engine(models.WordLevel(unk_token="<unk>"))
    # a word carries the blank before it, so that decoding knows where blanks were
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    engine.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    return engine, trainers.WordLevelTrainer(vocab_size=vocabulary, special_tokens=reserved, show_progress=False)


def _characters(texts: Iterable[str], vocabulary: int, reserved: list[str], lowercase: bool) -> Engine:
    """The most frequent characters are tokens, all others are bytes."""
    seen: Counter[str] = Counter()
    for batch in _batches(texts):
        for text in batch:
            seen.update(text.lower() if lowercase else text)
    frequent = sorted(seen, key=lambda character: (-seen[character], character))
    room = max(vocabulary - len(reserved) - len(BYTES), 0) if vocabulary else len(frequent)
    known = [*reserved, *BYTES, *frequent[:room]]
    vocabulary_by_token = {token: number for number, token in enumerate(known)}
    engine = Engine(models.BPE(vocab=vocabulary_by_token, merges=[], byte_fallback=True))
    engine.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    if lowercase:
        engine.normalizer = normalizers.Lowercase()
    engine.add_special_tokens(reserved)
    return engine


def _add_bytes(values: dict[str, Any], reserved: int) -> None:
    """Give a Unigram model the bytes to fall back to, and see that no text is ever read as a special token or a byte.

    To the model those names are pieces like any other: they get a score that loses to every other way to cut a text,
    and all of ASCII becomes known, so that there is another way.
    """
    model = values["model"]
    pieces = model["vocab"]
    worst = min((score for _, score in pieces[reserved:]), default=0.0)
    known = {piece for piece, _ in pieces}
    names = [*(piece for piece, _ in pieces[:reserved]), *BYTES]
    letters = [letter for letter in ASCII if letter not in known]
    model["vocab"] = [*([name, NEVER] for name in names), *pieces[reserved:], *([letter, worst] for letter in letters)]
    model["byte_fallback"] = True


def drop_merges(tokenizer: Tokenizer, dropout: float, *, seed: int, table: int) -> Tokenizer:
    """The tokenizer without some of its merges, at random; (seed, table) alone decides which.

    BPE dropout (Provilkov et al., 2020) passes over a merge for one step of one word; here a merge is left out for
    good, and that cuts finer. So fewer are left out: GENTLER times as many, which makes texts about as much longer.
    """
    values = json.loads(tokenizer.text)
    if values["model"]["type"] != "BPE":
        raise ConfigError("text.bpe_dropout is for text.tokenizer = bpe")
    draw = random.Random(f"{seed}/{table}").random
    values["model"]["merges"] = [merge for merge in values["model"]["merges"] if draw() >= GENTLER * dropout]
    return Tokenizer(json.dumps(values, ensure_ascii=False))


# How many tokens


def suggest_vocabulary(texts: Iterable[str], *, kind: TokenizerKind) -> tuple[int, str]:
    """A vocabulary size that suits these texts, and the reason in words.

    A larger vocabulary makes lines shorter, but each of its tokens is seen less often: it grows while half of the
    tokens are seen `ENOUGH` times and doubling it would still make unseen lines shorter by `WORTH`.
    """
    sample, lines = _sample(texts)
    if kind in ("characters", "words"):
        return _suggest_whole(sample, kind)
    held, seen = sample[::21], [text for number, text in enumerate(sample) if number % 21]  # odd: sides may alternate
    largest = train(seen, kind="bpe", vocabulary=SIZES[-1])
    words, unseen = _words(seen), _words(held)
    if largest.size < SIZES[0]:
        return largest.size, f"the {lines:,} lines hold no more"
    size, before, reason = 0, 0.0, ""
    for candidate in (candidate for candidate in SIZES if candidate <= largest.size):
        often, tokens = _try(largest, candidate, words, unseen)
        often, per_line = often * lines / len(seen), tokens / len(held)
        gain = 1 - (per_line / before) ** (1 / math.log2(candidate / size)) if size else 1.0
        if size and often < ENOUGH:
            return size, f"{reason}; with {candidate:,} half of them would be seen less than {ENOUGH} times"
        if gain < WORTH:
            return size, f"{reason}; twice as many would make lines only {gain:.1%} shorter"
        size, before = candidate, per_line
        reason = (
            f"half of {size:,} tokens are seen {often:,.0f} times or more in {lines:,} lines of {per_line:.1f} tokens"
        )
    return size, f"{reason}; there is little more to learn"


def _words(lines: list[str]) -> Counter[str]:
    """How often each word comes, as it is cut: with the blank before it, but for the first of a line."""
    found = Counter(("\n" + " \n".join(lines)).split(" "))
    return Counter({word[1:] if word[:1] == "\n" else f" {word}": count for word, count in found.items()})


def _try(largest: Tokenizer, size: int, words: Counter[str], unseen: Counter[str]) -> tuple[float, int]:
    """How often half of the tokens are seen when there are `size` of them, and the tokens in unseen lines."""
    values = json.loads(largest.text)
    alphabet = len(SPECIALS) + len(BYTES)
    values["model"]["merges"] = values["model"]["merges"][: size - alphabet]
    smaller = Tokenizer(json.dumps(values))
    cut = smaller.encode_batch(list(words))
    times = np.repeat(list(words.values()), [len(ids) for ids in cut])
    counts = np.bincount([number for ids in cut for number in ids], times, minlength=size)[alphabet:size]
    tokens = sum(
        len(ids) * count for ids, count in zip(smaller.encode_batch(list(unseen)), unseen.values(), strict=True)
    )
    return float(np.median(counts)), tokens


def _suggest_whole(sample: list[str], kind: TokenizerKind) -> tuple[int, str]:
    """A size for tokens that are not learned but found."""
    if kind == "characters":
        found = len({character for text in sample for character in text})
        return len(SPECIALS) + len(BYTES) + found, f"there are {found:,} different characters; all others are bytes"
    counts = Counter(word for text in sample for word in text.split())
    twice = sum(count > 1 for count in counts.values())
    size = len(SPECIALS) + min(max(twice, 1), MOST_WORDS)
    return size, f"{twice:,} of {len(counts):,} different words come more than once; a list ends at {MOST_WORDS:,}"


def _sample(texts: Iterable[str]) -> tuple[list[str], int]:
    """Evenly spread texts, at most `SAMPLE` of them, and how many there were."""
    sample: list[str] = []
    step = 1
    total = 0
    for total, text in enumerate(texts, start=1):
        if (total - 1) % step == 0:
            sample.append(text)
            if len(sample) > SAMPLE:
                sample, step = sample[::3], step * 3  # odd: sides may alternate
    return sample, total


# Whole corpora


class CorpusEncoder:
    """Many lines to ids: each word is cut once and remembered.

    No token reaches across a blank that is followed by something, so a line is the sum of its words; the few lines
    where blanks stand together go to the library whole. With several tokenizers (see `drop_merges`) the caller chooses
    one for each word.
    """

    def __init__(self, tokenizers: Sequence[Tokenizer]) -> None:
        tables = len(tokenizers)
        self._tokenizers = tokenizers
        self._tags = tokenizers[0].tags
        self._known: dict[str, int] = {}  # words as `_look_up` gets them, and their place in what follows
        self._ids = np.zeros(0, np.uint32)
        self._starts: NDArray[np.int64] = np.zeros((tables, 0), np.int64)
        self._lengths: NDArray[np.int64] = np.zeros((tables, 0), np.int64)
        self._marks = np.zeros((3, 0), np.bool_)  # begins a line; blank at its beginning, at its end
        self._uses = np.zeros(0, np.int64)

    def __call__(self, lines: Sequence[str], choose: Choose | None = None) -> tuple[Ids, Lengths]:
        """All ids one after the other, each line ended by </s>, and the length of each line with it.

        `choose(count)` names the tokenizer of each of `count` words.
        """
        if not lines:
            return np.zeros(0, np.uint32), np.zeros(0, np.int64)
        joined = "\n" + " \n".join(lines)
        odd: set[int] = set()
        if joined.count("\n") > len(lines):
            odd = {number for number, line in enumerate(lines) if "\n" in line}
            joined = "\n" + " \n".join("" if number in odd else line for number, line in enumerate(lines))
        units = self._look_up(joined.split(" "))
        first, opens, closes = self._marks[:, units]
        clash = closes[:-1] & opens[1:] & ~first[1:]
        if clash.any():
            odd |= set((np.cumsum(first)[1:][clash] - 1).tolist())
        table = choose(len(units)) if choose else np.zeros(len(units), np.int64)
        lengths = self._lengths[table, units]
        ids = take(self._ids, self._starts[table, units], lengths)
        by_line = np.add.reduceat(lengths, np.flatnonzero(first))
        if odd:
            pick = int(table[0])  # whole lines are cut by one table: they are few
            ids, by_line = self._replace(ids, by_line, lines, sorted(odd), pick)
        return np.insert(ids, np.cumsum(by_line), END), by_line + 1

    def _look_up(self, words: list[str]) -> NDArray[np.int64]:
        if len(self._known) > KNOWN_WORDS:
            self._forget()
        units = np.fromiter(map(self._known.get, words, repeat(-1)), np.int64, len(words))
        unknown = np.flatnonzero(units < 0)
        if len(unknown):
            self._learn(list(dict.fromkeys(words[place] for place in unknown.tolist())))
            units[unknown] = [self._known[words[place]] for place in unknown.tolist()]
        self._uses += np.bincount(units, minlength=len(self._uses))
        return units

    def _forget(self) -> None:
        """Keep only the words that were used most."""
        kept = np.argsort(-self._uses, kind="stable")[: KNOWN_WORDS // 2]
        words = list(self._known)
        self._known = {words[place]: number for number, place in enumerate(kept.tolist())}
        lengths = self._lengths[:, kept]
        self._ids = take(self._ids, self._starts[:, kept].ravel(), lengths.ravel())
        self._starts = (np.cumsum(lengths) - lengths.ravel()).reshape(lengths.shape)
        self._lengths = lengths
        self._marks = self._marks[:, kept]
        self._uses = self._uses[kept] // 2  # the past counts less and less

    def _learn(self, words: list[str]) -> None:
        self._known.update(zip(words, range(len(self._known), len(self._known) + len(words)), strict=True))
        texts = [word[1:] if word[:1] == "\n" else " " + word for word in words]
        pieces = [self._ids]
        starts, lengths = [], []
        total = len(self._ids)
        for tokenizer in self._tokenizers:
            cut = tokenizer.encode_batch(texts)
            counts = np.fromiter(map(len, cut), np.int64, len(cut))
            ends = total + np.cumsum(counts)
            pieces.append(np.fromiter((number for ids in cut for number in ids), np.uint32, int(counts.sum())))
            starts.append(ends - counts)
            lengths.append(counts)
            total = int(ends[-1])
        self._ids = np.concatenate(pieces)
        self._starts = np.concatenate([self._starts, np.stack(starts)], axis=1)
        self._lengths = np.concatenate([self._lengths, np.stack(lengths)], axis=1)
        marks = np.array([self._mark(word) for word in words], np.bool_)
        self._marks = np.concatenate([self._marks, marks.T], axis=1)
        self._uses = np.concatenate([self._uses, np.zeros(len(words), np.int64)])

    def _mark(self, word: str) -> tuple[bool, bool, bool]:
        first = word[:1] == "\n"
        body = word[1:] if first else word
        if not body:
            return first, not first, not first
        tagged = any(tag in body for tag in self._tags)  # a tag ends the text before it, blanks included
        return first, tagged or body[0].isspace(), tagged or body[-1].isspace()

    def _replace(
        self, ids: Ids, lengths: Lengths, lines: Sequence[str], odd: list[int], table: int
    ) -> tuple[Ids, Lengths]:
        """The same with some lines encoded whole."""
        rows = np.split(ids, np.cumsum(lengths)[:-1])
        whole = self._tokenizers[table].encode_batch([lines[number] for number in odd])
        for number, cut in zip(odd, whole, strict=True):
            rows[number] = np.array(cut, np.uint32)
        return np.concatenate(rows), np.fromiter(map(len, rows), np.int64, len(rows))


def take(values: NDArray[Any], starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[Any]:
    """The stretches of an array, one after the other."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return values[np.repeat(starts - (ends - lengths), lengths) + np.arange(total)]
