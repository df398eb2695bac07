// SPDX-License-Identifier: Apache-2.0
#ifndef QUALM_CORE_IO_SHORT_PATH_H_
#define QUALM_CORE_IO_SHORT_PATH_H_

#include <cstdint>
#include <string>

namespace qualm {

// The path as people want to read and paste it: relative to the folder `current` where that is
// shorter, else as it is. Only absolute paths change. Looks at names, not at files: a path through
// a symbolic link is cut only where the names agree.
std::string ShortPath(const std::string& path, const std::string& current);
// The same from the folder that this process runs in; or, where it was started in another folder
// than that of its shell (ctest does so), from the shell's, where whoever reads the path is.
std::string ShortPath(const std::string& path);

// The same for a program or a plugin, which shells and loaders look for elsewhere if its name has
// no slash: "./mine.so".
std::string ShortProgram(const std::string& path);
std::string ShortProgram(const std::string& path, const std::string& current);
// "plugin:FILE" with such a path; other names of subjects as they are.
std::string ShortSubject(const std::string& name);
std::string ShortSubject(const std::string& name, const std::string& current);

// "1 layer", "2 layers".
std::string Plural(int64_t count, const std::string& noun);
// Of names between commas the first two: "onednn2@avx2, onednn2@sse41 and 7 more".
std::string FewNames(const std::string& names);

}  // namespace qualm

#endif  // QUALM_CORE_IO_SHORT_PATH_H_
