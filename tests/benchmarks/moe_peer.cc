// The Gemmill side of compare_pytorch_moe.py: a block's forward and backward pass on demand. Reads commands from stdin,
// a line each, and answers each with a line of JSON:
//   build/tests/benchmarks/moe_peer [EXPERTS]
//     dump DIR   writes weights, input, output, the output's gradient and all gradients (NAME.f32: little-endian
//     values)
//                and answers with the block's sizes
//     time N     {"seconds": of N passes}
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/benchmarks/moe_block.h"

namespace gemmill {
namespace {

void Write(const std::string& path, const Tensor& tensor) {
  const std::vector<float> values = Check(tensor.ToVector<float>());
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(float)));
  if (!file.flush()) Check(absl::DataLossError(absl::StrCat("cannot write ", path)));
}

nlohmann::json Dump(MoeBlock& block, const std::string& directory) {
  block.Run();
  const auto write = [&](const std::string& name, const Tensor& tensor) {
    Write(absl::StrCat(directory, "/", name, ".f32"), tensor);
  };
  write("x", block.x());
  write("dy", block.dy());
  write("y", block.result(0));
  size_t i = 1;
  for (const auto& [name, value] : block.model().trainable()) {
    write(name, Check(value.Value()));
    write(absl::StrCat("d_", name), block.result(i++));
  }
  write("d_x", block.result(i));
  const MoeWorkload& workload = block.workload();
  return {{"tokens", workload.tokens},   {"hidden", workload.hidden}, {"ffn", workload.ffn},
          {"experts", workload.experts}, {"top_k", workload.top_k},   {"threads", NumThreads()}};
}

int Main(int argc, char** argv) {
  MoeWorkload workload{.name = "block"};
  if (argc == 2) workload.experts = std::atoi(argv[1]);
  MoeBlock block(workload);
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string command, directory;
    int64_t runs = 0;
    words >> command;
    nlohmann::json answer;
    if (command == "dump" && std::getline(words >> std::ws, directory)) {
      answer = Dump(block, directory);
    } else if (command == "time" && words >> runs) {
      const auto start = std::chrono::steady_clock::now();
      for (int64_t i = 0; i < runs; ++i) block.Run();
      answer = {{"seconds", std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()}};
    } else {
      std::fprintf(stderr, "error: command is \"%s\", expected \"dump DIR\" or \"time N\"\n", line.c_str());
      return 1;
    }
    std::cout << answer.dump() << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace gemmill

int main(int argc, char** argv) { return gemmill::Main(argc, argv); }
