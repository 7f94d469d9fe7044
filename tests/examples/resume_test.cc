// train_mlp saves itself and goes on; predict uses what it saved. tests/kill_and_resume.sh kills it.
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gemmill/gemmill.h"
#include "tests/examples/run_program.h"

namespace gemmill {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

class ResumeTest : public testing::Test {
 protected:
  // A run of 45 steps per epoch on the bundled digits.
  Finished Train(const std::string& arguments, const std::string& by = "") const {
    return RunProgram("train_mlp", "--threads 1 " + arguments, by);
  }
  void MustTrain(const std::string& arguments) const {
    const Finished run = Train(arguments);
    EXPECT_EQ(run.exit_code, 0) << run.errors;
  }
  std::string Path(const std::string& name) const { return directory_.path() + "/" + name; }
  int64_t StepsOf(const std::string& path) const {
    const Safetensors file = Must(Safetensors::Open(path));
    return Must(ProgressOf(file)).steps;
  }

  TemporaryDirectory directory_;
  const std::string new_run_ = "--hidden 16 --epochs 2 --save " + Path("run") + " ";
};

std::string LineWith(const std::string& text, const std::string& part) {
  for (const std::string& line : Lines(text)) {
    if (line.find(part) != std::string::npos) return line;
  }
  return "";
}

TEST_F(ResumeTest, CtrlCSavesAndSaysHowToGoOn) {
  // In the foreground: else timeout signals its process group as well, and the second signal ends the program at once.
  const Finished run = Train("--hidden 16 --epochs 1000000 --save " + Path("run") + " --metrics " + Path("log"),
                             "timeout --foreground --preserve-status -s INT 3");
  EXPECT_EQ(run.exit_code, 130) << run.errors;
  EXPECT_THAT(run.errors, HasSubstr("train_mlp --resume " + Path("run")));
  const std::vector<nlohmann::json> steps = ReadMetrics(Path("log")).steps;
  ASSERT_FALSE(steps.empty());
  EXPECT_EQ(StepsOf(Path("run")), steps.back()["step"].get<int64_t>());
}

TEST_F(ResumeTest, GoesOnWithTheBitsOfARunThatNeverStopped) {
  const Finished whole = Train("--hidden 16 --dropout 0.1 --epochs 4 --hash --metrics " + Path("whole"));
  // The schedule is that of 4 epochs from the beginning.
  MustTrain("--hidden 16 --dropout 0.1 --epochs 4 --save_every 70 --keep 9 --save " + Path("run"));
  ASSERT_TRUE(std::filesystem::exists(Path("run.step-70")));
  const Finished resumed =
      Train("--resume " + Path("run.step-70") + " --save " + Path("again") + " --hash --metrics " + Path("rest"));
  EXPECT_EQ(resumed.exit_code, 0) << resumed.errors;
  EXPECT_THAT(resumed.output, HasSubstr("after step 70"));
  EXPECT_NE(LineWith(whole.output, "training hash"), "");
  EXPECT_EQ(LineWith(resumed.output, "training hash"), LineWith(whole.output, "training hash"));
  EXPECT_EQ(Lines(resumed.output).back(), Lines(whole.output).back());
  const std::vector<double> all = ReadMetrics(Path("whole")).Losses();
  EXPECT_EQ(ReadMetrics(Path("rest")).Losses(), std::vector<double>(all.begin() + 70, all.end()));
}

TEST_F(ResumeTest, ExpertsGoOnAndPredict) {
  const Finished whole = Train("--hidden 16 --experts 4 --epochs 2 --hash");
  MustTrain("--hidden 16 --experts 4 --epochs 2 --save_every 50 --keep 9 --save " + Path("run"));
  const Finished resumed = Train("--resume " + Path("run.step-50") + " --save " + Path("again") + " --hash");
  EXPECT_EQ(resumed.exit_code, 0) << resumed.errors;
  EXPECT_NE(LineWith(whole.output, "training hash"), "");
  EXPECT_EQ(LineWith(resumed.output, "training hash"), LineWith(whole.output, "training hash"));
  EXPECT_THAT(Train("--resume " + Path("run.step-50") + " --experts 8").errors, HasSubstr("--experts"));
  const std::string data = std::string(GEMMILL_SOURCE_DIR) + "/data/samples/digits";
  const Finished predicted = RunProgram("predict", "--model " + Path("run") + " --data " + data);
  EXPECT_EQ(Lines(predicted.output).back(), Lines(whole.output).back()) << predicted.errors;
}

TEST_F(ResumeTest, AnotherSeedHasAnotherHash) {
  const std::string one = LineWith(Train("--hidden 16 --epochs 1 --hash --seed 1").output, "training hash");
  EXPECT_EQ(LineWith(Train("--hidden 16 --epochs 1 --hash --seed 1").output, "training hash"), one);
  EXPECT_NE(LineWith(Train("--hidden 16 --epochs 1 --hash --seed 2").output, "training hash"), one);
}

TEST_F(ResumeTest, FlagsNotGivenAreTheCheckpointsAndOthersMayNotChangeTheTraining) {
  MustTrain(new_run_ + "--activation relu --metrics " + Path("log"));
  const Finished refused =
      Train("--resume " + Path("run") + " --hidden 8 --activation tanh --seed 3 --epochs 2 --learning_rate 0.001");
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.errors, AllOf(HasSubstr("--hidden is 8, was 16"), HasSubstr("--activation is tanh, was relu"),
                                    HasSubstr("--seed is 3, was 1"), Not(HasSubstr("learning_rate"))));
  EXPECT_THAT(Train("--resume " + Path("run") + " --epochs 1").errors, HasSubstr("--epochs is 1, was 2"));

