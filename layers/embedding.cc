#include "gemmill/layers/embedding.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "gemmill/autograd/ops.h"

namespace gemmill {

absl::StatusOr<Embedding> Embedding::Create(const EmbeddingOptions& options, const InitOptions& init) {
  if (options.rows < 1 || options.width < 1) {
    return InvalidArgument("Embedding: ", options.rows, " rows of width ", options.width,
                           ", expected at least 1 of each");
  }
  GM_ASSIGN_OR_RETURN(Var weight,
                      MakeParameter({options.rows, options.width}, Initializer::kNormal, init, options.deviation));
  return Embedding(std::move(weight));
}

Embedding::Embedding(Var weight) : Module(absl::StrCat("Embedding ", weight.shape()[0], " x ", weight.shape()[1])) {
  weight_ = AddParameter("weight", std::move(weight));
}

Var Embedding::operator()(Located index) const {
  const LayerScope scope(name());
  const CallerScope caller(index.caller);
  return GatherRows(weight_, index.var);
}

}  // namespace gemmill
