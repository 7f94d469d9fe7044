// A profile of whole training steps.
#include "gemmill/runtime/profile.h"

#include "tests/layers/training.h"

namespace gemmill {
namespace {

// Micro-batches (the first and later ones), the gradients' norm, and the update.
TEST(ProfileTest, WatchesATrainer) {
  const Mlp model = Mlp::Create({.sizes = {5, 3}}, {.seed = 1}).value();
  const LossFunction loss = ClassificationLoss(model);
  Trainer trainer = Trainer::Create(model, AdamW(), loss, {.global_batch = 4, .micro_batch = 2}).value();
  Profile profile;
  trainer.SetWatch(profile.Watch());
  const Batch batch = ClassificationBatch(4, 1);
  for (int step = 0; step < 3; ++step) MustStep(trainer, batch);
  int forwards = 0;
  bool norm = false;
  bool update = false;
  for (const Profile::Row& row : profile.Rows()) {
    if (row.cost.gemm.has_value() && row.origin.role == GemmRole::kForward) {
      ++forwards;
      EXPECT_EQ(row.count, 6);
      EXPECT_EQ(row.origin.layer, "fc1");
    }
    if (row.name == OpName(op::GlobalNorm{})) norm = row.count == 3;
    if (row.name == OpName(op::AdamW{})) update = row.count == 3 && row.cost.flops == 14 * 18;
  }
  EXPECT_EQ(forwards, 1);
  EXPECT_TRUE(norm) << profile.Table();
  EXPECT_TRUE(update) << profile.Table();
}

}  // namespace
}  // namespace gemmill
