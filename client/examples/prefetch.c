/* Rows before the layer that needs them. usage: prefetch_example HOST:PORT NAME@VERSION */
#include <engram/engram.h>
#include <stdio.h>
#include <stdlib.h>

static void check(engram_status status, const char* what) {
  if (status == ENGRAM_OK) return;
  fprintf(stderr, "%s: %s: %s\n", what, engram_status_name(status), engram_last_error());
  exit(1);
}

int main(int argc, char** argv) {
  static const int64_t text[] = {22898, 19737, 270, 9327, 1494, 112253};
  enum { kTokens = 6, kLookback = 3 };
  if (argc != 3) return fputs("usage: prefetch_example HOST:PORT NAME@VERSION\n", stderr), 2;
  engram_pool_options pool_options = {.struct_size = sizeof pool_options, .endpoints = argv[1]};
  engram_prefetcher_options options = {.struct_size = sizeof options, .poller = 1};
  engram_layout layout = {.struct_size = sizeof layout, .max_tokens = 64};
  engram_layout_info info = {.struct_size = sizeof info};
  engram_pool* pool;
  engram_table* table;
  engram_prefetcher* steps;
  engram_destination destination;
  uint32_t slots[2];
  check(engram_pool_open(&pool_options, &pool), "open the pool");
  check(engram_table_open(pool, argv[2], NULL, &table), "open the table");
  check(engram_prefetcher_open(table, &options, &steps), "open the prefetcher");
  /* Two slots in one registered buffer: one step is read (by a poller) while another is used. */
  check(engram_table_get_layout(table, &layout, 0, &info), "lay out");
  char* memory = malloc(2 * info.bytes);
  check(engram_table_register_destination(table, memory, 2 * info.bytes, &destination), "register");
  for (int i = 0; i < 2; ++i) {
    engram_slot_options slot = {.struct_size = sizeof slot, .layout = &layout};
    slot.out = memory + i * info.bytes;
    slot.out_bytes = info.bytes;
    slot.destination = destination;
    check(engram_prefetcher_add_slot(steps, &slot, &slots[i]), "add a slot");
  }
  for (int at = 0; at < kTokens; ++at) {
    const int before = at < kLookback ? at : kLookback;
    engram_tokens tokens = {.struct_size = sizeof tokens, .tokens = text + at, .count = 1};
    tokens.lookback = text + at - before;
    tokens.lookback_count = before;
    engram_step step = {.struct_size = sizeof step, .tokens = &tokens, .slot = slots[at % 2]};
    engram_ticket ticket;
    check(engram_prefetcher_submit(steps, &step, &ticket), "submit");
    for (uint32_t layer = 0; layer < info.layers; ++layer) {
      check(engram_prefetcher_wait(steps, ticket, (int32_t)layer, 0), "wait for a layer");
      const char* rows = memory + (at % 2) * info.bytes + layer * info.layer_stride;
      printf("token %ld, layer %u: first byte %d\n", (long)text[at], (unsigned)layer, rows[0]);
    }
    check(engram_prefetcher_release(steps, ticket), "release");
  }
  engram_prefetcher_close(steps); /* then the destination, the table, the pool */
  check(engram_table_unregister_destination(table, destination), "unregister");
  engram_table_close(table);
  engram_pool_close(pool);
  free(memory);
  return 0;
}
