"""The "deepseek-v4.1" address function and token compression, written a second time, in NumPy and plain Python."""
import unicodedata

import numpy as np

INT64_MAX = 2**63 - 1
WHITE_SPACE = "".join(map(chr, [*range(9, 14), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F,
                                0x3000]))


def byte_alphabet():
    """The character of each byte in a byte-level vocabulary."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {**{byte: chr(byte) for byte in printable}, **{byte: chr(256 + i) for i, byte in enumerate(others)}}


ALPHABET = byte_alphabet()
BYTES = {character: byte for byte, character in ALPHABET.items()}


def compression_key(token):
    known = all(character in BYTES for character in token)
    text = bytes(BYTES[character] for character in token).decode("utf-8", "replace") if known else token
    if "\ufffd" in text:
        return token
    folded = unicodedata.normalize("NFD", unicodedata.normalize("NFKC", text))
    folded = "".join(c for c in folded if not unicodedata.category(c).startswith("M"))
    folded = "".join(c.lower() for c in folded)
    simple = []
    for character in folded:
        space = character in " \t\r\n"
        if space and simple and simple[-1] == " ":
            continue
        simple.append(" " if space else character)
    key = "".join(simple)
    if key != " ":
        key = key.strip(WHITE_SPACE)
    return key or text


def token_map(tokens):
    """int64: the compressed id of each raw id, given the vocabulary's strings in order of id."""
    seen = {}
    return np.array([seen.setdefault(compression_key(token), len(seen)) for token in tokens], np.int64)


def is_prime(value):
    return value > 1 and all(value % divisor for divisor in range(2, int(value**0.5) + 1))


class Model:
    """Geometry and addresses of one checkpoint."""

    def __init__(self, layers, max_order, heads, vocab_size, pad, tokens, base_seed=0):
        self.layers, self.max_order, self.heads, self.vocab_size, self.pad = layers, max_order, heads, vocab_size, pad
        self.map = token_map(tokens)
        self.compressed = int(self.map.max()) + 1
        bound = max(1, INT64_MAX // self.compressed // 2)
        self.multipliers = {layer: 2 * np.random.default_rng(base_seed + 10007 * layer).integers(0, bound, max_order) + 1
                            for layer in layers}
        taken, self.primes = set(), {layer: [] for layer in layers}
        for layer in layers:
            for _ in range(2, max_order + 1):
                candidate = vocab_size - 1
                for _ in range(heads):
                    candidate += 1
                    while candidate in taken or not is_prime(candidate):
                        candidate += 1
                    taken.add(candidate)
                    self.primes[layer].append(candidate)

    @property
    def columns(self):
        return (self.max_order - 1) * self.heads

    def rows(self, layer):
        return sum(self.primes[layer])

    def _windows(self, tokens, dead):
        """[T, max_order] compressed ids, newest first; pads before the start and from the newest dead token on."""
        windows = np.full((len(tokens), self.max_order), self.map[self.pad], np.int64)
        for position in range(len(tokens)):
            for distance in range(self.max_order):
                at = position - distance
                if at < 0 or dead[at]:
                    break
                windows[position, distance] = self.map[tokens[at]]
        return windows

    def addresses(self, tokens, dead=None, lookback=(), lookback_dead=None):
        """int64 [T, layers, columns]: rows of each layer's own table."""
        everything = np.concatenate([np.asarray(lookback, np.int64), np.asarray(tokens, np.int64)])
        marks = np.concatenate([np.zeros(len(lookback), bool) if lookback_dead is None else np.asarray(lookback_dead, bool),
                                np.zeros(len(tokens), bool) if dead is None else np.asarray(dead, bool)])
        windows = self._windows(everything, marks)[len(lookback):]
        result = np.empty((len(tokens), len(self.layers), self.columns), np.int64)
        for index, layer in enumerate(self.layers):
            primes = np.array(self.primes[layer], np.int64)
            offsets = np.concatenate([[0], np.cumsum(primes)[:-1]])
            rolling = windows[:, 0] * self.multipliers[layer][0]
            for order in range(2, self.max_order + 1):
                rolling = rolling ^ (windows[:, order - 1] * self.multipliers[layer][order - 1])
                part = slice((order - 2) * self.heads, (order - 1) * self.heads)
                result[:, index, part] = rolling[:, None] % primes[part] + offsets[part]
        return result
