"""The address functions of vLLM and SGLang, run without them and without a GPU, against ours.

usage: engines_test.py WHEELS_DIR [unittest options]

WHEELS_DIR holds vllm-*.whl and sglang-*.whl (`pip download --no-deps vllm==0.33.0 sglang==0.5.23`). A wheel that is not there is
skipped, visibly; exit 77 when neither is. Only the functions named below are taken out of a wheel's one file and run, with
NumPy in torch's place. What "ours" is stands in tests/data: engram_core_test proves that our addressing reproduces it.
"""
import ast
import hashlib
import json
import pathlib
import sys
import types
import unittest
import zipfile

try:
    import numpy as np
except ImportError:
    print("SKIPPED: NumPy is not installed")
    sys.exit(77)

DATA = pathlib.Path(__file__).resolve().parents[1] / "data"
ENGINES = {
    "vllm": ("vllm/models/deepseek_v41/common/engram.py",
             ("_is_prime", "find_next_prime", "compute_hash_multipliers", "EngramLayout")),
    "sglang": ("sglang/srt/layers/engram.py",
               ("_MILLER_RABIN_WITNESSES", "_is_prime", "_find_next_prime", "compute_hash_multipliers", "EngramLayout",
                "compute_engram_hash_ids", "shard_range")),
}
LAYERS, ORDERS, HEADS, COMPRESSED, PAD = (1, 14), 4, 8, 99092, 2


class Tensor(np.ndarray):
    """As much of a torch.Tensor as the functions use."""

    def unsqueeze(self, dim):
        return np.expand_dims(self, dim if dim >= 0 else self.ndim + 1 + dim).view(Tensor)


def tensor(values, dtype=None, device=None):
    return np.array(values, dtype or np.int64).view(Tensor)


def stand_in_for_torch():
    return types.SimpleNamespace(
        Tensor=Tensor, tensor=tensor, int32=np.int32, int64=np.int64,
        where=lambda condition, one, other: np.where(condition, one, other).view(Tensor),
        bitwise_xor=lambda one, other: np.bitwise_xor(one, other).view(Tensor),
        stack=lambda parts, dim=0: np.stack(parts, dim).view(Tensor),
        cat=lambda parts, dim=0: np.concatenate(parts, dim).view(Tensor))


class Struct:
    """msgspec.Struct as far as it is used: fields by keyword."""

    def __init_subclass__(cls, **_):
        pass

    def __init__(self, **fields):
        self.__dict__.update(fields)


def functions_of(source, names):
    """The named definitions of a Python file, alone in a namespace of their own. Raises KeyError for one that is not there."""
    wanted = [node for node in ast.parse(source).body
              if getattr(node, "name", None) in names or
              (isinstance(node, ast.Assign) and any(getattr(target, "id", None) in names for target in node.targets))]
    module = ast.parse("from __future__ import annotations")
    module.body += wanted
    space = {"np": np, "torch": stand_in_for_torch(), "msgspec": types.SimpleNamespace(Struct=Struct)}
    exec(compile(ast.fix_missing_locations(module), "engine", "exec"), space)
    return {name: space[name] for name in names}


def windows_of(tokens, dead, lookback, lookback_dead):
    """[T, orders] token ids, newest first, and which of them are blocked: before the start, or from a dead token on."""
    ids = list(lookback) + list(tokens)
    marks = list(lookback_dead) + list(dead)
    windows = np.zeros((len(tokens), ORDERS), np.int64)
    blocked = np.ones((len(tokens), ORDERS), bool)
    for row in range(len(tokens)):
        for distance in range(ORDERS):
            at = len(lookback) + row - distance
            if at < 0 or marks[at]:
                break
            windows[row, distance], blocked[row, distance] = ids[at], False
    return windows.view(Tensor), blocked.view(Tensor)


