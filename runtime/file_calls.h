// The system calls that WriteFile makes, so that a test can make each of them fail. For runtime/file.cc and its tests.
#pragma once

#include <sys/types.h>

#include <cstddef>

namespace gemmill {

struct FileCalls {
  int (*open)(const char* path, int flags, mode_t mode);
  int (*fchmod)(int file, mode_t mode);
  ssize_t (*write)(int file, const void* bytes, size_t count);
  int (*fsync)(int file);
  int (*close)(int file);
  int (*rename)(const char* from, const char* to);
};

// Those in use.
FileCalls& CurrentFileCalls();

}  // namespace gemmill
