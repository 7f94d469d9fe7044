#include "gemmill/runtime/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gemmill/runtime/file_calls.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gemmill {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

std::string Read(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// What the next calls do: the one with number `failing` (from 1, among those called `name`) fails with `error`, once.
struct Fault {
  std::string name;
  int failing = 0;
  int error = 0;
  size_t at_most = 1 << 30;  // bytes of one write
  int calls = 0;
  int killing = 0;  // the process ends before the call with this number, among all
  int all_calls = 0;

  bool Fails(const char* call) {
    if (++all_calls == killing) raise(SIGKILL);
    if (name != call || ++calls != failing) return false;
    errno = error;
    return true;
  }
};
Fault fault;

class WriteFileTest : public testing::Test {
 protected:
  WriteFileTest() : directory_(testing::TempDir() + "gemmill_file_XXXXXX"), system_(CurrentFileCalls()) {
    EXPECT_NE(mkdtemp(directory_.data()), nullptr);
    path_ = directory_ + "/file.json";
    fault = {};
    CurrentFileCalls() = {
        .open = [](const char* path, int flags,
                   mode_t mode) { return fault.Fails("open") ? -1 : open(path, flags, mode); },
        .fchmod = [](int file, mode_t mode) { return fault.Fails("fchmod") ? -1 : fchmod(file, mode); },
        .write =
            [](int file, const void* bytes, size_t count) {
              return fault.Fails("write") ? ssize_t{-1} : write(file, bytes, std::min(count, fault.at_most));
            },
        // No power fails during a test.
        .fsync = [](int /*file*/) { return fault.Fails("fsync") ? -1 : 0; },
        // It is closed even where that fails.
        .close = [](int file) { return close(file) != 0 || fault.Fails("close") ? -1 : 0; },
        .rename = [](const char* from, const char* to) { return fault.Fails("rename") ? -1 : rename(from, to); },
    };
  }
  ~WriteFileTest() override {
    CurrentFileCalls() = system_;
    std::filesystem::permissions(directory_, std::filesystem::perms::owner_all);
    std::filesystem::remove_all(directory_);
  }

  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(directory_)) names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }

  std::string directory_;
  std::string path_;
  FileCalls system_;
};

TEST_F(WriteFileTest, WholeOrNotThere) {
  EXPECT_TRUE(WriteFile(path_, "first").ok());
  EXPECT_TRUE(WriteFile(path_, "2").ok());
  EXPECT_EQ(Read(path_), "2");
  EXPECT_TRUE(WriteFile(path_, {"a", "", "bcd", "e"}).ok());
  EXPECT_EQ(Read(path_), "abcde");
  EXPECT_TRUE(WriteFile(path_, "").ok());
  EXPECT_EQ(Read(path_), "");
  const std::string nowhere = directory_ + "/none/file.json";
  EXPECT_THAT(std::string(WriteFile(nowhere, "x").message()),
              AllOf(HasSubstr("cannot write " + nowhere), HasSubstr("No such file")));
  EXPECT_FALSE(WriteFile(directory_, "x").ok());
  EXPECT_FALSE(WriteFile(path_ + "/file.json", "x").ok());
  EXPECT_FALSE(WriteFile("", "x").ok());
  EXPECT_THAT(Names(), ElementsAre("file.json"));
}

TEST_F(WriteFileTest, EachCallThatFailsLeavesTheOldFile) {
  // Whether there was a call with that number to fail.
  const auto fails = [this](const std::string& call, int number, int error, bool there) {
    fault = {};
    std::filesystem::remove(path_);
    if (there) std::ofstream(path_) << "old";
    fault = {.name = call, .failing = number, .error = error, .at_most = 2};
    const absl::Status status = WriteFile(path_, {"new", "er"});
    EXPECT_EQ(status.ok(), fault.calls < number) << status;
    // The second sync is the directory's, when all is done.
    const bool done = status.ok() || (call == "fsync" && number == 2);
    EXPECT_EQ(Read(path_), done ? "newer" : there ? "old" : "");
    EXPECT_EQ(Names().size(), done || there ? 1 : 0);
    if (status.ok()) return false;
    const std::string message(status.message());
    EXPECT_THAT(message, HasSubstr("cannot write " + path_));
    EXPECT_EQ(absl::StrContains(message, "it has the new bytes"), done);
    EXPECT_EQ(absl::StrContains(message, "free some space"), error != EIO);
    EXPECT_EQ(status.code() == absl::StatusCode::kResourceExhausted, error != EIO);
    return true;
  };
  std::map<std::string, int> failed;
  for (const char* call : {"open", "fchmod", "write", "fsync", "close", "rename"}) {
    for (const bool there : {true, false}) {
      for (const int error : {EIO, ENOSPC, EDQUOT}) {
        int number = 1;
        SCOPED_TRACE(absl::StrCat(call, ", error ", error, there ? "" : ", of a new file"));
        while (fails(call, number, error, there)) ++number;
        failed[call] = std::max(failed[call], number - 1);
      }
    }
  }
  EXPECT_THAT(failed, ElementsAre(Pair("close", 1), Pair("fchmod", 1), Pair("fsync", 2), Pair("open", 2),
                                  Pair("rename", 1), Pair("write", 3)));
}

