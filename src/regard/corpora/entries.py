"""The named corpora: where each comes from, what may be done with it, its files and their checksums.

Checksums are SHA-256 and were each computed from the file itself; None means that the file has not been seen here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from regard.errors import DataError

Keep = Callable[[Iterable[bytes]], Iterator[bytes]]


class File(NamedTuple):
    """A file as it lies in a folder of corpora, in the cache, or at its address."""

    name: str
    checksum: str | None = None
    url: str | None = None


class Part(NamedTuple):
    """Lines of a written file: of a stored file, or of a member of a stored archive; all of them, or those kept."""

    file: str
    member: str = ""
    keep: Keep | None = None


class Piece(NamedTuple):
    """A plain text file that is written: its parts in order."""

    name: str
    parts: tuple[Part, ...]


class Form(NamedTuple):
    """One way a corpus lies on disk: a folder, the files in it, and what is written from them."""

    folder: str
    files: tuple[File, ...]
    pieces: tuple[Piece, ...]

    @property
    def verified(self) -> bool:
        """The checksums of all its files are known."""
        return all(file.checksum for file in self.files)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A corpus by name. The first of its forms that is found is used; an entry without forms is made, not kept."""

    name: str
    description: str
    languages: tuple[str, ...]
    size: str
    licence: str
    source: str
    forms: tuple[Form, ...] = ()


# What is kept of files that are not plain text


