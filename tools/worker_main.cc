// SPDX-License-Identifier: Apache-2.0
// qualm-worker: the process in which foreign code runs. See adapters/host/plugin_host.h.

namespace qualm {
// Declared here: of adapters/, tools may include registry.h only, and the worker must not link
// every adapter.
int WorkerMain(int argc, char** argv);
}  // namespace qualm

// LeakSanitizer is off: what a plugin leaks, or does while it is unloaded, is not under test.
// NOLINTBEGIN(bugprone-reserved-identifier): LeakSanitizer's name for it
extern "C" const char* __lsan_default_options();
extern "C" const char* __lsan_default_options() { return "detect_leaks=0"; }
// NOLINTEND(bugprone-reserved-identifier)

int main(int argc, char** argv) { return qualm::WorkerMain(argc, argv); }
