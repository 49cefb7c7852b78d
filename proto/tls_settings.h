// The three settings by which a daemon is given its certificate. Free functions: Thread-safe.
#pragma once

#include <vector>

#include "engram/settings/settings.h"
#include "proto/credentials.h"

namespace engram::wire {

inline std::vector<Setting> TlsSettings() {
  return {
      Setting::Text("tls_cert", "",
                    "PEM file of this program's certificate; with tls_key and tls_ca every "
                    "connection is mutual TLS. The files are read again when they change."),
      Setting::Text("tls_key", "", "PEM file of the certificate's key."),
      Setting::Text("tls_ca", "", "PEM file of the authorities whose certificates are believed."),
  };
}

inline TlsFiles TlsFilesFrom(const Settings& settings) {
  return {settings.Text("tls_cert"), settings.Text("tls_key"), settings.Text("tls_ca")};
}

}  // namespace engram::wire
