#include "client/ctl/documents.h"

#include "google/protobuf/util/json_util.h"

namespace engram::ctl {

std::string ToJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  std::string json;
  (void)google::protobuf::util::MessageToJsonString(message, &json, options);
  return json;
}

void PrintDocument(const Terminal& terminal, Format format, const std::string& json) {
  terminal.out << (format == Format::kYaml ? JsonToYaml(json) : PrettyJson(json));
}

}  // namespace engram::ctl
