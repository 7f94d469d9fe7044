#include "gemmill/examples/image_data.h"

#include <cmath>
#include <vector>

#include "gemmill/data/order.h"

namespace gemmill::examples {

absl::StatusOr<ImageData> LoadImages(const std::string& directory, double validation_share) {
  GM_ASSIGN_OR_RETURN(Dataset train, LoadIdxDirectory(directory, Split::kTrain));
  GM_ASSIGN_OR_RETURN(const int64_t classes, train.NumClasses());
  GM_ASSIGN_OR_RETURN(Dataset test, LoadIdxDirectory(directory, Split::kTest, {.classes = classes}));
  GM_ASSIGN_OR_RETURN(const Tensor pixels, train.field("x"));
  GM_ASSIGN_OR_RETURN(const Tensor test_pixels, test.field("x"));
  if (pixels.shape()[1] != test_pixels.shape()[1]) {
    return InvalidArgument(directory, ": training images have ", pixels.shape()[1], " pixels, test images ",
                           test_pixels.shape()[1]);
  }
  ImageData data{train, test, test, pixels.shape()[1], classes};
  if (validation_share == 0) return data;
  const int64_t held_out = std::llround(validation_share * static_cast<double>(train.size()));
  if (held_out < 1 || held_out >= train.size()) {
    return InvalidArgument("--validation_share ", validation_share, " holds out ", held_out, " of ", train.size(),
                           " training samples, expected at least one, and one to train on");
  }
  // In an order of their own, as files may be sorted.
  const std::vector<int64_t> order = EpochOrder(train.size(), true, 0, 0);
  const absl::Span<const int64_t> all(order);
  GM_ASSIGN_OR_RETURN(data.validation, train.Subset(all.first(static_cast<size_t>(held_out))));
  GM_ASSIGN_OR_RETURN(data.train, train.Subset(all.subspan(static_cast<size_t>(held_out))));
  return data;
}

}  // namespace gemmill::examples