class Engine:
    """What both engines are asked; `engine` names it."""

    @classmethod
    def setUpClass(cls):
        wheels = sorted(WHEELS.glob(f"{cls.engine}-*.whl"))
        if not wheels:
            raise unittest.SkipTest(f"{WHEELS} has no {cls.engine}-*.whl")
        path, names = ENGINES[cls.engine]
        with zipfile.ZipFile(wheels[-1]) as wheel:
            cls.functions = functions_of(wheel.read(path).decode(), names)
        cls.ours = json.loads((DATA / "dsv41_layout.json").read_text())
        rows = [int(cls.ours["rows"][str(layer)]) for layer in LAYERS]
        config = types.SimpleNamespace(
            engram_layer_ids=list(LAYERS), engram_num_embeddings=rows, engram_max_ngram_size=ORDERS, engram_n_heads=HEADS,
            engram_head_dim=256, engram_vocab_size=16_000_000, engram_compressed_vocab_size=COMPRESSED, engram_pad_token_id=PAD)
        layout = cls.functions["EngramLayout"]
        cls.layout = layout.from_config(config) if hasattr(layout, "from_config") else layout(config)
        cls.primes = [[prime for order in layer for prime in order] for layer in cls.layout.primes]
        cls.multipliers = np.asarray(cls.functions["compute_hash_multipliers"](LAYERS, ORDERS, COMPRESSED))

    def test_primes_and_heights_are_ours(self):
        self.assertEqual([[str(prime) for prime in layer] for layer in self.primes],
                         [self.ours["primes"][str(layer)] for layer in LAYERS])
        self.assertEqual([str(sum(layer)) for layer in self.primes], [self.ours["rows"][str(layer)] for layer in LAYERS])

    def test_multipliers_are_ours(self):
        self.assertEqual([[str(int(value)) for value in layer] for layer in self.multipliers],
                         [self.ours["multipliers"][str(layer)] for layer in LAYERS])


class VllmTest(Engine, unittest.TestCase):
    engine = "vllm"


class SglangTest(Engine, unittest.TestCase):
    engine = "sglang"

    def test_row_ids_are_ours_with_look_back_and_dead_tokens(self):
        token_map = np.fromfile(DATA / "dsv41_token_map.i32", "<i4").astype(np.int64).view(Tensor)
        offsets = np.array([np.cumsum([0, *layer[:-1]]) for layer in self.primes]).view(Tensor)
        cases = [json.loads(line) for line in (DATA / "golden_addresses.jsonl").read_text().splitlines()]
        self.assertGreater(len(cases), 20)
        for number, case in enumerate(cases):
            ids, lookback = case["ids"], case["lookback"] or []
            windows, blocked = windows_of(ids, case["dead"] or [0] * len(ids), lookback, case["lookback_dead"] or [0] * len(lookback))
            rows = self.functions["compute_engram_hash_ids"](windows, blocked, int(token_map[PAD]), token_map,
                                                             self.multipliers.view(Tensor), tensor(self.layout.primes), offsets)
            rows = np.ascontiguousarray(rows, "<i8")
            self.assertEqual(rows.shape, (len(ids), len(LAYERS), (ORDERS - 1) * HEADS))
            self.assertEqual(hashlib.sha256(rows.tobytes()).hexdigest(), case["sha256"], f"golden vector {number}")

    def test_a_rank_owns_the_rows_of_whole_columns_as_our_subsets_do(self):
        bounds = self.layout.column_bounds(0)
        columns = len(self.primes[0])
        for ranks in (1, 2, 4, 8):
            for rank in range(ranks):
                first, last = self.functions["shard_range"](sum(self.primes[0]), bounds, rank, ranks)
                begin = rank * (columns // ranks)
                self.assertEqual((first, last), (sum(self.primes[0][:begin]), sum(self.primes[0][:begin + columns // ranks])))


if __name__ == "__main__":
    WHEELS = pathlib.Path(sys.argv.pop(1))
    result = unittest.main(exit=False, verbosity=2).result
    ran = result.testsRun
    if result.wasSuccessful() and ran == 0:
        print("SKIPPED: no wheel of an engine is there")
        sys.exit(77)
    sys.exit(not result.wasSuccessful())
