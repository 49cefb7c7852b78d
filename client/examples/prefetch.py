"""Rows before the layer that needs them. usage: prefetch.py HOST:PORT NAME@VERSION"""
import sys
import engram_pool

if len(sys.argv) != 3:
    sys.exit(__doc__)
pool = engram_pool.connect(sys.argv[1])
table = pool.table(sys.argv[2])  # or NAME@ALIAS: table.pending tells of a new version, table.adopt() goes over to it
layout = table.layout(max_tokens=64, split=True)  # a block a layer; values [64, columns, 256], scales [64, columns, 8]
with table.register(bytearray(layout.bytes)) as buffer:
    history = []
    for token in (22898, 19737, 270, 9327):  # one sequence, one token a step
        budget = {x.layer: 0.001 * (i + 1) for i, x in enumerate(table.layers)}  # seconds from now; later is "late"
        with table.prefetch([token], lookback=history, needed_in=budget, layout=layout, destination=buffer) as step:
            values, scales = step.rows  # views over `buffer`: uint8 [layers, 1, columns, 256] and [.., 8]
            for index, layer in enumerate(table.layers):
                step.wait(layer.layer)  # raises what went wrong; failed rows are poison, never zeros
                print(f"layer {layer.layer}: {values[index].size + scales[index].size} bytes, late: {step.late(layer.layer)}")
        history = (history + [token])[-table.lookback:]
    print({name: count for name, count in table.stats().items() if name.startswith("layers_")})
