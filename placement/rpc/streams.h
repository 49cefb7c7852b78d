// A server stream whose messages are made one after the other by a function. Thread-safe.
#pragma once

#include <functional>
#include <optional>

#include "absl/status/statusor.h"
#include "grpcpp/grpcpp.h"
#include "proto/convert.h"

namespace engram::placement {

// `next` gives the next message, nothing at the end, or an error that ends the stream. Deletes
// itself when gRPC is done with it.
template <class Message>
class PieceStream final : public grpc::ServerWriteReactor<Message> {
 public:
  using Next = std::function<absl::StatusOr<std::optional<Message>>()>;
  explicit PieceStream(Next next) : next_(std::move(next)) { Advance(); }

  void OnWriteDone(bool ok) override {
    if (ok) {
      Advance();
    } else {
      this->Finish(grpc::Status::CANCELLED);
    }
  }
  void OnDone() override { delete this; }

 private:
  void Advance() {
    absl::StatusOr<std::optional<Message>> piece = next_();
    if (!piece.ok()) return this->Finish(wire::ToGrpc(piece.status()));
    if (!piece->has_value()) return this->Finish(grpc::Status::OK);
    piece_ = **std::move(piece);
    this->StartWrite(&piece_);
  }

  Next next_;
  Message piece_;
};

}  // namespace engram::placement