def segments(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The sentences of a test set in the SGML of the shared tasks, as the usual scorers take them."""
    for line in lines:
        if found := re.search(rb"<seg[^>]*>(.*)</seg>", line):
            yield found[1].strip() + b"\n"


def talks(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The sentences of transcribed talks, titles and descriptions among them, without the lines about the talk."""
    for line in lines:
        line = re.sub(rb"</?(?:title|description)>", b"", line).strip()
        if not line.startswith(b"<"):
            yield line + b"\n"


def talks_to_train(lines: Iterable[bytes]) -> Iterator[bytes]:
    """All but every 23rd sentence: the usual division of IWSLT14."""
    return (line for number, line in enumerate(talks(lines), 1) if number % 23)


def talks_to_validate(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Every 23rd sentence."""
    return (line for number, line in enumerate(talks(lines), 1) if number % 23 == 0)


def first_column(lines: Iterable[bytes]) -> Iterator[bytes]:
    return (_columns(line)[0] + b"\n" for line in lines)


def second_column(lines: Iterable[bytes]) -> Iterator[bytes]:
    return (_columns(line)[1] + b"\n" for line in lines)


def _columns(line: bytes) -> list[bytes]:
    columns = line.rstrip(b"\r\n").split(b"\t")
    if len(columns) < 2:
        raise DataError(f"a row without a tab ({line[:40]!r}) in a table of pairs: this is another file than expected")
    return columns


# How the forms below are put together


def _gzipped(folder: str, checksums: dict[str, str], *, renamed: tuple[str, str] = ("", ""), url: str = "") -> Form:
    """A folder of gzipped texts, each written under its name, or under a new one."""
    files, pieces = [], []
    for name, checksum in checksums.items():
        plain = re.sub(renamed[0], renamed[1], name.removesuffix(".gz")) if renamed[0] else name.removesuffix(".gz")
        files.append(File(name, checksum, url + name if url else None))
        pieces.append(Piece(plain, (Part(name),)))
    return Form(folder, tuple(files), tuple(pieces))


def _downloads(folder: str, urls: list[str], pieces: list[Piece]) -> Form:
    """Files at public addresses that nobody has checked here."""
    return Form(folder, tuple(File(url.rpartition("/")[2], None, url) for url in urls), tuple(pieces))


def _github(repository: str, commit: str, path: str) -> str:
    return f"https://raw.githubusercontent.com/{repository}/{commit}/{path}"


def _wmt14(foreign: str, corpora: dict[str, str]) -> list[Piece]:
    """Training text, newstest2013 to validate and newstest2014 (full) to test; the English side and the other."""
    pair = f"{foreign}-en"
    test = f"test-full/newstest2014-{foreign}en"
    pieces = []
    for language in ("en", foreign):
        train = [Part(file, member.format(pair=pair, language=language)) for file, member in corpora.items()]
        side = "src" if language == "en" else "ref"
        pieces += [
            Piece(f"train.{language}", tuple(train)),
            Piece(f"valid.{language}", (Part("dev.tgz", f"dev/newstest2013.{language}"),)),
            Piece(f"test.{language}", (Part("test-full.tgz", f"{test}-{side}.{language}.sgm", segments),)),
        ]
    return pieces


def _iwslt14() -> list[Piece]:
    sets = ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")
    pieces = []
    for language in ("de", "en"):
        train = f"de-en/train.tags.de-en.{language}"
        test = [f"de-en/IWSLT14.{name}.de-en.{language}.xml" for name in sets]
        pieces += [
            Piece(f"train.{language}", (Part("de-en.tgz", train, talks_to_train),)),
            Piece(f"valid.{language}", (Part("de-en.tgz", train, talks_to_validate),)),
            Piece(f"test.{language}", tuple(Part("de-en.tgz", member, segments) for member in test)),
        ]
    return pieces


def _undivided(archive: str, member: str, foreign: str) -> list[Piece]:
    return [
        Piece("train.en", (Part(archive, member, first_column),)),
        Piece(f"train.{foreign}", (Part(archive, member, second_column),)),
    ]


def _plain(folder: str, texts: dict[str, tuple[str, str, str]]) -> Form:
    """Texts at public addresses, written as they are: name to write -> stored name, checksum, address."""
    files = tuple(File(stored, checksum, url) for stored, checksum, url in texts.values())
    return Form(folder, files, tuple(Piece(name, (Part(stored),)) for name, (stored, _, _) in texts.items()))


_STATMT = "https://www.statmt.org"
_WIKITEXT = ("pytorch/examples", "37ce9402ff0cae48d764d7788810fd2ed8238b25", "word_language_model/data/wikitext-2/")
_TATOEBA = "CC BY 2.0 (manythings.org/anki, tatoeba.org)"
_WMT_LICENCE = "free for research; each part has its own terms (statmt.org/wmt14)"

ENTRIES = (
    Entry(
        name="builtin",
        description="sentences of a small grammar with gold alignments; made on the spot, as many as asked for",
        languages=("en", "fr"),
        size="any",
        licence="that of Regard",
        source="regard.corpora.builtin",
    ),
    Entry(
        name="multi30k",
        description="captions of photographs, in four languages",
        languages=("en", "de", "fr", "cs"),
        size="29,000 pairs, 2.7 MB",
        licence="non-commercial research and education (from Flickr30K)",
        source="GitHub multi30k/dataset, task 1, raw",
        forms=(
            _gzipped(
                "multi30k",
                {
                    "test_2016_flickr.cs.gz": "200a4a74cc9560f051924abb9803be008d1908d77f747e9141aeb86dfd2797f1",
                    "test_2016_flickr.de.gz": "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
                    "test_2016_flickr.en.gz": "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
                    "test_2016_flickr.fr.gz": "6d326e188d259fb1d04ac19eae3af956559b3a0b93d7635e56c90987c40c8b90",
                    "test_2017_flickr.de.gz": "a2c89666db00c495cd8513b9d708d5a3acc205d7de312ef2bf5fb7ebc1540aee",
                    "test_2017_flickr.en.gz": "76a444ee25172e72695cddb13ae4a3bda59430617be88e0bb46b60504f054074",
                    "test_2017_flickr.fr.gz": "3ba671ceb2299f3304ffafefea7a833d08632fbaf0ba18546f8a2ec2391af496",
                    "train.cs.gz": "a65adb8b32e3bc664f21ecba7a6e7f6950fd1f405e135f7c312faabdb6255077",
                    "train.de.gz": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
                    "train.en.gz": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
                    "train.fr.gz": "622e75069e9f4c577425c4f277116ce66e63a2401c0a2312d90073cb12379a3c",
                    "val.cs.gz": "b63226e05c4bd5dd6a42897d74b86a1b9d2c31498252c572b1ea7f7996927fcc",
                    "val.de.gz": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
                    "val.en.gz": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
                    "val.fr.gz": "ca3106f1a72390591d25f6c45cb4cd39dec4cd3f123e099748a3ce5256c160e9",
                },
                renamed=(r"^val\b", "valid"),
                url=_github("multi30k/dataset", "a3d2e0d26b56f3846f66a952536ffed4e401d05a", "data/task1/raw/"),
            ),
        ),
    ),
    Entry(
        name="iwslt14",
        description="talks, raw text; valid is every 23rd pair, test the usual five sets (both alone: iwslt14-devtest)",
        languages=("de", "en"),
        size="about 170,000 pairs, 20 MB",
        licence="CC BY-NC-ND (TED)",
        source="WIT3, as kept for fairseq",
        forms=(_downloads("iwslt14", ["https://dl.fbaipublicfiles.com/fairseq/data/iwslt14/de-en.tgz"], _iwslt14()),),
    ),
    Entry(
        name="iwslt14-devtest",
        description="valid and test of iwslt14 only, tokenised by Moses and lower-cased, as papers score them",
        languages=("de", "en"),
        size="14,033 pairs, 1 MB",
        licence="CC BY-NC-ND (TED)",
        source="GitHub johntzwei/nmt_iwslt, prepared by fairseq's script",
        forms=(
            _gzipped(
                "iwslt14_deen_devtest",
                {
                    "test.de.gz": "9933fe3819797db4da9a07438c0924d04a6c0145d58ae0eb411885327305f72d",
                    "test.en.gz": "a1b1e867400f5fdc4816914f05f66da0688031a86b29eb72326627f2d29053d6",
                    "valid.de.gz": "be19f0cfab5aaaf2bd59f0c0d26b39f193bbc1e1553b1b9bb6eda6356c76ac8e",
                    "valid.en.gz": "fcfd3c160fe68c5e64f9a63267f60987fe364acd1da34b234f2ec997b54dd314",
                },
            ),
        ),
    ),
    Entry(
        name="wmt14",
        description="news task of 2014, English-German: Europarl, Common Crawl, News Commentary; newstest2013 and 2014",
        languages=("en", "de"),
        size="about 4.5 million pairs, 1.6 GB",
        licence=_WMT_LICENCE,
        source="statmt.org/wmt14",
        forms=(
            _downloads(
                "wmt14",
                [
                    f"{_STATMT}/wmt13/training-parallel-europarl-v7.tgz",
                    f"{_STATMT}/wmt13/training-parallel-commoncrawl.tgz",
                    f"{_STATMT}/wmt14/training-parallel-nc-v9.tgz",
                    f"{_STATMT}/wmt14/dev.tgz",
                    f"{_STATMT}/wmt14/test-full.tgz",
                ],
                _wmt14(
                    "de",
                    {
                        "training-parallel-europarl-v7.tgz": "training/europarl-v7.{pair}.{language}",
                        "training-parallel-commoncrawl.tgz": "commoncrawl.{pair}.{language}",
                        "training-parallel-nc-v9.tgz": "training/news-commentary-v9.{pair}.{language}",
                    },
                ),
            ),
        ),
    ),
    Entry(
        name="wmt14-enfr",
        description="news task of 2014, English-French: the same and the UN and Giga corpora",
        languages=("en", "fr"),
        size="about 41 million pairs, 6.5 GB",
        licence=_WMT_LICENCE,
        source="statmt.org/wmt14",
        forms=(
            _downloads(
                "wmt14",
                [
                    f"{_STATMT}/wmt13/training-parallel-europarl-v7.tgz",
                    f"{_STATMT}/wmt13/training-parallel-commoncrawl.tgz",
                    f"{_STATMT}/wmt13/training-parallel-un.tgz",
                    f"{_STATMT}/wmt14/training-parallel-nc-v9.tgz",
                    f"{_STATMT}/wmt10/training-giga-fren.tar",
                    f"{_STATMT}/wmt14/dev.tgz",
                    f"{_STATMT}/wmt14/test-full.tgz",
                ],
                _wmt14(
                    "fr",
                    {
                        "training-parallel-europarl-v7.tgz": "training/europarl-v7.{pair}.{language}",
                        "training-parallel-commoncrawl.tgz": "commoncrawl.{pair}.{language}",
                        "training-parallel-un.tgz": "un/undoc.2000.{pair}.{language}",
                        "training-parallel-nc-v9.tgz": "training/news-commentary-v9.{pair}.{language}",
                        "training-giga-fren.tar": "giga-fren.release2.fixed.{language}.gz",
                    },
                ),
            ),
        ),
    ),
    Entry(
        name="tatoeba-ende",
        description="short everyday sentences; divided without leaks where kept, undivided when downloaded",
        languages=("en", "de"),
        size="169,813 pairs, 3.7 MB",
        licence=_TATOEBA,
        source="ManyThings deu-eng.zip of 2018-05-13, GitHub rioyshky/translation",
        forms=(
            _gzipped(
                "tatoeba_ende",
                {
                    "test.de.gz": "ea7e28dcc093b9a003d76bd7e447542d7f10509bfe2e9a9860f73259f689714f",
                    "test.en.gz": "d965a171a8fce935a0bd36559228b8ec5915a3e1344ffba1469c396165f2601d",
                    "train.de.gz": "dd33e3b074b47dfb6fb97a6605dd733c43c77fe3ef66e59557c0139ab52204cd",
                    "train.en.gz": "2f4e639ac24b4fdbf56ede248b384eee2598717db12a0a4fee6e683d94dcb656",
                    "valid.de.gz": "dccbcd1109802fd867cf1b186cf5ff59fa7c216bab6803bebb95ac71ce762600",
                    "valid.en.gz": "4b4f5e91edbecda819a7104122cefa345c984dcf38c109e56234c090406ea7ee",
                },
            ),
            _downloads(
                "tatoeba_ende",
                [_github("rioyshky/translation", "de48b7027f7318d77010a6e08ed928c10748c23d", "deu-eng.zip")],
                _undivided("deu-eng.zip", "deu.txt", "de"),
            ),
        ),
    ),
    Entry(
        name="tatoeba-enfr",
        description="short everyday sentences; divided without leaks where kept, undivided when downloaded",
        languages=("en", "fr"),
        size="166,979 pairs, 3.2 MB",
        licence=_TATOEBA,
        source="ManyThings fra-eng.zip of 2019-04-07, GitHub modelexlab/data",
        forms=(
            _gzipped(
                "tatoeba_enfr",
                {
                    "test.en.gz": "b04bd4fd2aa83bc68a58def5790c6d89f7ea147d47bce28080a8b30d3fc61010",
                    "test.fr.gz": "69c55bfbade3785010a1ca851d8f71dbb8bbf4d27cf48c804130304d66244c2c",
                    "train.en.gz": "ce25c3ff8605f9b5dde816b75c2d98089ad2f4575d5ce33091e1611007ce84e5",
                    "train.fr.gz": "0a40dab09f2550ba25c947079cc3a4d19dca7b3d0c487e6dba5d1dbc60aadce4",
                    "valid.en.gz": "c40a6730eda761294970629d4a197a01d79b6e7ecb07d9acc4c4fcfadab72135",
                    "valid.fr.gz": "6d91bae5725f0ace62a7333c78f7dc8f4065ac08754e0547660fc2d3620fd9c2",
                },
            ),
            _downloads(
                "tatoeba_enfr",
                [_github("modelexlab/data", "adddaf33ac35572bcfeb421efec29435e7ea9332", "fra-eng.zip")],
                _undivided("fra-eng.zip", "fra.txt", "fr"),
            ),
        ),
    ),
    Entry(
        name="wikitext2",
        description="Wikipedia articles in words, rare ones <unk>; for language models",
        languages=("en",),
        size="2.1 million words, 4.5 MB",
        licence="CC BY-SA (Wikipedia)",
        source="Merity et al. 2016; GitHub pytorch/examples",
        forms=(
            _gzipped(
                "wikitext2",
                {
                    "wiki.test.tokens.gz": "688887879b4b526692cb2e423a516dcc5f6584a01fd3f33a8e164fbed2de8090",
                    "wiki.train.tokens.gz": "fc9790d81cb8f08d3cfc5765fc8e67dcf8fe00845c1365914b81da130bbd79ce",
                    "wiki.valid.tokens.gz": "3cdd8cb5bb349a05840c7c3bef9578d90d64df77e27e0c25c033ba9342757ee3",
                },
                renamed=(r"^wiki\.(\w+)\.tokens$", r"\1.txt"),
            ),
            _plain(
                "wikitext2",
                {
                    "train.txt": (
                        "train.txt",
                        "9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f",
                        _github(*_WIKITEXT) + "train.txt",
                    ),
                    "valid.txt": (
                        "valid.txt",
                        "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8",
                        _github(*_WIKITEXT) + "valid.txt",
                    ),
                    "test.txt": (
                        "test.txt",
                        "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0",
                        _github(*_WIKITEXT) + "test.txt",
                    ),
                },
            ),
        ),
    ),
    Entry(
        name="tinyshakespeare",
        description="plays of Shakespeare in one file; for language models of characters",
        languages=("en",),
        size="1.1 million characters, 0.4 MB",
        licence="public domain",
        source="GitHub karpathy/char-rnn",
        forms=(
            _gzipped(
                "tinyshakespeare",
                {
                    "input.txt.gz": "13125fe8f49092165d7d489e3944db52d1ba546e64a60080cc9523bcd0c5e46a",
                },
            ),
            _plain(
                "tinyshakespeare",
                {
                    "input.txt": (
                        "input.txt",
                        "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
                        _github(
                            "karpathy/char-rnn",
                            "6f9487a6fe5b420b7ca9afb0d7c078e37c1d1b4e",
                            "data/tinyshakespeare/input.txt",
                        ),
                    ),
                },
            ),
        ),
    ),
    Entry(
        name="war-and-peace",
        description="the novel in English, hard-wrapped lines; for language models",
        languages=("en",),
        size="3.2 million characters, 1.2 MB",
        licence="Project Gutenberg License (in the file)",
        source="GitHub timbmg/RNNLM, from Project Gutenberg",
        forms=(
            _gzipped(
                "war_and_peace",
                {
                    "warandpeace.txt.gz": "dfad2af89c0340bb14c74ede06a821991c68b1f14f8d5f679c62af9b307fea73",
                },
            ),
            _plain(
                "war_and_peace",
                {
                    "warandpeace.txt": (
                        "warandpeace.txt",
                        "bf5b273d9246268f96663c43c00a1055ae2e42c2262be32f7e43b48dd123451a",
                        _github("timbmg/RNNLM", "e26dff5d8f4b5d07ee459f192ee2131923d7584f", "data/warandpeace.txt"),
                    ),
                },
            ),
        ),
    ),
    Entry(
        name="hansards-enfr",
        description="debates of the Canadian parliament, short sentences, French without accents",
        languages=("en", "fr"),
        size="310,661 pairs, 11 MB",
        licence="none stated; public record of the Parliament of Canada, for research",
        source="GitHub lydavid/CSC401_A2, divided by document; no address to download this form from",
        forms=(
            _gzipped(
                "hansards_enfr",
                {
                    "extra.en.gz": "cade3893e9240769d9b66f84525dd3d4a0dffcaf9f337064e8a22c77b26814bd",
                    "extra.fr.gz": "51c4a1b52d959333f45362757ea2b2130b9afdffb974ee8fd9c56cbbdb37a30d",
                    "test.en.gz": "4a58fc334a9e30ef0e6ee84bba79b8bc2ff1ce5bda4a895991a62a08ea3a29f7",
                    "test.fr.gz": "0906c223b5ec1dc5873f20e6e5e359e0e72bd83dc9e2df8636377ef26a1ddf10",
                    "train.documents.tsv.gz": "c9e48c03ec25329521122f366b138980866a7ae0db756dcaccec552cde981e69",
                    "train.en.gz": "c33b257834ce79de3d6de8b0e83115bcf576ef68ce387cfe4c56d29f7c5bc419",
                    "train.fr.gz": "0d244d3f86b42c1bcac00d2d13eb37aeabcaa8c8221cd67492c154e90ed26f1c",
                    "valid.en.gz": "54a5e104e758b92aa3b9c3fe9ca605712332080a012a1a9ac8e0bf9746be4638",
                    "valid.fr.gz": "38b4efd0d38c3b73685c42a85016b3ff51d2ee2db22bfb4ce76678864adff29a",
                },
            ),
        ),
    ),
    Entry(
        name="word-alignment-gold",
        description="gold word alignments (en-fr, ro-en, ja-en, zh-en), links from 1: i-j sure, ipj possible",
        languages=("en", "fr", "ro", "ja", "zh"),
        size="1,764 pairs with links, 25,000 without, 1.9 MB",
        licence="none stated for the data; released for research",
        source="GitHub neulab/awesome-align and others; no address to download this form from",
        forms=(
            _gzipped(
                "word_alignment_gold",
                {
                    "enfr.dev.en.gz": "415379a2d370933c045a0102d973ca7d120c44e9e9a9bd7a943c851b371d821c",
                    "enfr.dev.fr.gz": "ee5d2fc56733b01df66a5fb9b72598e51e5d78926510e6e880a042521ff64b92",
                    "enfr.dev.talp.gz": "52320474702bf02dad734edf974aee4e3a75af5707aa30cc59be9f8b4f9afe47",
                    "enfr.test.en.gz": "dacfdabf9b97c76ec03878a15dfbc6b974d8fc0f39e589b9b20c6dc86b223a77",
                    "enfr.test.fr.gz": "5524662aa5092c9eae1434afef6a2ef7407993cc2a4644013799df1235ccfb2c",
                    "enfr.test.talp.gz": "4ff81df9663201f249a905362bb348c90bad8bdcb9d7215b6b6ed21e9fd050f2",
                    "enfr.train25k.en.gz": "4d5424d4435e2bb5d027dae8f566cf59694d7a622b659c99395be2c5e8766c80",
                    "enfr.train25k.fr.gz": "a85d7eff6acdda2df5f65fc4b110936fbccb977d4afad9ffbf90e209b8fba5e7",
                    "jaen.test.en.gz": "6c3329f42247a7a32825c2c3ea89723124ffe02d94224a79f2cf811a0b65fe53",
                    "jaen.test.ja.gz": "dbd9ffb919cbad66a7a558ad2f43d6d66a7d2faa47bac6ecc46d7c1e3056ca69",
                    "jaen.test.talp.gz": "3016bec6e73c32c8dbf87bead5bc6a568b6649da75f7a2fe5eabb4a13fbf61f9",
                    "roen.test.en.gz": "03f791e532f64d9dacdb87aba0f2d09da93bb222b666a007a90ad372b39eaf67",
                    "roen.test.ro.gz": "117ff1b5ec02b23e7b12f047ef768da1703f78f8d9495bb529f3e93b7e2c1598",
                    "roen.test.talp.gz": "e3e8635ec873f05f85d89892db58cfdad00767998814006757cc1e5f72ac381a",
                    "zhen.test.en.gz": "1966809f73bc6ddfd1e46172fd51b5a4c5dd7f66ae6f7653f94eaebc16d6e0aa",
                    "zhen.test.talp.gz": "1e2f0d302a497fbfa2c585ca9c8c687c0f8af777b917e53561541c3dec64dd49",
                    "zhen.test.zh.gz": "4bf7bee0e34a54bbe2d8997cbe2bb7db469e595c74c1b0511355c554d081aada",
                },
            ),
        ),
    ),
)
