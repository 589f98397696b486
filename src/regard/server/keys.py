"""API keys: a text file with a name and the SHA-256 of a key on each line; the keys themselves are never stored."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from pathlib import Path

from regard.errors import ConfigError

LINE = re.compile(r"(\S+) ([0-9a-f]{64})")


class Keys:
    """The valid keys, as hashes by name."""

    def __init__(self, hashes: dict[str, str]) -> None:
        self.hashes = hashes

    @classmethod
    def load(cls, path: Path) -> Keys:
        """Read a file of keys."""
        hashes = {}
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{path}: the API keys cannot be read ({error}); make a file with --keys FILE --new-key NAME"
            ) from None
        for number, line in enumerate(lines, 1):
            match = LINE.fullmatch(line.strip())
            if match is None:
                raise ConfigError(f"{path}:{number}: expected a name and a hash; make keys with --new-key NAME")
            hashes[match[1]] = match[2]
        return cls(hashes)

    def is_valid(self, key: str) -> bool:
        """Whether a key is in the file; compared in constant time."""
        hashed = _hash(key)
        return sum(hmac.compare_digest(hashed, known) for known in self.hashes.values()) > 0


def new_key(path: Path, name: str) -> str:
    """Make a key, add its hash to a file, and return the key."""
    if not re.fullmatch(r"\S{1,64}", name):
        raise ConfigError(f"the name of a key must have 1 to 64 characters and no spaces, not {name[:70]!r}")
    known = Keys.load(path).hashes if path.exists() else {}
    if name in known:
        raise ConfigError(f"{path} already has a key named {name}: choose another name, or delete its line")
    key = secrets.token_urlsafe(32)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a", encoding="utf-8") as file:
        file.write(f"{name} {_hash(key)}\n")
    return key


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()  # keys are random: no salt, no slow hash
