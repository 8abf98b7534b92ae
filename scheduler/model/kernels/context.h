// What operators ask of onnxruntime, in this library's terms: attributes when a kernel is made, tensors when it runs.
#pragma once
#include <cstdlib>

#include "ort_abi.h"

namespace paceline {

// Memory of the thread that asks, kept from call to call: the same lines stay in its caches from node to node.
// Null where there is none.
template <int Which>
inline void* scratch(size_t bytes) {
  static thread_local void* block = nullptr;
  static thread_local size_t room = 0;
  if (bytes > room) {
    std::free(block);
    const size_t wanted = (bytes + bytes / 2 + 4095) / 4096 * 4096;
    block = std::aligned_alloc(4096, wanted);
    room = block ? wanted : 0;
  }
  return block;
}

inline ort::Status* failure(ort::Functions table, const char* message) {
  constexpr int kInvalidArgument = 2;
  return ort::function<ort::Status*(int, const char*)>(table, ort::kCreateStatus)(kInvalidArgument, message);
}

// A node's attributes; one that is missing takes its default, or is told of by `missing`.
class Attributes {
 public:
  Attributes(ort::Functions table, const ort::Info* info) : table_(table), info_(info) {}

  int64_t whole(const char* name, int64_t otherwise) {
    int64_t value = 0;
    return got(ort::function<ort::Status*(const ort::Info*, const char*, int64_t*)>(table_, ort::kAttrInt)(
               info_, name, &value))
               ? value
               : otherwise;
  }
  int64_t whole(const char* name) {
    constexpr int64_t kNone = INT64_MIN;
    const int64_t value = whole(name, kNone);
    if (value == kNone && !missing_) missing_ = name;
    return value == kNone ? 0 : value;
  }
  float real(const char* name, float otherwise) {
    float value = 0;
    return got(ort::function<ort::Status*(const ort::Info*, const char*, float*)>(table_, ort::kAttrFloat)(info_, name,
                                                                                                           &value))
               ? value
               : otherwise;
  }
  const char* missing() const { return missing_; }

 private:
  bool got(ort::Status* s) const {
    if (s) ort::function<void(ort::Status*)>(table_, ort::kReleaseStatus)(s);
    return !s;
  }
  ort::Functions table_;
  const ort::Info* info_;
  const char* missing_ = nullptr;
};

constexpr size_t kMostDims = 8;

struct Shape {
  int64_t sizes[kMostDims] = {};
  size_t count = 0;

  int64_t last() const { return count ? sizes[count - 1] : 0; }
  int64_t all() const {
    int64_t n = 1;
    for (size_t i = 0; i < count; i++) n *= sizes[i];
    return n;
  }
  int64_t rows() const { return last() > 0 ? all() / last() : 0; }
};

// A run of one node. The first thing that goes wrong is kept; who has checked `ok` may touch memory.
class Run {
 public:
  Run(ort::Functions table, ort::Context* context) : table_(table), context_(context) {}

  template <class T>
  const T* in(size_t i, Shape* shape) {
    const ort::Value* v = nullptr;
    keep(ort::function<ort::Status*(const ort::Context*, size_t, const ort::Value**)>(table_, ort::kInput)(context_, i,
                                                                                                           &v));
    if (!v) {
      check(false, "an input is missing");
      return nullptr;
    }
    read_shape(v, shape);
    return static_cast<const T*>(data(const_cast<ort::Value*>(v)));
  }
  template <class T>
  T* out(size_t i, const Shape& shape) {
    ort::Value* v = nullptr;
    keep(ort::function<ort::Status*(ort::Context*, size_t, const int64_t*, size_t, ort::Value**)>(table_, ort::kOutput)(
        context_, i, shape.sizes, shape.count, &v));
    return v ? static_cast<T*>(data(v)) : nullptr;
  }
  template <class Body>
  void parallel(size_t parts, Body& body) {
    if (parts == 1) return body(size_t{0});
    auto call = +[](void* f, size_t i) { (*static_cast<Body*>(f))(i); };
    keep(ort::function<ort::Status*(const ort::Context*, void (*)(void*, size_t), size_t, size_t, void*)>(
        table_, ort::kParallelFor)(context_, call, parts, 0, &body));
  }
  void check(bool holds, const char* otherwise) {
    if (!holds && !status_) status_ = failure(table_, otherwise);
  }
  bool ok() const { return !status_; }
  ort::Status* status() const { return status_; }

 private:
  void keep(ort::Status* s) {
    if (!s) return;
    if (status_)
      ort::function<void(ort::Status*)>(table_, ort::kReleaseStatus)(s);
    else
      status_ = s;
  }
  void* data(ort::Value* v) {
    void* p = nullptr;
    keep(ort::function<ort::Status*(ort::Value*, void**)>(table_, ort::kTensorData)(v, &p));
    return p;
  }
  void read_shape(const ort::Value* v, Shape* shape) {
    ort::ShapeInfo* info = nullptr;
    keep(ort::function<ort::Status*(const ort::Value*, ort::ShapeInfo**)>(table_, ort::kShapeOf)(v, &info));
    if (!info) return;
    keep(ort::function<ort::Status*(const ort::ShapeInfo*, size_t*)>(table_, ort::kDimsCount)(info, &shape->count));
    check(shape->count <= kMostDims, "a tensor has more than 8 dimensions");
    if (ok())
      keep(ort::function<ort::Status*(const ort::ShapeInfo*, int64_t*, size_t)>(table_, ort::kDims)(info, shape->sizes,
                                                                                                   shape->count));
    if (!ok()) shape->count = 0;
    ort::function<void(ort::ShapeInfo*)>(table_, ort::kReleaseShape)(info);
  }

  ort::Functions table_;
  ort::Context* context_;
  ort::Status* status_ = nullptr;
};

// Whether `bytes` lie in the weights at a place.
inline bool within(int64_t place, int64_t bytes, const Shape& weights) {
  return place >= 0 && bytes >= 0 && place <= weights.all() - bytes;
}

}  // namespace paceline
