// train_mlp trains: what it prints and writes, that a seed decides all, and that micro-batches change nothing.
#include <cmath>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "tests/examples/run_program.h"

namespace gemmill {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;

// A short run on the bundled digits; its metrics are at `path`.
Metrics Train(const std::string& arguments, Finished* finished = nullptr) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/metrics.jsonl";
  const Finished run = RunProgram("train_mlp", "--hidden 32 --threads 1 --metrics " + path + " " + arguments);
  EXPECT_EQ(run.exit_code, 0) << run.errors;
  EXPECT_EQ(run.errors, "");
  if (finished != nullptr) *finished = run;
  return ReadMetrics(path);
}

std::set<std::string> Keys(const nlohmann::json& object) {
  std::set<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.insert(key);
  return keys;
}

TEST(TrainMlpTest, CountsOfOneAreSingular) {
  const Finished run = RunProgram("train_mlp", "--epochs 1 --hidden 8 --threads 1");
  EXPECT_THAT(run.output, ContainsRegex("; 1 epoch of 45 steps, .*, 1 thread\n"));
}

TEST(TrainMlpTest, PrintsAnAccuracyAndWritesMetrics) {
  Finished run;
  const Metrics metrics = Train("--epochs 3 --seed 1 --learning_rate 0.01", &run);
  const std::vector<std::string> lines = Lines(run.output);
  ASSERT_GT(lines.size(), 4u);
  EXPECT_THAT(lines.back(), ContainsRegex("^test accuracy 0\\.9[0-9][0-9][0-9]$"));
  EXPECT_THAT(run.output, ContainsRegex("epoch 3/3 .*accuracy"));
  EXPECT_THAT(run.output, HasSubstr("fc1"));
  EXPECT_THAT(run.output, HasSubstr("; 3 epochs of 45 steps, "));
  EXPECT_EQ(run.output.find('\r'), std::string::npos);  // no terminal, no line that is written over

  ASSERT_EQ(metrics.evaluations.size(), 3u);
  ASSERT_GT(metrics.steps.size(), 3u);
  ASSERT_EQ(metrics.steps.size() % 3, 0u);
  const size_t per_epoch = metrics.steps.size() / 3;
  for (size_t i = 0; i < metrics.steps.size(); ++i) {
    const nlohmann::json& step = metrics.steps[i];
    EXPECT_EQ(Keys(step),
              (std::set<std::string>{"step", "epoch", "loss", "learning_rate", "gradient_norm", "samples_per_s"}));
    EXPECT_EQ(step["step"].get<size_t>(), i + 1);
    EXPECT_EQ(step["epoch"].get<size_t>(), i / per_epoch + 1);
    EXPECT_GT(step["gradient_norm"].get<double>(), 0);
    EXPECT_GT(step["samples_per_s"].get<double>(), 0);
  }
  for (size_t epoch = 1; epoch <= 3; ++epoch) {
    const nlohmann::json& evaluation = metrics.evaluations[epoch - 1];
    EXPECT_EQ(Keys(evaluation), (std::set<std::string>{"event", "step", "epoch", "loss", "accuracy", "samples"}));
    EXPECT_EQ(evaluation["event"], "evaluation");
    EXPECT_EQ(evaluation["epoch"].get<size_t>(), epoch);
    EXPECT_EQ(evaluation["step"].get<size_t>(), epoch * per_epoch);
  }
  const std::string accuracy = lines.back().substr(lines.back().rfind(' ') + 1);
  EXPECT_NEAR(metrics.evaluations.back()["accuracy"].get<double>(), std::stod(accuracy), 5.1e-5);
}

TEST(TrainMlpTest, ExpertsTellTheirLoads) {
  Finished run;
  const Metrics metrics = Train(
      "--epochs 3 --learning_rate 0.01 --global_batch 32 --micro_batch 10 --experts 4 --statistics_every 10", &run);
  EXPECT_THAT(run.output, HasSubstr("Moe 4 experts, top 2 (softmax_renormalized), 32 -> 32"));
  EXPECT_THAT(Lines(run.output).back(), ContainsRegex("^test accuracy 0\\.9[0-9][0-9][0-9]$"));
  ASSERT_EQ(metrics.experts.size(), metrics.steps.size() / 10);
  for (size_t i = 0; i < metrics.experts.size(); ++i) {
    const nlohmann::json& line = metrics.experts[i];
    EXPECT_EQ(line["step"].get<size_t>(), 10 * (i + 1));
    ASSERT_EQ(line["tokens"].size(), 1u);
    const auto samples = line["tokens"][0].get<int64_t>();
    EXPECT_TRUE(samples == 32 || samples == 1437 % 32) << samples;  // of the last batch of an epoch
    for (const char* loads : {"tokens_per_expert", "kept_per_expert"}) {
      ASSERT_EQ(line[loads].size(), 1u);
      const auto tokens = line[loads][0].get<std::vector<int64_t>>();
      ASSERT_EQ(tokens.size(), 4u);
      EXPECT_EQ(std::accumulate(tokens.begin(), tokens.end(), int64_t{0}), 2 * samples);
    }
    for (const char* name : {"max_violation", "load_entropy", "dead_experts", "dropped_share", "router_entropy",
                             "balance_loss", "scaled_balance_loss", "z_loss", "scaled_z_loss"}) {
      EXPECT_EQ(line[name].size(), 1u) << name;
    }
    EXPECT_NEAR(line["scaled_balance_loss"][0].get<double>(), 0.01 * line["balance_loss"][0].get<double>(), 1e-9);
  }
}

