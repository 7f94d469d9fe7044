// What train_mlp says of a command line or of data that is wrong: a line or two that name the matter, and exit code 1.
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/examples/run_program.h"

namespace gemmill {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

void ExpectRefuses(const std::string& arguments, const std::vector<std::string>& mentions) {
  SCOPED_TRACE("train_mlp " + arguments);
  const Finished run = RunProgram("train_mlp", arguments);
  EXPECT_TRUE(run.exit_code == 1 || run.exit_code == 2) << run.exit_code;
  EXPECT_THAT(run.errors, testing::StartsWith("error: "));
  EXPECT_LE(Lines(run.errors).size(), 3u) << run.errors;
  for (const std::string& mention : mentions) EXPECT_THAT(run.errors, HasSubstr(mention));
  EXPECT_THAT(run.errors, AllOf(Not(HasSubstr("terminate called")), Not(HasSubstr("Sanitizer"))));
  EXPECT_THAT(run.output, Not(HasSubstr("accuracy")));
}

// A copy of the bundled data, to be spoilt.
class Spoilt {
 public:
  Spoilt() { std::filesystem::copy(std::string(GEMMILL_SOURCE_DIR) + "/data/samples/digits", path()); }
  const std::string& path() const { return directory_.path(); }
  std::string file(const std::string& name) const { return path() + "/" + name; }

