// SPDX-License-Identifier: Apache-2.0
// Additions for terminals: colour and the width of lines on stdout, one line on stderr that is
// drawn again. None of it reaches a pipe or a file.
#ifndef QUALM_TOOLS_TERMINAL_H_
#define QUALM_TOOLS_TERMINAL_H_

#include <cstddef>
#include <string>

namespace qualm::tools {

// Whether stdout is a terminal with colours, and NO_COLOR (no-color.org) does not forbid them.
bool HasColour();
// Colours the words with which findings, good news and known departures begin their lines.
std::string Painted(const std::string& text);

// The width that text for people gets on stdout: the terminal's, at most 100; 0 for any length,
// where stdout is no terminal.
size_t TextColumns();
// Breaks longer lines between words. A line goes on beneath its second column, if it has two (two
// spaces part them), else two columns further in than it began. A line to copy stays whole: of
// JSON, or a command of qualm.
std::string Wrapped(const std::string& text, size_t columns);

// Whether stderr is a terminal, whose last line may be drawn again.
bool HasStatusLine();
// Shows the text as the last line of the terminal, "" for none. Whatever is told meanwhile stands
// above it. Any thread; nothing happens without a terminal.
void SetStatusLine(const std::string& text);
// Writes a whole line to stderr, above the status line.
void WriteAboveStatus(const std::string& line);
// Writes text to stdout, above the status line; false if that fails.
bool WriteToStdout(const std::string& text);
// Takes the status line away until the next one is set: something else is about to be written.
void EraseStatusLine();

// --quiet: nothing is told but errors.
void SetQuiet();
bool IsQuiet();

}  // namespace qualm::tools

#endif  // QUALM_TOOLS_TERMINAL_H_
