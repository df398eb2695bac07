// SPDX-License-Identifier: Apache-2.0
// A run that is told to end (Ctrl-C, the time limit of a CI) says what it has found before it does.
#ifndef QUALM_TOOLS_STOP_H_
#define QUALM_TOOLS_STOP_H_

namespace qualm::tools {

// From here on (a second call changes nothing) SIGINT, SIGTERM and SIGHUP only make Stopped() true.
// One more, a second later or more, ends the process at once. Signals that were ignored stay so
// (nohup).
void StopOnSignals();
// Any thread.
bool Stopped();
// `status`, but 128 and the signal's number, as shells have it, where a run without findings was
// stopped. Says on stderr that it was.
int StatusOfStopped(int status);

}  // namespace qualm::tools

#endif  // QUALM_TOOLS_STOP_H_
