// libFuzzer on ParseCsv: the first byte chooses the options, the rest is the text.
#include <cstddef>
#include <cstdint>

#include "gemmill/data/csv.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const uint8_t choice = data[0];
  gemmill::CsvOptions options{.delimiter = (choice & 1) != 0 ? ',' : ' ',
                              .header = static_cast<gemmill::CsvHeader>((choice >> 1) % 3),
                              .check_finite = (choice & 8) != 0};
  if ((choice & 16) != 0) options.class_names = {"a", "b"};
  if ((choice & 32) != 0) {
    options.label = (choice & 64) != 0 ? gemmill::CsvColumn("k") : gemmill::CsvColumn(-1);
  } else {
    options.targets = {0, -1};
  }
  const absl::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  const absl::StatusOr<gemmill::Dataset> dataset = gemmill::ParseCsv(text, "fuzz", options);
  // What is accepted must be whole.
  if (dataset.ok() && !dataset->Gather({0, dataset->size() - 1}).ok()) __builtin_trap();
  return 0;
}