TEST(TrainMlpTest, TheSeedDecidesAll) {
  const std::string arguments = "--epochs 1 --dropout 0.2 --seed ";
  const std::vector<double> losses = Train(arguments + "3").Losses();
  EXPECT_GT(losses.size(), 3u);
  EXPECT_EQ(Train(arguments + "3").Losses(), losses);
  EXPECT_NE(Train(arguments + "4").Losses(), losses);
}

TEST(TrainMlpTest, MicroBatchesChangeNothingButRounding) {
  const std::string arguments = "--epochs 1 --dropout 0.2 --seed 9 --global_batch 32 ";
  const std::vector<double> whole = Train(arguments).Losses();
  const std::vector<double> parts = Train(arguments + "--micro_batch 7").Losses();
  ASSERT_EQ(parts.size(), whole.size());
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(parts[i], whole[i], 1e-4 * whole[i]) << "step " << i + 1;
}

TEST(TrainMlpTest, EveryActivationOptimizerAndSchedule) {
  for (const char* arguments : {"--activation relu", "--activation gelu_tanh", "--activation tanh", "--activation silu",
                                "--optimizer sgd --schedule step", "--schedule constant --clip_norm 1",
                                "--hidden 16,16", "--hidden=", "--check_numerics --device cpu"}) {
    SCOPED_TRACE(arguments);
    const Metrics metrics = Train(std::string("--epochs 1 --global_batch 128 ") + arguments);
    ASSERT_FALSE(metrics.steps.empty());
    EXPECT_LT(metrics.Losses().back(), metrics.Losses().front());
  }
}

TEST(TrainMlpTest, LearningRatesFollowTheSchedule) {
  const auto rates = [](const std::string& arguments) {
    std::vector<double> found;
    for (const nlohmann::json& step : Train("--epochs 2 --global_batch 128 --learning_rate 0.01 " + arguments).steps) {
      found.push_back(step["learning_rate"]);
    }
    return found;
  };
  EXPECT_THAT(rates("--schedule constant"), testing::Each(testing::DoubleEq(0.01)));
  const std::vector<double> step = rates("--schedule step");
  EXPECT_DOUBLE_EQ(step.front(), 0.01);
  EXPECT_NEAR(step.back(), 1e-4, 1e-12);
  const std::vector<double> cosine = rates("--schedule cosine");
  EXPECT_LT(cosine.back(), 0.001);
}

// Chosen or asked for, in more memory or less: the plan is told, its bytes are the measured ones, and losses agree.
TEST(TrainMlpTest, TellsItsPlanAndTrainsAlikeInLittleMemory) {
  const std::string arguments = "--epochs 1 --hidden 64 --global_batch 256 --seed 3 ";
  const Metrics chosen = Train(arguments);
  const Metrics little = Train(arguments + "--memory_budget 200KB");
  const Metrics fixed = Train(arguments + "--micro_batch 100");
  for (const Metrics* run : {&chosen, &little, &fixed}) {
    ASSERT_EQ(run->plans.size(), 1u);
    EXPECT_EQ(Keys(run->plans[0]),
              (std::set<std::string>{"event", "step", "micro_batch", "predicted_bytes", "measured_bytes",
                                     "resident_bytes", "budget_bytes", "max_micro_batch", "reason"}));
    EXPECT_EQ(run->plans[0]["predicted_bytes"], run->plans[0]["measured_bytes"]);
    EXPECT_THAT(run->Losses(), testing::Pointwise(testing::DoubleNear(1e-4), chosen.Losses()));
  }
  EXPECT_EQ(fixed.plans[0]["micro_batch"], 100);
  EXPECT_EQ(chosen.plans[0]["max_micro_batch"], 256);
  EXPECT_LT(little.plans[0]["micro_batch"], 256);
  EXPECT_LE(little.plans[0]["measured_bytes"], 200000);
}

}  // namespace
}  // namespace gemmill
