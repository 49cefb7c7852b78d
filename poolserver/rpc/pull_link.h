// The gRPC stream of a read session that this node opens with another one. It decides nothing:
// PullSession does. Free function: Thread-safe.
#pragma once

#include <memory>
#include <string>

#include "poolserver/pull_source.h"
#include "proto/credentials.h"

namespace engram::poolserver {

// Connects; what is said before the connection stands is sent then. Never fails: a node that cannot
// be reached is a stream that is lost.
std::unique_ptr<PullLink> OpenPullLink(const std::string& endpoint,
                                       const wire::CredentialsPtr& credentials, PullHears hears);

}  // namespace engram::poolserver
