#include <engram/engram.h>
#include <engram/engram_gpu.h> /* declarations only: they are C99, too */
#include <stdio.h>
#include <string.h>

int main(void) {
  engram_pool_options options;
  engram_pool* pool = NULL;
  engram_status status;
  engram_pool_options_init(&options);
  options.endpoints = "127.0.0.1:1";
  options.connect_timeout_ns = 50000000;
  status = engram_pool_open(&options, &pool);
  printf("%s: %s: %s\n", engram_version(), engram_status_name(status), engram_last_error());
  return status == ENGRAM_UNAVAILABLE && strlen(engram_last_error()) > 0 ? 0 : 1;
}