TEST_F(WriteFileTest, GoesOnWhereItIsInterrupted) {
  ASSERT_TRUE(WriteFile(path_, "old").ok());
  for (const char* call : {"open", "write", "fsync", "close"}) {
    for (int number = 1;; ++number) {
      fault = {.name = call, .failing = number, .error = EINTR, .at_most = 2};
      ASSERT_TRUE(WriteFile(path_, {"new", "er", call}).ok()) << call << number;
      EXPECT_EQ(Read(path_), std::string("newer") + call);
      EXPECT_THAT(Names(), ElementsAre("file.json"));
      if (fault.calls < number) break;
    }
  }
}

TEST_F(WriteFileTest, AWriteOfNothingIsAnErrorAndNoEndlessLoop) {
  fault.at_most = 0;
  EXPECT_FALSE(WriteFile(path_, "x").ok());
  EXPECT_TRUE(Names().empty());
}

TEST_F(WriteFileTest, FileSystemsWithoutSyncOfDirectories) {
  fault = {.name = "fsync", .failing = 2, .error = EINVAL};
  EXPECT_TRUE(WriteFile(path_, "x").ok());
}

TEST_F(WriteFileTest, KilledAtEachCall) {
  ASSERT_TRUE(WriteFile(path_, "old").ok());
  bool left_behind = false;
  for (int number = 1;; ++number) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      fault = {.at_most = 2, .killing = number};
      (void)WriteFile(path_, {"new", "er"});
      _exit(0);
    }
    int ended = 0;
    ASSERT_EQ(waitpid(child, &ended, 0), child);
    const std::string bytes = Read(path_);
    EXPECT_TRUE(bytes == "old" || bytes == "newer") << bytes;
    if (WIFEXITED(ended)) {
      EXPECT_EQ(bytes, "newer");
      break;
    }
    left_behind = left_behind || Names().size() > 1;
    // Whoever writes to the directory next removes it.
    ASSERT_TRUE(WriteFile(directory_ + "/other", "x").ok());
    EXPECT_THAT(Names(), ElementsAre("file.json", "other"));
    ASSERT_TRUE(WriteFile(path_, "old").ok());
  }
  EXPECT_TRUE(left_behind);
}

TEST_F(WriteFileTest, RemovesNothingThatIsInUseOrNotItsOwn) {
  for (const char* name : {"model.gemmill-notes", "model.gemmill-0123456789ab.txt", "model.gemmill-0123456789abc",
                           ".gemmill-0123456789ab", "model.tmp", "model.gemmill-0123456789ag"}) {
    std::ofstream(directory_ + "/" + name) << "user's";
  }
  std::filesystem::create_directory(directory_ + "/directory.gemmill-0123456789ab");
  std::filesystem::create_symlink("model.tmp", directory_ + "/link.gemmill-0123456789ab");
  ASSERT_EQ(mkfifo((directory_ + "/pipe.gemmill-0123456789ab").c_str(), 0600), 0);
  const std::vector<std::string> before = Names();
  // Another writer, in the middle of its work.
  static std::string other;
  static absl::Status other_status;
  other = directory_ + "/other";
  CurrentFileCalls().rename = [](const char* from, const char* to) {
    static bool inside = false;
    if (!std::exchange(inside, true)) other_status = WriteFile(other, "other");
    return rename(from, to);
  };
  ASSERT_TRUE(WriteFile(path_, "x").ok());
  EXPECT_TRUE(other_status.ok());
  EXPECT_EQ(Read(path_), "x");
  EXPECT_EQ(Read(other), "other");
  std::filesystem::remove(path_);
  std::filesystem::remove(other);
  EXPECT_EQ(Names(), before);
}

