// Certificates made on the spot with the openssl program, in a folder that goes with the object.
// Thread-compatible.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/credentials.h"

namespace engram::wire {

class Certificates {
 public:
  Certificates() {
    char name[] = "/tmp/engram-tls-XXXXXX";
    folder_ = mkdtemp(name);
    MakeAuthority("ca");
  }
  ~Certificates() { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& file) const { return folder_ + "/" + file; }
  void MakeAuthority(const std::string& ca) {
    Run(absl::StrCat("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 ",
                     "-subj /CN=", ca, " -keyout ", Path(ca + ".key"), " -out ",
                     Path(ca + ".pem")));
  }
  // NAME.pem and NAME.key; `uri` empty: without one. `more`: of openssl x509, e.g. another -days.
  TlsFiles Make(const std::string& name, const std::string& uri, const std::string& ca = "ca",
                const std::string& more = "-days 2") {
    Run(absl::StrCat("req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=", name,
                     uri.empty() ? "" : absl::StrCat(" -addext subjectAltName=URI:", uri),
                     " -keyout ", Path(name + ".key"), " -out ", Path(name + ".csr")));
    Run(absl::StrCat("x509 -req -copy_extensions copy -in ", Path(name + ".csr"), " -CA ",
                     Path(ca + ".pem"), " -CAkey ", Path(ca + ".key"), " -CAcreateserial ", more,
                     " -out ", Path(name + ".pem")));
    return {Path(name + ".pem"), Path(name + ".key"), Path("ca.pem")};
  }

 private:
  void Run(const std::string& words) {
    ASSERT_EQ(system(("openssl " + words + " >/dev/null 2>&1").c_str()), 0) << words;
  }
  std::string folder_;
};

}  // namespace engram::wire
