#include <engram/engram.hpp>
#include <iostream>

int main() {
  engram::Pool::Options options;
  options.endpoints = "127.0.0.1:1";
  options.connect_timeout = std::chrono::milliseconds(50);
  try {
    engram::Pool pool = engram::Pool::Open(options);
    engram::Table table = pool.OpenTable("deepseek-v4.1@1");
    const std::int64_t id = 0;
    std::vector<std::byte> row(table.info().row_bytes);
    table.ReadRows(std::span(&id, 1), row);
    engram::Prefetcher steps(table, {});
    engram_step step{};
    const engram_ticket ticket = steps.Submit(step);
    steps.Wait(ticket, -1, std::chrono::seconds(1));
    steps.Release(ticket);
  } catch (const engram::Error& error) {
    std::cout << error.what() << "\n";
    return error.status() == ENGRAM_UNAVAILABLE ? 0 : 1;
  }
  return 1;
}
