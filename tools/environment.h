// SPDX-License-Identifier: Apache-2.0
// The environment variables that qualm reads, for `qualm list environment`. environment_test finds
// one that is read and not listed.
#ifndef QUALM_TOOLS_ENVIRONMENT_H_
#define QUALM_TOOLS_ENVIRONMENT_H_

#include <string_view>

namespace qualm::tools {

struct EnvironmentVariable {
  std::string_view name, readers, text;
};

inline constexpr EnvironmentVariable kEnvironment[] = {
    {"GITHUB_STEP_SUMMARY", "check, audit, replay", "with --github: the file that gets a summary"},
    {"NO_COLOR", "qualm", "anything: no colours"},
    {"QUALM_AFL_OP", "AFL++'s mutator", "the operation that is fuzzed"},
    {"QUALM_BUILD_DIR", "the Python package", "the build folder whose native module is loaded"},
    {"QUALM_CACHE_DIR", "qualm, scripts/",
     "where libraries lie that scripts/ installed (default ~/.cache/qualm)"},
    {"QUALM_FUZZ_ARTIFACTS", "fuzz targets", "the folder that findings are written to"},
    {"QUALM_FUZZ_CANARY", "fuzz targets", "anything: a planted fault is to be found instead"},
    {"QUALM_FUZZ_CONTRACT", "fuzz targets", "a contract in place of the subject's own"},
    {"QUALM_FUZZ_DOMAIN", "fuzz targets", "the text of a domain (docs/domains.md)"},
    {"QUALM_FUZZ_EVERY", "fuzz targets",
     "anything: every property judges each input, not a few in turn"},
    {"QUALM_FUZZ_FEEDBACK", "fuzz targets",
     "off: hazards do not guide, to measure what they are worth"},
    {"QUALM_FUZZ_MUTATOR", "fuzz targets", "bytes: the engine alone mutates, to measure ours"},
    {"QUALM_FUZZ_PROPERTIES", "fuzz targets", "patterns of the properties that are judged"},
    {"QUALM_FUZZ_STATE", "fuzz targets", "the --state folder of qualm fuzz"},
    {"QUALM_FUZZ_SUBJECT", "fuzz targets", "who is fuzzed (default native@all)"},
    {"QUALM_FUZZ_WANTED", "fuzz targets",
     "words of the only finding that counts; others are passed over"},
    {"QUALM_FUZZ_WATCH", "fuzz targets", "a file that tells qualm fuzz what runs"},
    {"QUALM_GGML", "qualm_ggml.so", "the instruction set to load: haswell, haswell+q5_0+generic"},
    {"QUALM_GGML_FOLDER", "qualm_ggml.so", "the folder of libggml-cpu-*.so"},
    {"QUALM_MEMORY_LIMIT", "qualm", "what --memory would set: from 64M to 1024G (default 2G)"},
    {"QUALM_NAME_PYTHON", "qualm", "the Python that has library NAME: QUALM_LITERT_PYTHON"},
    {"QUALM_PLUGIN_DIR", "qualm", "where the modules of libraries lie, before the usual folders"},
    {"QUALM_PYTHON", "qualm", "the Python that has PyTorch"},
    {"QUALM_TIME_LIMIT_MS", "qualm",
     "milliseconds that a plugin or program may take for a case (default 10000)"},
    {"QUALM_UNDECLARED", "qualm, fuzz targets",
     "anything: as --undeclared, what is declared of a subject is a finding"},
    {"QUALM_WORKER", "qualm",
     "the program that loads plugins (default: qualm-worker beside qualm)"},
};

}  // namespace qualm::tools

#endif  // QUALM_TOOLS_ENVIRONMENT_H_