 private:
  TemporaryDirectory directory_;
};

TEST(TrainMlpRefusesTest, UnknownAndStray) {
  ExpectRefuses("--no_such_flag 1", {"no_such_flag"});
  ExpectRefuses("--epochs 1 --hiden 32", {"hiden"});
  ExpectRefuses("--epochs 1 stray", {"stray"});
  ExpectRefuses("--epochs 1 -- stray", {"--"});
  ExpectRefuses("--help --hiden 32", {"hiden"});
  ExpectRefuses("--hiden 32 --help", {"hiden"});
  ExpectRefuses("--nohidden", {"nohidden"});
}

TEST(TrainMlpRefusesTest, Numbers) {
  ExpectRefuses("--epochs 1 --global_batch -5", {"global_batch", "-5"});
  ExpectRefuses("--epochs 1 --micro_batch -1", {"micro_batch", "-1"});
  ExpectRefuses("--epochs -1", {"epochs", "-1"});
  ExpectRefuses("--epochs abc", {"epochs", "abc"});
  ExpectRefuses("--epochs 99999999999999999999", {"epochs", "99999999999999999999"});
  ExpectRefuses("--epochs 9000000000000000000", {"epochs", "9000000000000000000"});
  ExpectRefuses("--epochs 9223372036854775807 --global_batch 1000 --schedule step", {"epochs", "9223372036854775807"});
  ExpectRefuses("--epochs", {"epochs"});
  ExpectRefuses("--seed -1", {"seed", "-1"});
  ExpectRefuses("--threads -2", {"threads", "-2"});
  ExpectRefuses("--threads 100000", {"threads", "100000"});
  ExpectRefuses("--learning_rate -0.1", {"learning_rate", "-0.1"});
  ExpectRefuses("--learning_rate nan", {"learning_rate", "nan"});
  ExpectRefuses("--weight_decay -1", {"weight_decay", "-1"});
  ExpectRefuses("--clip_norm -1", {"clip_norm", "-1"});
  ExpectRefuses("--dropout 1", {"dropout", "1"});
  ExpectRefuses("--momentum 1", {"momentum", "1"});
}

TEST(TrainMlpRefusesTest, Sizes) {
  ExpectRefuses("--hidden 512,0 --epochs 1", {"hidden", "512,0"});
  ExpectRefuses("--hidden -3", {"hidden", "-3"});
  ExpectRefuses("--hidden 32,,32", {"hidden", "32,,32"});
  ExpectRefuses("--hidden 32x32", {"hidden", "32x32"});
  ExpectRefuses("--hidden 99999999999999999999", {"hidden", "99999999999999999999"});
  ExpectRefuses("--hidden 4611686018427387904", {"4611686018427387904"});
  ExpectRefuses("--hidden 1000000000000", {"[1000000000000, 64]", "no memory for 256000000000000 bytes"});
}

TEST(TrainMlpRefusesTest, Experts) {
  ExpectRefuses("--epochs 1 --experts 4 --top_k 5", {"top_k is 5", "4 experts"});
  ExpectRefuses("--epochs 1 --experts 0 --top_k 2", {"--experts is 0"});
  ExpectRefuses("--epochs 1 --experts -1", {"--experts is -1"});
  ExpectRefuses("--epochs 1 --experts 4 --top_k 1", {"top_k is 1", "softmax_renormalized", "no gradient"});
  ExpectRefuses("--epochs 1 --experts 4 --routing dice", {"--routing", "dice", "top_k_softmax"});
  ExpectRefuses("--epochs 1 --experts 4 --balance_loss -1", {"balance_loss is -1"});
  ExpectRefuses("--epochs 1 --top_k 2", {"--top_k", "--experts"});
  ExpectRefuses("--epochs 1 --statistics_every 5", {"--statistics_every", "--experts"});
}

TEST(TrainMlpRefusesTest, BatchesThatDoNotFit) {
  ExpectRefuses("--epochs 1 --global_batch 100 --micro_batch 133", {"--micro_batch is 133, expected 0 to 100"});
  ExpectRefuses("--epochs 1 --micro_batch 33", {"--micro_batch is 33, expected 0 to 32"});
  ExpectRefuses("--epochs 1 --global_batch 100000", {"--global_batch is 100000, expected 1 to 1437"});
}

TEST(TrainMlpRefusesTest, Names) {
  ExpectRefuses("--activation swish", {"--activation: no activation \"swish\"", "gelu", "silu"});
  ExpectRefuses("--optimizer adam", {"optimizer", "\"adam\"", "adamw"});
  ExpectRefuses("--precision f16", {"precision", "\"f16\"", "bf16"});
  ExpectRefuses("--schedule linear", {"schedule", "linear", "cosine"});
  ExpectRefuses("--device tpu", {"--device: ", "tpu", "cuda"});
  ExpectRefuses("--check_numerics=maybe", {"check_numerics", "maybe"});
}

TEST(TrainMlpRefusesTest, CudaWhereThereIsNone) {
  if (Device::Parse("cuda").ok()) return;
  ExpectRefuses("--epochs 1 --device cuda", {"cuda"});
}

TEST(TrainMlpRefusesTest, MetricsThatCannotBeWritten) {
  const TemporaryDirectory directory;
  ExpectRefuses("--epochs 1 --metrics /nowhere/metrics.jsonl", {"--metrics", "/nowhere/metrics.jsonl"});
  ExpectRefuses("--epochs 1 --metrics " + directory.path(), {"--metrics", directory.path()});
}

TEST(TrainMlpRefusesTest, MissingData) {
  const TemporaryDirectory directory;
  ExpectRefuses("--data \"\"", {"--data is empty"});
  ExpectRefuses("--epochs 1 --data /no/such/nowhere", {"nowhere"});
  ExpectRefuses("--epochs 1 --data " + directory.path(), {directory.path(), "train-images"});
  const std::string file = directory.Write("file", "text");
  ExpectRefuses("--epochs 1 --data " + file, {file});
}

TEST(TrainMlpRefusesTest, SpoiltData) {
  for (const char* name : {"train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz", "t10k-images-idx3-ubyte.gz",
                           "t10k-labels-idx1-ubyte.gz"}) {
    const Spoilt data;
    std::filesystem::resize_file(data.file(name), std::filesystem::file_size(data.file(name)) / 2);
    ExpectRefuses("--epochs 1 --data " + data.path(), {name});
    std::filesystem::remove(data.file(name));
    ExpectRefuses("--epochs 1 --data " + data.path(), {std::string(name).substr(0, 12)});
  }
}

TEST(TrainMlpRefusesTest, DataThatDoesNotBelongTogether) {
  const Spoilt data;
  std::filesystem::remove(data.file("train-labels-idx1-ubyte.gz"));
  std::filesystem::copy(data.file("t10k-labels-idx1-ubyte.gz"), data.file("train-labels-idx1-ubyte.gz"));
  ExpectRefuses("--epochs 1 --data " + data.path(), {"train-labels"});
}

// A label file may ask for as many classes as 32 bits can count.
TEST(TrainMlpRefusesTest, ClassesBeyondTheMachine) {
  const Spoilt data;
  std::filesystem::remove(data.file("train-images-idx3-ubyte.gz"));
  std::filesystem::remove(data.file("train-labels-idx1-ubyte.gz"));
  std::ofstream(data.file("train-images-idx3-ubyte"))
      << std::string("\0\0\x08\3\0\0\0\2\0\0\0\x08\0\0\0\x08", 16) + std::string(128, '\1');
  std::ofstream(data.file("train-labels-idx1-ubyte")) << std::string("\0\0\x0C\1\0\0\0\2\0\0\0\0\x7f\xff\xff\xfe", 16);
  ExpectRefuses("--epochs 1 --hidden 32768 --data " + data.path(), {"[2147483647, 32768]", "no memory"});
}

TEST(TrainMlpRefusesTest, MemoryFlags) {
  ExpectRefuses("--epochs 1 --memory_budget 80GG", {"memory_budget", "80GG"});
  ExpectRefuses("--epochs 1 --memory_budget 150%", {"memory_budget", "150%"});
  ExpectRefuses("--epochs 1 --memory_budget @/nowhere", {"memory_budget", "/nowhere"});
  ExpectRefuses("--epochs 1 --memory_budget 100KB", {"memory", "one sample", "fc2.weight"});
  ExpectRefuses("--epochs 1 --micro_batch some", {"micro_batch", "some"});
  ExpectRefuses("--epochs 1 --micro_batch 8 --tune_micro_batch", {"micro_batch 8", "tune_micro_batch"});
  ExpectRefuses("--epochs 1 --check_numerics --memory_budget 1GB", {"check_numerics", "memory_budget"});
  ExpectRefuses("--epochs 1 --hidden 64 --micro_batch 32 --memory_budget 105KB", {"micro-batch of 32", "105000"});
}

TEST(TrainMlpRefusesTest, HelpIsNoError) {
  for (const char* flag : {"--help", "-h", "--epochs 1 --help", "--helpfull", "--helpshort", "--help=epochs"}) {
    const Finished run = RunProgram("train_mlp", flag);
    EXPECT_EQ(run.exit_code, 0);
    for (const char* name :
         {"data", "epochs", "global_batch", "micro_batch", "hidden", "activation", "optimizer", "learning_rate",
          "schedule", "weight_decay", "seed", "threads", "device", "check_numerics", "metrics"}) {
      EXPECT_THAT(run.output, HasSubstr(std::string("--") + name + " "));
    }
    EXPECT_THAT(run.output, AllOf(HasSubstr("/data/samples/digits)"), Not(HasSubstr(".."))));
    EXPECT_EQ(run.errors, "");
  }
}

}  // namespace
}  // namespace gemmill
