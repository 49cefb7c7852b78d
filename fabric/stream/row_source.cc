#include "fabric/stream/row_source.h"

#include "fabric/copy.h"

namespace engram::fabric::stream {

void MemoryRowSource::Start(const Shape& shape, std::span<const RowWanted> rows,
                            std::function<void()> done) {
  for (const RowWanted& row : rows) {
    const std::byte* from = data_ + row.offset;
    for (std::uint32_t s = 0; s < shape.segments; ++s) {
      CopyPiece(row.to[s], from, shape.bytes[s]);
      from += shape.bytes[s];
    }
  }
  done();
}

}  // namespace engram::fabric::stream