TEST_F(WriteFileTest, KeepsLinksAndModes) {
  std::filesystem::create_directory(directory_ + "/disk");
  const std::string target = directory_ + "/disk/target";
  std::filesystem::create_symlink("disk/target", directory_ + "/relative");
  std::filesystem::create_symlink(directory_ + "/relative", path_);
  EXPECT_TRUE(WriteFile(path_, "first").ok());  // the link leads nowhere yet
  EXPECT_EQ(Read(target), "first");
  ASSERT_EQ(chmod(target.c_str(), 0640), 0);
  EXPECT_TRUE(WriteFile(path_, "second").ok());
  EXPECT_EQ(Read(target), "second");
  EXPECT_TRUE(std::filesystem::is_symlink(path_));
  EXPECT_TRUE(std::filesystem::is_symlink(directory_ + "/relative"));
  struct stat there;
  ASSERT_EQ(stat(target.c_str(), &there), 0);
  EXPECT_EQ(there.st_mode & 07777, 0640);
  std::filesystem::create_symlink("loop", directory_ + "/loop");
  EXPECT_FALSE(WriteFile(directory_ + "/loop", "x").ok());
  EXPECT_THAT(Names(), ElementsAre("disk", "file.json", "loop", "relative"));
}

TEST_F(WriteFileTest, DirectoriesThatCannotBeWrittenTo) {
  ASSERT_TRUE(WriteFile(path_, "old").ok());
  ASSERT_EQ(chmod(directory_.c_str(), 0555), 0);
  // Root may write anywhere.
  const bool root = geteuid() == 0;
  if (root) {
    ASSERT_EQ(seteuid(65534), 0);
  }
  const absl::Status status = WriteFile(path_, "new");
  if (root) {
    ASSERT_EQ(seteuid(0), 0);
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
  EXPECT_EQ(Read(path_), "old");
}

TEST_F(WriteFileTest, WhatIsNoRegularFileIsWrittenAsItIs) {
  EXPECT_TRUE(WriteFile("/dev/null", "x").ok());
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  const absl::Status full = WriteFile("/dev/full", "x");
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(full.message()), AllOf(HasSubstr("/dev/full"), HasSubstr("free some space")));
  // As /dev/stdout is when it goes to a file.
  const int file = open(path_.c_str(), O_WRONLY | O_CREAT, 0600);
  ASSERT_EQ(write(file, "before ", 7), 7);
  std::filesystem::create_symlink("/proc/self/fd/" + std::to_string(file), directory_ + "/stdout");
  EXPECT_TRUE(WriteFile(directory_ + "/stdout", "one ").ok());
  EXPECT_TRUE(WriteFile("/dev/fd/" + std::to_string(file), "two").ok());
  close(file);
  EXPECT_EQ(Read(path_), "before one two");
  EXPECT_TRUE(std::filesystem::is_symlink(directory_ + "/stdout"));
}

TEST_F(WriteFileTest, WhetherItCouldBeWrittenIsKnownBefore) {
  EXPECT_TRUE(CheckCanWrite(path_).ok());
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_TRUE(CheckCanWrite("/dev/null").ok());
  EXPECT_THAT(std::string(CheckCanWrite(directory_).message()), HasSubstr("it is a directory"));
  EXPECT_THAT(std::string(CheckCanWrite(directory_ + "/none/file").message()),
              AllOf(HasSubstr("cannot write " + directory_ + "/none/file"), HasSubstr("No such file")));
  // Where a symbolic link leads counts, as it does for WriteFile.
  std::filesystem::create_symlink("none/file", directory_ + "/link");
  EXPECT_FALSE(CheckCanWrite(directory_ + "/link").ok());
  EXPECT_TRUE(WriteFile(path_, "old").ok());
  EXPECT_TRUE(CheckCanWrite(path_).ok());
  EXPECT_EQ(Read(path_), "old");
}

TEST_F(WriteFileTest, InputFileReadsByOffset) {
  ASSERT_TRUE(WriteFile(path_, "0123456789").ok());
  const absl::StatusOr<InputFile> file = InputFile::Open(path_);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->size(), 10);
  std::string bytes(4, ' ');
  EXPECT_TRUE(file->Read(6, bytes.data(), 4).ok());
  EXPECT_EQ(bytes, "6789");
  EXPECT_TRUE(file->Read(10, bytes.data(), 0).ok());
  EXPECT_THAT(std::string(file->Read(7, bytes.data(), 4).message()), HasSubstr(path_ + ": it was cut short"));
  EXPECT_EQ(InputFile::Open(directory_ + "/none").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(InputFile::Open(directory_).status().message()), HasSubstr("not a regular file"));
}

}  // namespace
}  // namespace gemmill
