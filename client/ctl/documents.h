// Messages as documents: the proto's JSON form, or the same as YAML. Thread-safe.
#pragma once

#include <string>

#include "client/ctl/printer.h"
#include "client/ctl/terminal.h"
#include "google/protobuf/message.h"

namespace engram::ctl {

// One line; lowerCamelCase names, fields at their defaults included, 64-bit integers as strings.
std::string ToJson(const google::protobuf::Message& message);

// REQUIRES: format is kJson or kYaml.
void PrintDocument(const Terminal& terminal, Format format, const std::string& json);

}  // namespace engram::ctl
