// Every struct that a program fills in, with one member named and the rest left out: none of this may warn.
#include "gemmill/gemmill.h"

namespace gm = gemmill;

template <typename... Options>
void Use(const Options&...) {}

void NameOneMember() {
  Use(gm::AdamWOptions{.learning_rate = 1}, gm::SgdOptions{.momentum = 0.5f}, gm::ParameterGroup{.weight_decay = 1},
      gm::TrainerOptions{.global_batch = 1}, gm::LoaderOptions{.global_batch = 1},
      gm::UpdateControl{.gradient_scale = 1});
  Use(gm::LinearOptions{.inputs = 1}, gm::MlpOptions{.bias = false}, gm::EmbeddingOptions{.rows = 1},
      gm::NormOptions{.width = 1}, gm::InitOptions{.seed = 1}, gm::NamedParameter{.name = "w"});
  Use(gm::CsvOptions{.delimiter = ';'}, gm::IdxOptions{.classes = 1}, gm::DatasetOptions{.check_finite = false},
      gm::Field{.name = "x"}, gm::Batch{.samples = 1}, gm::Normalization{.shift = {1}}, gm::BatchPosition{.epoch = 1});
  Use(gm::MatMulOptions{.trans_a = true}, gm::ReduceOptions{.keepdims = true},
      gm::CrossEntropyOptions{.ignore_index = 1}, gm::DropoutOptions{.rate = 0.1f},
      gm::GradOptions{.differentiable = true}, gm::RandomInputs{.seed = 1}, gm::RandomVars{.samples = 1});
  Use(gm::Spec{.shape = {1}}, gm::Spec{.dtype = gm::DType::kI64}, gm::Device{.index = 1}, gm::FieldSpec{.name = "x"},
      gm::GemmReportOptions{.device = "h100"}, gm::GemmShape{.m = 1}, gm::Origin{.role = gm::GemmRole::kDgrad});
}
