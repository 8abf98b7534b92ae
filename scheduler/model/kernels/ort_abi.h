// What these operators need of onnxruntime's C interface: places in its table of functions, and the record of an
// operator. The table only grows at its end, so that places keep their numbers; those up to 274 are there from version
// 17 of the interface on.
#pragma once
#include <cstddef>
#include <cstdint>

namespace ort {

struct Status;
struct Value;
struct Info;     // when a kernel is made
struct Context;  // when it runs
struct Domain;
struct Options;
struct ShapeInfo;

enum class Type : int { f32 = 1, i8 = 3, i32 = 6, i64 = 7 };
enum class Arity : int { required = 0 };

constexpr uint32_t kVersion = 18;  // the oldest whose record of an operator ends where ours does

using Functions = void* const*;

struct Base {
  Functions (*get_api)(uint32_t version) noexcept;
  const char* (*version_string)() noexcept;
};

enum Place : int {
  kCreateStatus = 0,
  kCreateDomain = 26,
  kDomainAdd = 27,
  kAddDomain = 28,
  kTensorData = 51,
  kDimsCount = 61,
  kDims = 62,
  kShapeOf = 65,
  kAttrFloat = 85,
  kAttrInt = 86,
  kInput = 90,
  kOutput = 91,
  kReleaseStatus = 93,
  kReleaseShape = 99,
  kParallelFor = 274,
};

template <class Signature>
Signature* function(Functions table, Place place) {
  return reinterpret_cast<Signature*>(table[place]);
}

// The record of one operator. Order and types are the interface's.
struct CustomOp {
  uint32_t version = kVersion;
  void* (*create)(const CustomOp*, Functions, const Info*) = nullptr;
  const char* (*name)(const CustomOp*) = nullptr;
  const char* (*provider)(const CustomOp*) = nullptr;
  Type (*input_type)(const CustomOp*, size_t) = nullptr;
  size_t (*input_count)(const CustomOp*) = nullptr;
  Type (*output_type)(const CustomOp*, size_t) = nullptr;
  size_t (*output_count)(const CustomOp*) = nullptr;
  void (*compute)(void*, Context*) = nullptr;
  void (*destroy)(void*) = nullptr;
  Arity (*input_arity)(const CustomOp*, size_t) = nullptr;
  Arity (*output_arity)(const CustomOp*, size_t) = nullptr;
  int (*input_memory)(const CustomOp*, size_t) = nullptr;
  int (*variadic_in_min)(const CustomOp*) = nullptr;
  int (*variadic_in_same)(const CustomOp*) = nullptr;
  int (*variadic_out_min)(const CustomOp*) = nullptr;
  int (*variadic_out_same)(const CustomOp*) = nullptr;
  Status* (*create2)(const CustomOp*, Functions, const Info*, void**) = nullptr;
  Status* (*compute2)(void*, Context*) = nullptr;
  Status* (*infer_shape)(const CustomOp*, void*) = nullptr;
  int (*start_version)(const CustomOp*) = nullptr;
  int (*end_version)(const CustomOp*) = nullptr;
  size_t (*may_inplace)(int** inputs, int** outputs) = nullptr;
  void (*release_inplace)(int* inputs, int* outputs) = nullptr;
  size_t (*aliases)(int** inputs, int** outputs) = nullptr;
  void (*release_aliases)(int* inputs, int* outputs) = nullptr;
};

}  // namespace ort