  const Finished grown = Train("--resume " + Path("run") + " --epochs 3");
  EXPECT_EQ(grown.exit_code, 0) << grown.errors;
  EXPECT_THAT(grown.output, HasSubstr("--restart_schedule"));
  const std::vector<nlohmann::json> steps = ReadMetrics(Path("log")).steps;  // the same file, gone on with
  ASSERT_EQ(steps.size(), 3 * 45u);
  EXPECT_EQ(steps.back()["learning_rate"], 0);  // of the stored horizon
  EXPECT_EQ(StepsOf(Path("run")), 135);
  EXPECT_THAT(grown.output, Not(HasSubstr("bits")));
  EXPECT_THAT(Train("--resume " + Path("run") + " --threads 2 --micro_batch 7 --epochs 4").output,
              AllOf(HasSubstr("--threads differs"), HasSubstr("--micro_batch differs")));
}

TEST_F(ResumeTest, TheScheduleMayBeginAnew) {
  MustTrain(new_run_);
  MustTrain("--resume " + Path("run") + " --epochs 4 --restart_schedule --metrics " + Path("log"));
  const std::vector<nlohmann::json> steps = ReadMetrics(Path("log")).steps;
  ASSERT_EQ(steps.size(), 90u);
  EXPECT_NEAR(steps[0]["learning_rate"].get<double>(), 1e-3 / 4, 1e-9);  // warm-up of 4 steps, a twentieth of 90
  EXPECT_NEAR(steps[4]["learning_rate"].get<double>(), 1e-3, 1e-5);
}

TEST_F(ResumeTest, HalfALineOfAKilledRunIsDropped) {
  MustTrain(new_run_ + "--metrics " + Path("log"));
  std::ofstream(Path("log"), std::ios::app) << "{\"step\": 9";
  MustTrain("--resume " + Path("run") + " --epochs 3");
  EXPECT_EQ(ReadMetrics(Path("log")).steps.size(), 3 * 45u);  // and each line is JSON
}

TEST_F(ResumeTest, OtherDataIsRefused) {
  MustTrain(new_run_);
  const std::filesystem::path samples = std::string(GEMMILL_SOURCE_DIR) + "/data/samples/digits";
  std::filesystem::copy(samples, Path("data"));
  MustTrain("--resume " + Path("run") + " --epochs 3 --data " + Path("data"));
  for (const char* file : {"images-idx3-ubyte.gz", "labels-idx1-ubyte.gz"}) {
    std::filesystem::copy(samples / (std::string("t10k-") + file), Path("data") + "/train-" + file,
                          std::filesystem::copy_options::overwrite_existing);
  }
  EXPECT_THAT(Train("--resume " + Path("run") + " --epochs 4 --data " + Path("data")).errors,
              HasSubstr("other training samples"));
}

