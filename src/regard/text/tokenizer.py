"""Tokenizers: text to ids and back with the `tokenizers` library, trained, saved, and applied to whole corpora."""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, islice, repeat
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as Engine

from regard.config import TokenizerKind
from regard.errors import ConfigError, FolderError, InputError
from regard.folders import parse_json, read_bounded, write_file
from regard.text.ordering import noise
from regard.text.sentences import text_problem

SPECIALS = ("<pad>", "<s>", "</s>", "<unk>", "<mask>")
PAD, START, END, UNKNOWN, MASK = range(len(SPECIALS))


class SpecialIds(NamedTuple):
    """The ids of the special tokens of a vocabulary; in those of other libraries, one token may have several roles."""

    pad: int = PAD
    start: int = START
    end: int = END
    unknown: int = UNKNOWN
    mask: int = MASK

    @property
    def textless(self) -> frozenset[int]:
        """Tokens that are decoded to nothing; <unk> is written, so that a lost word can be seen."""
        return frozenset({self.pad, self.start, self.end} | ({self.mask} - {self.unknown}))

    @property
    def never_generated(self) -> tuple[int, ...]:
        """Tokens that no search may choose."""
        return tuple(sorted({self.pad, self.start, self.unknown, self.mask} - {self.end}))


OWN_SPECIAL_IDS = SpecialIds()

SOURCE_FILE = "tokenizer.json"
TARGET_FILE = "tokenizer.target.json"  # only if the target has its own tokenizer
TRANSFORMERS_FILE = "tokenizer_config.json"  # read by `transformers` beside tokenizer.json
FILES = (SOURCE_FILE, TARGET_FILE, TRANSFORMERS_FILE)  # all that a model folder may hold

SPACE = "Ġ"  # a space in a byte-level vocabulary
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]  # the names of the tokens for byte fallback
NEVER_CHOSEN = -1e5  # the score of a unigram token that loses to any other segmentation
TRAINING_BATCH = 1000  # texts passed to the library at once
MAX_CACHED_WORDS = 1 << 17  # with their ids about 30 MB; then the cache is emptied

DROPOUT_TABLES = 16  # segmentations of a word that BPE dropout chooses from
# At bpe_dropout = 0.1 this makes Multi30k's first 2,000 lines 12 % (en) and 15 % (de) longer; the library's own dropout
# makes them 14 and 15 % longer.
DROPPED_MERGES = 0.3  # times bpe_dropout

# Without a vocabulary size, as many tokens are learned as occur this often. Multi30k en-de gets 7,400, its first 2,000
# pairs 1,500 and 20,000 sentences of the built-in corpus 6,100.
MIN_FREQUENCY = 15
MAX_VOCABULARY = 32_000
MAX_WORD_VOCABULARY = 50_000  # for words, which need to occur only twice

