"""LibreTranslate's own server on a folder of `regard export --to ctranslate2`: _libretranslate.py FOLDER BEAMS PORT.

It runs in an environment with libretranslate, tokenizers and the source of Regard, without torch. Tokens are those of
the model, and a request is one sentence; all else is LibreTranslate's.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path


def main(folder: str, beams: str, port: str) -> None:
    """Serve until a signal."""
    model, base = Path(folder).resolve(), Path(tempfile.mkdtemp())
    os.chdir(base)  # it keeps its files there
    os.environ |= {
        "HOME": str(base),
        "ARGOS_PACKAGES_DIR": str(base / "packages"),
        "ARGOS_COMPUTE_TYPE": "float32",
        "ARGOS_BEAM_SIZE": beams,
        "ARGOS_INTRA_THREADS": "1",
    }
    package = base / "packages" / "en_fr"
    package.mkdir(parents=True)
    (package / "model").symlink_to(model)
    (package / "bpe.model").touch()
    languages = {"from_code": "en", "from_name": "English", "to_code": "fr", "to_name": "French"}
    versions = {"package_version": "1.0", "argos_version": "1.0"}
    (package / "metadata.json").write_text(json.dumps(languages | versions), encoding="utf-8")

    from argostranslate import package as packages
    from argostranslate import translate

    from regard.text.tokenizer import Tokenizers

    class Tokenizer:
        """The tokenizers of the folder."""

        def __init__(self, *_: object) -> None:
            self.sides = Tokenizers.load(model)
            target = self.sides.target
            self.ids = dict(zip(target.tokens(range(target.size)), range(target.size), strict=True))

        def encode(self, sentence: str) -> list[str]:
            source = self.sides.source
            return source.tokens([*source.encode(sentence), source.special.end])

        def decode(self, tokens: list[str]) -> str:
            return self.sides.target.decode([self.ids[token] for token in tokens])

    class Sentences:
        """Each text is one sentence: the usual splitter would be downloaded."""

        def __init__(self, *_: object) -> None:
            pass

        def split_sentences(self, text: str) -> list[str]:
            return [text]

    packages.BPETokenizer = Tokenizer
    translate.MiniSBDSentencizer = Sentences
    from libretranslate import init
    from libretranslate.main import main as serve

    init.boot = lambda *_: None  # it would look for models on the network
    sys.argv = ["libretranslate", "--port", port, "--load-only", "en,fr", "--threads", "64", "--disable-web-ui"]
    serve()


if __name__ == "__main__":
    main(*sys.argv[1:])
