"""Checkpoint directories as the usual Python tools write them: safetensors files, config.json, tokenizer.json."""
import json

import numpy as np
import safetensors

from model import ALPHABET, Model


def byte_level(text):
    data = text if isinstance(text, bytes) else text.encode()
    return "".join(ALPHABET[byte] for byte in data)


def vocabulary(size):
    """`size` distinct token strings; many of them compress to the same id, in every way that compression knows."""
    tokens = dict.fromkeys(byte_level(bytes([byte])) for byte in range(256))
    special = [" ", "\n\n", "\t ", "\u00a0", "\u3000x", "e\u0301", "\u0301", "\ufb01n", "\uff21\uff22", "\u2460", "\u4e2d\u6587",
               "\u0130", "\u1e9e", "\u03a3\u03c3", b"\xe4\xb8", b"\xe4\xb8n", b"\xff\xfe", b"\xc3\xa9\xc3", "\u200b", "\u2028z"]
    tokens.update(dict.fromkeys(map(byte_level, special)))
    number = 0
    while len(tokens) < size:
        word = "".join("bdgklmnprt"[digit] + "aeiou"[digit % 5] for digit in map(int, str(number)))
        forms = [word, " " + word, word.capitalize(), " " + word.upper(), word + "\u0301", word + "\r\n"]
        tokens.update(dict.fromkeys(byte_level(form) for form in forms[:1 + number % len(forms)]))
        number += 1
    return list(tokens)[:size]


class Checkpoint:
    """One checkpoint directory and the packed rows [layer][row] that a pool must serve from it.

    prefix: before every tensor name; nested: geometry under text_config; files: how many safetensors files (1: no index);
    names: of tensors that have another name in the files.
    """

    def __init__(self, path, *, layers, max_order, heads, head_dim, vocab_size, raw_vocab, prefix, nested, files, seed, names=None):
        self.path, self.prefix = path, prefix
        added = ["<|begin|>", "<|pad|>", "<\uff5cend\u2581of\u2581text\uff5c>"]
        tokens = vocabulary(raw_vocab - len(added)) + added
        self.model = Model(layers, max_order, heads, vocab_size, pad=2, tokens=tokens)
        path.mkdir(parents=True)
        self._write_config(nested, head_dim)
        self._write_tokenizer(tokens, len(added))
        random = np.random.default_rng(seed)
        self.rows, tensors = {}, {"embed_tokens.weight": ("bfloat16", np.zeros((8, 6), np.uint16))}
        for layer in layers:
            weight = random.integers(0, 256, (self.model.rows(layer), head_dim), np.uint8)
            scale = random.integers(0, 256, (self.model.rows(layer), head_dim // 32), np.uint8)
            self.rows[layer] = np.concatenate([weight, scale], axis=1)
            tensors[f"layers.{layer}.engram.embed.weight"] = ("float8_e4m3fn", weight)
            tensors[f"layers.{layer}.engram.embed.scale"] = ("float8_e8m0fnu", scale)
        self._write_tensors({(names or {}).get(name, name): tensor for name, tensor in tensors.items()}, files)

    def _write_config(self, nested, head_dim):
        model = self.model
        engram = {"engram_layer_ids": model.layers, "engram_num_embeddings": [model.rows(layer) for layer in model.layers],
                  "engram_max_ngram_size": model.max_order, "engram_vocab_size": model.vocab_size,
                  "engram_n_heads": model.heads, "engram_head_dim": head_dim, "engram_pad_token_id": model.pad,
                  "engram_compressed_vocab_size": model.compressed}
        config = {"architectures": ["Test"], "text_config": engram} if nested else {"architectures": ["Test"], **engram}
        (self.path / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")

    def _write_tokenizer(self, tokens, added):
        first = len(tokens) - added
        tokenizer = {"version": "1.0", "decoder": {"type": "ByteLevel"},
                     "added_tokens": [{"id": first + i, "content": token, "special": True}
                                      for i, token in enumerate(tokens[first:])],
                     "model": {"type": "BPE", "vocab": {token: i for i, token in enumerate(tokens[:first])}, "merges": []}}
        (self.path / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")

    def _write_tensors(self, tensors, files):
        names = ["model.safetensors"] if files == 1 else [f"model-{i + 1:05}-of-{files:05}.safetensors" for i in range(files)]
        parts = [{} for _ in names]
        for index, (name, tensor) in enumerate(tensors.items()):
            parts[index % files][self.prefix + name] = tensor
        for file, part in zip(names, parts):
            specs = {name: safetensors.TensorSpec(dtype=dtype, shape=array.shape, data_ptr=array.ctypes.data,
                                                  data_len=array.nbytes) for name, (dtype, array) in part.items()}
            safetensors.serialize_file(specs, self.path / file, metadata={"format": "pt"})
        if files > 1:
            index = {"metadata": {}, "weight_map": {name: file for file, part in zip(names, parts) for name in part}}
            (self.path / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")

    def expected(self, addresses):
        """uint8 [T, layers, columns, row_bytes] of addresses [T, layers, columns]."""
        return np.stack([self.rows[layer][addresses[:, i]] for i, layer in enumerate(self.model.layers)], axis=1)

    def whole_table(self):
        return np.concatenate([self.rows[layer] for layer in self.model.layers])
