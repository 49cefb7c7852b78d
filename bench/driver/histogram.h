// Latencies in logarithmic buckets of 3 %: fixed memory, quantiles within a bucket.
// Thread-compatible.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

namespace engram::bench {

class Histogram {
 public:
  void Add(double us) {
    const double bucket = us <= 0.1 ? 0 : std::log(us / 0.1) / kLogStep;
    ++counts_[bucket >= kBuckets - 1 ? kBuckets - 1 : static_cast<std::size_t>(bucket)];
    ++total_;
  }
  // The value below which `share` of the samples lie; 0 when there are none.
  double Quantile(double share) const {
    if (total_ == 0) return 0;
    const auto rank = static_cast<std::uint64_t>(share * static_cast<double>(total_ - 1));
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i < kBuckets; ++i) {
      seen += counts_[i];
      if (seen > rank) return 0.1 * std::exp((static_cast<double>(i) + 0.5) * kLogStep);
    }
    return 0;
  }

 private:
  static constexpr double kLogStep = 0.03;
  static constexpr std::size_t kBuckets = 640;  // 0.1 us to 20 s
  std::array<std::uint64_t, kBuckets> counts_{};
  std::uint64_t total_ = 0;
};

}  // namespace engram::bench