Ids = NDArray[np.uint32]
Lengths = NDArray[np.int64]


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
        values = json.loads(text)
        # tokens that the user added and that are recognized in text, such as <2fr>
        self.tags = tuple(token["content"] for token in values["added_tokens"] if not token["special"])
        first = tuple(self._engine.id_to_token(number) for number in range(len(SPECIALS)))
        named = (values.get("post_processor") or {}).get("special_tokens") or {}  # as in imported files
        if set(SPECIALS) <= set(named):
            self.special = SpecialIds(*(int(named[name]["ids"][0]) for name in SPECIALS))
        elif first == SPECIALS:
            self.special = OWN_SPECIAL_IDS
        else:
            raise FolderError(f"the tokenizer begins with {first}; one of Regard begins with {SPECIALS}")

    @classmethod
    def load(cls, path: Path) -> Tokenizer:
        """Read a `tokenizer.json`."""
        data = read_bounded(path)
        try:
            parse_json(data)
            return cls(data.decode())
        except ValueError as error:
            raise FolderError(f"{path}: {error}") from error

    @property
    def fingerprint(self) -> str:
        """A hash of the content, independent of the layout of the file."""
        canonical = json.dumps(json.loads(self.text), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()

    @property
    def size(self) -> int:
        """The size of the vocabulary, special tokens included."""
        return int(self._engine.get_vocab_size())

    @property
    def kind(self) -> str:
        """The model of the library: BPE, Unigram, WordPiece or WordLevel."""
        return type(self._engine.model).__name__

    @property
    def transformers_config(self) -> dict[str, Any]:
        """The content of tokenizer_config.json, with the names of the special tokens."""
        names = zip(("pad", "bos", "eos", "unk", "mask"), self.tokens(self.special), strict=True)
        return {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "padding_side": "right",
            "split_special_tokens": True,  # the text "</s>" is text
            "clean_up_tokenization_spaces": False,
        } | {f"{role}_token": name for role, name in names}

    @property
    def surrounding_tokens(self) -> tuple[list[int], list[int]]:
        """The special tokens before and after a text that a bert reads."""
        text = self._engine.encode("a", add_special_tokens=False).ids
        whole = self._engine.encode("a", add_special_tokens=True).ids
        start = whole.index(text[0]) if text else len(whole)
        return whole[:start], whole[start + len(text) :]

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without special tokens."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, without special tokens."""
        check_texts(texts)
        return [encoding.ids for encoding in self._engine.encode_batch_fast(texts, add_special_tokens=False)]

    def word_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """The word of each token, by number; words are divided by spaces, and a space belongs to the next word."""
        check_texts(texts)
        rows = []
        for text, encoding in zip(texts, self._engine.encode_batch(texts, add_special_tokens=False), strict=True):
            spaces = [character.isspace() for character in text]
            starts = [before and not space for before, space in zip([True, *spaces], spaces, strict=False)]
            word = [started - 1 for started in accumulate(starts)]
            owner = [min(number + space, word[-1]) for number, space in zip(word, spaces, strict=True)]
            rows.append([owner[max(end - 1, 0)] for _, end in encoding.offsets])
        return rows

    def with_tags(self, tags: Sequence[str]) -> Tokenizer:
        """The tokenizer with more tags; their ids come after all others."""
        new = [tag for tag in tags if tag not in self.tags]
        if not new:
            return self
        check_tags(new)
        engine = Engine.from_str(self.text)
        engine.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in new])
        return Tokenizer(json.dumps(json.loads(engine.to_str()), ensure_ascii=False, indent=1) + "\n")

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; special tokens but <unk> have none."""
        shown = [number for number in ids if number not in self.special.textless]
        unknown = self.special.unknown
        if unknown in shown and isinstance(self._engine.model, models.WordLevel):
            space = SPACE + SPECIALS[UNKNOWN]  # other words bring the space before them
            tokens = [space if number == unknown else self._engine.id_to_token(number) for number in shown]
            return str(self._engine.decoder.decode([token for token in tokens if token is not None]))
        return str(self._engine.decode(shown, skip_special_tokens=False))

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """The token of each id, as it is in the vocabulary."""
        return [str(self._engine.id_to_token(number)) for number in ids]

    def token_id(self, token: str) -> int | None:
        """The id of a token of the vocabulary."""
        number: int | None = self._engine.token_to_id(token)
        return number

    def token_texts(self, ids: Sequence[int], after: int) -> list[str]:
        """The text that each token adds after the token `after`; for a special token, its name."""
        before = self.decode([after])
        texts = []
        for number in ids:
            whole = self.decode([after, number])
            is_special = number in self.special.textless
            texts.append(
                str(self._engine.id_to_token(number)) if is_special else whole[_common_prefix(before, whole) :]
            )
        return texts

    def token_starts(self, ids: Sequence[int], text: str | None = None) -> tuple[str, list[int]]:
        """The text of ids, as it was encoded if that is given, and the character at which each token begins."""
        starts, end = [], 0
        if text is not None:
            encoding = self._engine.encode(text, add_special_tokens=False)
            if encoding.ids == [number for number in ids if number not in self.special.textless]:
                offsets = iter(encoding.offsets)
                for number in ids:
                    start, stop = (end, end) if number in self.special.textless else next(offsets)
                    starts.append(min(start, end))  # a space between tokens belongs to the next one
                    end = max(stop, end)
                return text, starts
        text = self.decode(ids)
        for number in range(1, len(ids) + 1):
            starts.append(end)
            # an incomplete character is decoded differently from the whole one
            end = max(end, _common_prefix(self.decode(ids[:number]), text))
        return text, starts


def _common_prefix(left: str, right: str) -> int:
    """The length of the common prefix of two texts."""
    if right.startswith(left):  # nearly always, and much faster
        return len(left)
    return next((n for n, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))


class Tokenizers(NamedTuple):
    """The tokenizers of source and target; the same object if they share one."""

    source: Tokenizer
    target: Tokenizer

    @property
    def shared(self) -> bool:
        return self.source is self.target

    @property
    def fingerprint(self) -> str:
        """A hash of both tokenizers; a shared one counts once."""
        return "+".join(dict.fromkeys(tokenizer.fingerprint for tokenizer in self))

    def files(self) -> dict[str, str]:
        """The text of `tokenizer.json`, and of a second file if the target has its own tokenizer.

        `AutoTokenizer.from_pretrained(folder)` of `transformers` reads the first and gives the same ids.
        """
        settings = json.dumps(self.source.transformers_config, indent=2) + "\n"
        files = {SOURCE_FILE: self.source.text, TRANSFORMERS_FILE: settings}
        return files if self.shared else {**files, TARGET_FILE: self.target.text}

    def save(self, folder: Path) -> None:
        """Write the files."""
        for name, text in self.files().items():
            write_file(folder / name, text, force=True)

    @classmethod
    def load(cls, folder: Path) -> Tokenizers:
        """The tokenizers in a folder."""
        source = Tokenizer.load(folder / SOURCE_FILE)
        separate = folder / TARGET_FILE
        return cls(source, Tokenizer.load(separate) if separate.exists() else source)


def check_texts(texts: Sequence[str]) -> None:
    """Raise an InputError for lone surrogates, which some versions of the library replace by another character."""
    try:
        "".join(texts).encode()
    except (TypeError, UnicodeEncodeError) as error:
        raise InputError(next(filter(None, map(text_problem, texts)))) from error


# Training


def train(
    texts: Iterable[str], *, kind: TokenizerKind, vocabulary: int, lowercase: bool = False, tags: Sequence[str] = ()
) -> Tokenizer:
    """Train a tokenizer on texts; with a `vocabulary` of 0 its size follows from them, except for unigram.

    `bpe`, `unigram` and `characters` decode every text exactly. `wordpiece` is for bert and loses spaces: "qu'un" is
    decoded as "qu ' un". `unigram` and `wordpiece` come out a little different in every run, so save them before
    anything depends on them. Words that `wordpiece` and `words` do not know are decoded as <unk>.
    """
    check_tags(tags)
    reserved = [*SPECIALS, *tags]
    if kind == "characters":
        engine = _characters(texts, vocabulary, reserved, lowercase)
    else:
        engine, trainer = _untrained(kind, vocabulary, reserved)
        engine.normalizer = normalizers.Lowercase() if lowercase else None
        engine.train_from_iterator(_batches(texts), trainer)
    values = json.loads(engine.to_str())
    for token in values["added_tokens"]:
        token["special"] = token["content"] in SPECIALS  # tags are recognized in text, special tokens are not
    if kind == "unigram":
        for entry in values["model"]["vocab"][: len(reserved)]:
            entry[1] = NEVER_CHOSEN  # "<s>" in a text is text
    end = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", END)])
    values["post_processor"] = json.loads(end.__getstate__())
    return Tokenizer(json.dumps(values, ensure_ascii=False, indent=1) + "\n")


def check_tags(tags: Sequence[str]) -> None:
    """Raise a ConfigError for tags that a tokenizer could confuse with other tokens."""
    for tag in tags:
        if not re.fullmatch("[!-~]{2,}", tag):
            raise ConfigError(f"the tag {tag!r} must be two or more ASCII characters without spaces, such as <2fr>")
        if tag in SPECIALS or tags.count(tag) > 1:
            raise ConfigError(
                f"the tag {tag} is already in use: tags must differ from each other and from {' '.join(SPECIALS)}"
            )


def _batches(texts: Iterable[str]) -> Iterator[list[str]]:
    """Lists of texts, which the library reads much faster than single texts."""
    stream = iter(texts)
    while batch := list(islice(stream, TRAINING_BATCH)):
        check_texts(batch)
        yield batch


def _untrained(kind: TokenizerKind, vocabulary: int, reserved: list[str]) -> tuple[Engine, Any]:
    """An untrained tokenizer of this kind, and its trainer."""
    size = vocabulary or MAX_VOCABULARY
    options: dict[str, Any] = {"special_tokens": reserved, "show_progress": False}
    min_frequency = 2 if vocabulary else MIN_FREQUENCY
    if kind == "wordpiece":
        engine = Engine(models.WordPiece(unk_token="<unk>"))
        engine.pre_tokenizer, engine.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
        return engine, trainers.WordPieceTrainer(vocab_size=size, min_frequency=min_frequency, **options)
    if kind == "words":
        engine = Engine(models.WordLevel(unk_token="<unk>"))
        # a word includes the space before it, so that spaces can be decoded
        engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
        engine.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
        size, min_frequency = vocabulary or MAX_WORD_VOCABULARY, 0 if vocabulary else 2
        return engine, trainers.WordLevelTrainer(vocab_size=size, min_frequency=min_frequency, **options)
    engine = Engine(models.BPE() if kind == "bpe" else models.Unigram())
    engine.pre_tokenizer, engine.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    options["initial_alphabet"] = alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    options["vocab_size"] = max(size, len(reserved) + len(alphabet))
    if kind == "unigram":
        return engine, trainers.UnigramTrainer(unk_token="<unk>", **options)
    return engine, trainers.BpeTrainer(min_frequency=min_frequency, **options)


def _characters(texts: Iterable[str], vocabulary: int, reserved: list[str], lowercase: bool) -> Engine:
    """A tokenizer whose tokens are the most frequent characters, and bytes for all others."""
    seen: Counter[str] = Counter()
    for text in chain.from_iterable(_batches(texts)):
        seen.update(text.lower() if lowercase else text)
    frequent = sorted(seen, key=lambda character: (-seen[character], character))
    size = max(vocabulary - len(reserved) - len(BYTES), 0) if vocabulary else len(frequent)
    tokens = [*reserved, *BYTES, *frequent[:size]]
    vocab = {token: number for number, token in enumerate(tokens)}
    engine = Engine(models.BPE(vocab=vocab, merges=[], byte_fallback=True))
    engine.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    engine.normalizer = normalizers.Lowercase() if lowercase else None
    engine.add_special_tokens(reserved)
    return engine


def drop_merges(tokenizer: Tokenizer, dropout: float, *, seed: int) -> list[Tokenizer]:
    """`DROPOUT_TABLES` copies of the tokenizer without some of its merges, chosen at random.

    BPE dropout (Provilkov et al., 2020) skips a merge in one step of one word. Here a merge is dropped for all words,
    which splits them into more subwords; so only `DROPPED_MERGES` times as many are dropped.
    """
    values = json.loads(tokenizer.text)
    if values["model"]["type"] != "BPE":  # the tokenizer of --from may be another than text.tokenizer says
        raise ConfigError("text.bpe_dropout is for text.tokenizer = bpe")
    merges, tokenizers = values["model"]["merges"], []
    for table in range(DROPOUT_TABLES):
        draw = random.Random(f"{seed}/{table}").random
        values["model"]["merges"] = [merge for merge in merges if draw() >= DROPPED_MERGES * dropout]
        tokenizers.append(Tokenizer(json.dumps(values, ensure_ascii=False)))
    return tokenizers


# Whole corpora


class CorpusEncoder:
    """Encodes many lines fast: each word is encoded once, and its ids are cached.

    No token spans a space that is followed by another character, so the ids of a line are those of its words. The few
    lines with several spaces in a row are encoded whole by the library. Of several tokenizers (see `drop_merges`) each
    word gets one at random.
    """

    def __init__(self, tokenizers: Sequence[Tokenizer]) -> None:
        self._tokenizers = tokenizers
        self._clear()

    def _clear(self) -> None:
        self._words: dict[str, int] = {}  # the number of each cached word, an index into the arrays below
        self._ids = np.zeros(0, np.uint32)
        self._starts, self._lengths = np.zeros((2, len(self._tokenizers), 0), np.int64)
        self._flags = np.zeros((3, 0), np.bool_)  # begins a line; begins with a space; ends with a space

    def __call__(self, lines: Sequence[str], *key_parts: int) -> tuple[Ids, Lengths]:
        """The ids of all lines one after the other, each ended by </s>, and the length of each line with it.

        The random choice of a tokenizer for each word is a function of `key_parts`; without them it is the first.
        """
        if not lines:
            return np.zeros(0, np.uint32), np.zeros(0, np.int64)
        whole = {number for number, line in enumerate(lines) if "\n" in line}  # to encode whole
        # the first word of each line begins with a line break
        text = "\n" + " \n".join(["" if "\n" in line else line for line in lines])
        words = self._look_up(text.split(" "))
        begins_line, starts_with_space, ends_with_space = self._flags[:, words]
        double_space = ends_with_space[:-1] & starts_with_space[1:] & ~begins_line[1:]
        if double_space.any():
            whole |= set((np.cumsum(begins_line)[1:][double_space] - 1).tolist())
        table = np.zeros(len(words), np.int64)
        if key_parts:
            table = (noise(len(words), *key_parts) % np.uint64(len(self._tokenizers))).astype(np.int64)
        lengths = self._lengths[table, words]
        ids = self._ids[spans(self._starts[table, words], lengths)]
        by_line = np.add.reduceat(lengths, np.flatnonzero(begins_line))
        if whole:
            rows = np.split(ids, np.cumsum(by_line)[:-1])
            encoded = self._tokenizers[int(table[0])].encode_batch([lines[number] for number in sorted(whole)])
            for number, row in zip(sorted(whole), encoded, strict=True):
                rows[number] = np.array(row, np.uint32)
            ids, by_line = np.concatenate(rows), np.fromiter(map(len, rows), np.int64, len(rows))
        return np.insert(ids, np.cumsum(by_line), self._tokenizers[0].special.end), by_line + 1

    def _look_up(self, words: list[str]) -> NDArray[np.int64]:
        """The numbers of words, which are encoded if they are new."""
        if len(self._words) > MAX_CACHED_WORDS:
            self._clear()
        numbers = np.fromiter(map(self._words.get, words, repeat(-1)), np.int64, len(words))
        unknown = np.flatnonzero(numbers < 0).tolist()
        if unknown:
            self._encode(list(dict.fromkeys(words[index] for index in unknown)))
            numbers[unknown] = [self._words[words[index]] for index in unknown]
        return numbers

    def _encode(self, words: list[str]) -> None:
        """Add new words to the cache."""
        self._words.update(zip(words, range(len(self._words), len(self._words) + len(words)), strict=True))
        texts = [word[1:] if word[:1] == "\n" else " " + word for word in words]
        rows = [ids for tokenizer in self._tokenizers for ids in tokenizer.encode_batch(texts)]
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        starts = len(self._ids) + np.cumsum(lengths) - lengths
        self._ids = np.append(self._ids, np.fromiter(chain.from_iterable(rows), np.uint32, int(lengths.sum())))
        shape = len(self._tokenizers), len(words)
        self._starts = np.append(self._starts, starts.reshape(shape), axis=1)
        self._lengths = np.append(self._lengths, lengths.reshape(shape), axis=1)
        flags = []
        for word in words:
            body = word.removeprefix("\n")
            # a tag ends the text before it, spaces included; an empty word lies between two spaces
            like_space = any(tag in body for tag in self._tokenizers[0].tags) or not word
            flags.append((body != word, like_space or body[:1].isspace(), like_space or body[-1:].isspace()))
        self._flags = np.append(self._flags, np.array(flags, np.bool_).T, axis=1)


def spans(starts: NDArray[np.int64], lengths: NDArray[Any]) -> NDArray[np.int64]:
    """The indices of the elements of slices of an array, one slice after the other."""
    ends = np.cumsum(lengths, dtype=np.int64)
    offsets: NDArray[np.int64] = np.repeat(starts - (ends - lengths), lengths)
    return offsets + np.arange(len(offsets))
