// SPDX-License-Identifier: Apache-2.0
// The files of --domain and --shapes (docs/domains.md).
#ifndef QUALM_TOOLS_DOMAIN_FILE_H_
#define QUALM_TOOLS_DOMAIN_FILE_H_

#include <string>

#include "properties/domain.h"
#include "tools/command.h"

namespace qualm::tools {

// Ranges and shapes in TOML, for all operations and in tables of one: `name` is how the text is
// called in messages. Throws InputError "NAME: KEY: what, expected what".
Domain ParseDomain(const std::string& text, const std::string& name);

// The domain that --domain and --shapes name; empty where they name none. Throws InputError.
Domain DomainOf(const CommonOptions& options);

}  // namespace qualm::tools

#endif  // QUALM_TOOLS_DOMAIN_FILE_H_