TEST_F(ResumeTest, SavesTheBestAndStopsWhenItGetsNoBetter) {
  // A rate that changes nothing: the first epoch is the best.
  const std::string flags = "--hidden 16 --epochs 9 --learning_rate 1e-30 --patience 2 --validation_share 0.2 ";
  const Finished run = Train(flags + "--save_best " + Path("best") + " --save " + Path("run"));
  EXPECT_EQ(run.exit_code, 0) << run.errors;
  EXPECT_THAT(run.output, HasSubstr("held out for validation"));
  EXPECT_THAT(run.output, HasSubstr("no better validation in 2 epochs"));
  const int64_t per_epoch = StepsOf(Path("best"));
  EXPECT_LT(per_epoch, 45);
  EXPECT_EQ(StepsOf(Path("run")), 3 * per_epoch);
  // Its patience stays at its end.
  MustTrain("--resume " + Path("run"));
  EXPECT_EQ(StepsOf(Path("run")), 3 * per_epoch);
  MustTrain("--resume " + Path("run") + " --patience 3");
  EXPECT_EQ(StepsOf(Path("run")), 4 * per_epoch);
}

TEST_F(ResumeTest, FlagsThatCannotBe) {
  EXPECT_THAT(Train("--save_every 3").errors, HasSubstr("--save"));
  EXPECT_THAT(Train("--keep 3").errors, HasSubstr("--save"));
  EXPECT_THAT(Train("--restart_schedule").errors, HasSubstr("--resume"));
  EXPECT_THAT(Train("--save " + directory_.path()).errors, HasSubstr("directory"));
  EXPECT_THAT(Train("--save " + Path("a") + " --save_best " + Path("a")).errors, HasSubstr("two files"));
  EXPECT_THAT(Train("--resume " + Path("nothing")).errors, HasSubstr("nothing"));
  EXPECT_THAT(Train("--validation_share 0.0001").errors, HasSubstr("--validation_share"));
}

TEST_F(ResumeTest, PredictUsesTheModel) {
  const Finished trained = Train(new_run_ + "--learning_rate 0.01");
  const std::string data = std::string(GEMMILL_SOURCE_DIR) + "/data/samples/digits";
  const Finished predicted = RunProgram("predict", "--model " + Path("run") + " --data " + data);
  EXPECT_EQ(predicted.exit_code, 0) << predicted.errors;
  EXPECT_EQ(Lines(predicted.output).size(), 11u);
  EXPECT_EQ(Lines(predicted.output).back(), Lines(trained.output).back());
  EXPECT_THAT(predicted.output, ContainsRegex("class 3 .* of .* right  0\\.[0-9]+"));

  const Finished listed =
      RunProgram("predict", "--model " + Path("run") + " --input " + data + "/t10k-images-idx3-ubyte.gz");
  EXPECT_EQ(listed.exit_code, 0) << listed.errors;
  EXPECT_EQ(Lines(listed.output).size(), 360u);
  EXPECT_THAT(Lines(listed.output)[0], ContainsRegex("^image 0  class [0-9]  probability [01]\\.[0-9]+$"));
}

TEST_F(ResumeTest, PredictRefusesWhatItCannotUse) {
  MustTrain(new_run_);
  const auto errors = [](const std::string& arguments) {
    const Finished run = RunProgram("predict", arguments);
    EXPECT_EQ(run.exit_code, 1) << arguments;
    return run.errors;
  };
  EXPECT_THAT(errors(""), HasSubstr("--model"));
  EXPECT_THAT(errors("--model " + Path("run")), HasSubstr("--data DIR or --input FILE"));
  EXPECT_THAT(errors("--model " + Path("none") + " --data x"), HasSubstr("none"));
  ASSERT_TRUE(WriteSafetensors(Path("other"), {{"x", Must(Tensor::Zeros(Spec{{2}, DType::kF32}))}}).ok());
  EXPECT_THAT(errors("--model " + Path("other") + " --data x"), HasSubstr("gemmill.model"));
  EXPECT_THAT(errors("--model " + Path("run") + " --input " + Path("run")), HasSubstr("run"));
  // Images of another size.
  const std::string header("\0\0\x08\x03\0\0\0\x01\0\0\0\x01\0\0\0\x02", 16);
  const std::string small = directory_.Write("small", header + "ab");
  EXPECT_THAT(errors("--model " + Path("run") + " --input " + small), AllOf(HasSubstr("2 pixels"), HasSubstr("64")));
}

}  // namespace
}  // namespace gemmill
